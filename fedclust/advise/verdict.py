"""From the scores of all repetitions to what can be said: a pure function of numbers.

A repetition splits the rows of every client anew, and chooses the settings of every choice by
validation rows; what is compared here are its scores on test rows. The scores of two choices in a
repetition are paired. Repetitions use the same rows, so the variance of a mean difference is that
of Nadeau and Bengio (Machine Learning 52, 2003).

A choice is called best only if the interval of its lead over *each* other choice is above zero.
Whichever choice is truly best, claiming another one needs the interval of that pair to miss the
truth, so no correction for the number of choices is needed (an intersection-union test).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedclust.report.statistics.paired import Paired, paired

GROUPS = "groups"
# what there is to choose from, the simplest first, and in words
CHOICES = {
    "alone": "each client alone",
    "one": "one model for all",
    "adapted": "one model, adapted by each client",
    GROUPS: "a model for each group of clients",
}
FILE, TRAINED = "verdict.json", "trained"  # where a verdict is written, and its key of a folder
ALPHA = 0.05
STABLE = 0.5  # least mean adjusted Rand index between repetitions of groups that are claimed
# repetitions of the same rows that are still advised: beyond, an interval hardly shrinks, and its
# width is itself known to a quarter only, from ten of them
_MOST_REPETITIONS = 30
_MOST_TIMES = 100  # as many rows, beyond which nobody is told a number


@dataclass(frozen=True)
class Evidence:
    """What is known of the groups beside their scores.

    Attributes:
        count: groups that most repetitions agree on.
        agreement: mean adjusted Rand index between the groups of two repetitions.
        p: of the permutation test, the share of exchanged federations in which groups gain as much;
            NaN where it was not made.
    """

    count: int
    agreement: float
    p: float

    @property
    def agrees(self) -> bool:
        """Whether repetitions are alike enough to name the groups that most of them agree on."""
        return self.count > 1 and self.agreement >= STABLE

    def doubts(self) -> tuple[str, ...]:
        """Why a lead of the groups is not believed; nothing where it is."""
        found = []
        if self.count < 2:
            found.append("the repetitions agree on no two groups")
        elif not self.agrees:
            found.append(
                f"the groups differ from repetition to repetition (adjusted Rand index "
                f"{self.agreement:.2f}, and {STABLE:g} is needed)"
            )
        if math.isnan(self.p):
            found.append("no permutation test was made")
        elif self.p > ALPHA:
            found.append(
                f"groups gain as much in federations whose clients have exchanged their rows "
                f"(p = {self.p:.2g})"
            )
        return tuple(found)


@dataclass(frozen=True)
class Needed:
    """What would decide between choices: so many more repetitions, or so many more rows.

    Attributes:
        repetitions: in all; None where no number of them is enough.
        rows: more than there are; None where repetitions are enough, infinite where it is more than
            a hundred times as many.
    """

    repetitions: int | None = None
    rows: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What can be said.

    Attributes:
        kind: shown: `choice` is better than every other choice. enough: no choice that is left is
            better than `choice`, the simplest, by more than the margin. open: it cannot be told
            between `left`.
        choice: the one to take; of an open verdict the simplest that is left.
        best: the choice with the best mean.
        left: the choices that are not shown to be worse, the simplest first.
        gains: of `choice` over every other choice, in the metric's unit, above 0 where it is
            better.
        doubts: why groups that lead are not claimed.
        needed: what would decide; None where it is decided.
    """

    kind: Literal["shown", "enough", "open"]
    choice: str
    best: str
    left: tuple[str, ...]
    gains: Mapping[str, Paired]
    doubts: tuple[str, ...] = ()
    needed: Needed | None = None


def verdict(
    scores: Mapping[str, NDArray[np.float64]],
    redrawn: float,
    margin: float,
    evidence: Evidence,
    rows: int,
) -> Verdict:
    """What the scores of repetitions say.

    Args:
        scores: by choice of `CHOICES` [R] test scores, R at least 2, the higher the better; the
            same repetitions in the same order.
        redrawn: test / training rows of a repetition.
        margin: a smaller difference does not matter, in the metric's unit; above 0.
        evidence: of the groups.
        rows: of the federation.

    | best mean | its lead over each other choice | verdict |
    |---|---|---|
    | not groups | every interval above 0, every mean at least the margin | shown |
    | groups | the same, and no doubts | shown |
    | groups | the same, and doubts | that of the other choices, with the doubts |
    | any | some interval reaches 0; nothing left beats the simplest left by the margin | enough |
    | any | some interval reaches 0; something left may | open |
    """
    order = [choice for choice in CHOICES if choice in scores]
    best = max(order, key=lambda choice: (float(scores[choice].mean()), -order.index(choice)))

    def gain(one: str, other: str) -> Paired:
        return paired(scores[one] - scores[other], redrawn)

    def over_all(choice: str) -> dict[str, Paired]:
        return {other: gain(choice, other) for other in order if other != choice}

    leads = over_all(best)
    rivals = [other for other, lead in leads.items() if not (lead.low > 0 and lead.mean >= margin)]
    if not rivals and best == GROUPS and (doubts := evidence.doubts()):
        others = {choice: scores[choice] for choice in order if choice != GROUPS}
        without = verdict(others, redrawn, margin, evidence, rows)
        return replace(without, best=best, gains=over_all(without.choice), doubts=doubts)
    if not rivals:
        return Verdict("shown", best, best, (best,), leads)
    left = tuple(choice for choice in order if choice == best or choice in rivals)
    simplest = left[0]
    ahead = {choice: gain(choice, simplest) for choice in left[1:]}
    undecided = {choice: one for choice, one in ahead.items() if not one.high <= margin}
    gains = over_all(simplest)
    if not undecided:
        return Verdict("enough", simplest, best, left, gains)
    every = [_needed(one, redrawn, margin, rows) for one in undecided.values()]
    needed = max(every, key=lambda one: (one.rows or 0, one.repetitions or 0))
    return Verdict("open", simplest, best, left, gains, needed=needed)


def _needed(lead: Paired, redrawn: float, margin: float, rows: int) -> Needed:
    """What would decide whether a choice leads, if its mean lead stayed as it is.

    It is decided when the interval lies above 0, or below the margin. Half the interval is
    t s √(1 / R + redrawn) with R repetitions, and s² falls as the test rows of a repetition grow.
    """
    from scipy.special import stdtrit

    half = lead.high - lead.mean
    target = lead.mean if lead.mean >= margin else margin - lead.mean
    spread = half / (float(stdtrit(lead.n - 1, 0.975)) * math.sqrt(1 / lead.n + redrawn))

    def half_of(repetitions: int) -> float:
        times = float(stdtrit(repetitions - 1, 0.975))
        return times * spread * math.sqrt(1 / repetitions + redrawn)

    for more in range(lead.n + 1, _MOST_REPETITIONS + 1):
        if half_of(more) <= target:
            return Needed(repetitions=more)
    times = (half / target) ** 2
    return Needed(rows=math.inf if times > _MOST_TIMES else rows * (times - 1))

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

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
_STEPS, _HALVINGS = 100, 30  # sizes that are tried up to there, 5 % apart, and then between two
T = TypeVar("T")


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
        left: the choices that are not shown to be worse than another, the simplest first.
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
    | any | some interval reaches 0; something left may beat it | open |

    What is left is shown to be worse than no other choice by the margin.
    """
    order = [choice for choice in CHOICES if choice in scores]
    means = {choice: float(scores[choice].mean()) for choice in order}
    best = max(order, key=lambda choice: (means[choice], -order.index(choice)))
    gains = {
        (one, other): paired(scores[one] - scores[other], redrawn)
        for one in order
        for other in order
        if one != other
    }

    def told(among: Sequence[str], times: float = 1.0) -> Verdict:
        """The verdict on some choices, with intervals so many times as wide."""
        lead = max(among, key=lambda choice: (means[choice], -order.index(choice)))
        known = {pair: _widened(gain, times) for pair, gain in gains.items()}

        def loses(choice: str, to: str) -> bool:
            gain = known[to, choice]
            return gain.low > 0 and gain.mean >= margin

        def over_all(choice: str) -> dict[str, Paired]:
            return {other: known[choice, other] for other in order if other != choice}

        left = tuple(c for c in among if not any(loses(c, to) for to in among if to != c))
        if left == (lead,) and lead == GROUPS and (doubts := evidence.doubts()):
            return replace(told([c for c in among if c != GROUPS], times), doubts=doubts)
        if all(loses(choice, lead) for choice in among if choice != lead):
            return Verdict("shown", lead, best, left, over_all(lead))
        simplest = left[0]
        enough = all(known[choice, simplest].high <= margin for choice in left[1:])
        kind: Literal["enough", "open"] = "enough" if enough else "open"
        return Verdict(kind, simplest, best, left, over_all(simplest))

    made = told(order)
    if made.kind != "open":
        return made
    repetitions = len(scores[best])
    return replace(
        made, needed=_needed(lambda t: told(order, t).kind != "open", repetitions, redrawn, rows)
    )


def _widened(gain: Paired, times: float) -> Paired:
    """A gain whose interval is so many times as wide."""
    half = times * (gain.high - gain.mean)
    return replace(gain, low=gain.mean - half, high=gain.mean + half)


def _needed(decided: Callable[[float], bool], now: int, redrawn: float, rows: int) -> Needed:
    """What would decide an open verdict, if all mean gains stayed as they are.

    `decided` says whether intervals so many times as wide as now do. Half an interval is
    t s √(1 / R + redrawn) with R repetitions, and s² falls as the test rows of a repetition grow.
    More of either must not make it open again, up to the most that is looked at.
    """
    from scipy.special import stdtrit

    def half(repetitions: int) -> float:
        return float(stdtrit(repetitions - 1, 0.975)) * math.sqrt(1 / repetitions + redrawn)

    more = list(range(now + 1, _MOST_REPETITIONS + 1))
    enough = _from(more, lambda r: decided(half(r) / half(now)))
    if enough is not None:
        return Needed(repetitions=enough)
    grid = np.geomspace(1, _MOST_TIMES, _STEPS).tolist()
    times = _from(grid, lambda x: decided(1 / math.sqrt(x)))
    if times is None:
        return Needed(rows=math.inf)
    below = max((x for x in grid if x < times), default=1.0)
    for _ in range(_HALVINGS):
        middle = (below + times) / 2
        below, times = (below, middle) if decided(1 / math.sqrt(middle)) else (middle, times)
    return Needed(rows=rows * (times - 1))


def _from(values: Sequence[T], holds: Callable[[T], bool]) -> T | None:
    """The first of some values from which on it holds for all; None if not for the last."""
    found = None
    for value in reversed(values):
        if not holds(value):
            break
        found = value
    return found

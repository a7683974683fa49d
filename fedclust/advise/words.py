"""A verdict in plain words. Nothing here says more than its intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedclust.advise.crossed import Relation
from fedclust.advise.differences import Difference
from fedclust.advise.repetitions import Repetitions
from fedclust.advise.verdict import ALPHA, CHOICES, GROUPS, STABLE, Evidence, Verdict
from fedclust.helpers.errors import some_of
from fedclust.metrics.contingency import contingency
from fedclust.metrics.recovery import adjusted_rand_index
from fedclust.report.formats import factor, in_percent, inside, show, title
from fedclust.report.statistics.paired import Paired, holm, paired

SMALL = 10  # margins; where half an interval around 0 is wider, a client is too small to tell
FEWEST = 3  # test rows of a client that is told of
_INPUTS = 3  # that a sentence names
_SHOWN = 8  # members of a group that a sentence names


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A verdict and all that it rests on.

    Attributes:
        names: of the clients, in their order.
        together: [M, M] share of the repetitions in which two clients are in one group.
        groups: [M] those that most repetitions agree on; one where the groups of two repetitions
            are not alike.
        trained: the folder of the job in which the verdict's choice was trained on all rows.
        in_use: [M] the groups of that job, where its choice makes groups; None otherwise.
        differences: of these groups, see `fedclust.advise.differences`.
        relations: of these groups, see `fedclust.advise.crossed`.
        calibration: by choice [M], see `fedclust.advise.crossed`.
        remarks: what a reader must know of the data.
        permutations: that were asked for.
        quick: whether it is a first look only.
    """

    verdict: Verdict
    repetitions: Repetitions
    evidence: Evidence
    names: Sequence[str]
    together: NDArray[np.float64]
    groups: NDArray[np.int64]
    trained: Path
    margin: float
    differences: Sequence[Difference] = ()
    relations: Sequence[Relation] = ()
    calibration: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    permutations: int = 1
    quick: bool = False
    in_use: NDArray[np.int64] | None = None

    @property
    def metric(self) -> str:
        """What the numbers are."""
        return self.repetitions.metric

    @property
    def predicts(self) -> bool:
        """Whether `fedclust predict` applies the choice: its data are a table, or series."""
        return any(
            {"columns", "less"} & json.loads(file.read_text(encoding="utf-8")).keys()
            for file in self.trained.glob("inputs/*.json")
        )

    @property
    def uses_others(self) -> bool:
        """Whether the job in use has other groups than those that most repetitions agree on."""
        if self.in_use is None:
            return False
        return adjusted_rand_index(contingency(self.in_use, self.groups)) < 1

    def members(self, groups: NDArray[np.int64] | None = None) -> list[str]:
        """Every group in words, A with B and C; of those that most repetitions agree on, if no
        others are given.
        """
        groups, found = self.groups if groups is None else groups, []
        for group in dict.fromkeys(groups.tolist()):
            names = [self.names[place] for place in np.flatnonzero(groups == group).tolist()]
            names = [f'"{name}"' if "," in name else name for name in names]
            found.append(
                f"{names[0]} alone" if len(names) == 1 else f"{{{some_of(names, _SHOWN)}}}"
            )
        return found


def sentences(advice: Advice) -> list[str]:
    """The verdict, what it rests on, and what is not known; a sentence or two each."""
    lines = [_headline(advice)]
    if advice.quick:
        lines.append("This is a first look (quick=true): fewer repetitions and settings.")
    lines += [_compared(advice, other, one) for other, one in advice.verdict.gains.items()]
    lines += [_over_others(advice), *_of_groups(advice), *_missing(advice)]
    return lines


def _headline(advice: Advice) -> str:
    made, metric = advice.verdict, inside(title(advice.metric))
    words = CHOICES[made.choice]
    if made.kind == "shown":
        if made.choice == GROUPS and not advice.uses_others:
            words = f"these groups, a model each: {'; '.join(advice.members())}"
        # groups that are doubted are told of further below
        others = {c: lead for c, lead in made.gains.items() if not (made.doubts and c == GROUPS)}
        runner, lead = min(others.items(), key=lambda pair: pair[1].mean)
        without = " without groups" * bool(made.doubts)
        return (
            f"Verdict: {words}. It is better than every other choice{without}; over the runner-up, "
            f"{CHOICES[runner]}, by {gained(advice, lead)} in {metric}."
        )
    if made.kind == "enough":
        return (
            f"Verdict: {words}. No other choice that is left is better by more than "
            f"{sized(advice, advice.margin)} in {metric}, the least that is said to matter."
        )
    left = _or(CHOICES[choice] for choice in made.left)
    return (
        f"Verdict: it cannot be told with these data whether {left} is best. The simplest of these "
        f"is {words}."
    )


def _or(words: Iterable[str]) -> str:
    *most, last = words
    return f"{'; '.join(most)}; or {last}" if most else last


def _compared(advice: Advice, other: str, lead: Paired) -> str:
    """One choice against another."""
    margin = advice.margin
    if lead.low > 0 and lead.mean >= margin:
        how = "is worse"
    elif lead.high < 0:
        how = "is better" if -lead.mean >= margin else "is better, by less than what matters"
    elif -margin <= lead.low and lead.high <= margin:
        how = "is as good, to within what matters"
    elif lead.low >= -margin:
        how = "is not better by an amount that matters"
    elif lead.high <= margin:
        how = "is not worse by an amount that matters"
    else:
        how = "may be better or worse"
    made = CHOICES[advice.verdict.choice]
    metric = inside(title(advice.metric))
    first = f"Gain of {made} over {CHOICES[other]}, in {metric}: {gained(advice, lead)}"
    return f"{first}. The latter {how}."


def _over_others(advice: Advice) -> str:
    """The groups against what validation rows would have chosen without them."""
    one = advice.repetitions
    lead = paired(one.sign * (one.scores[GROUPS] - one.others), one.redrawn)
    return (
        "Groups over the choice without groups that validation rows make in each repetition: "
        f"{gained(advice, lead)}."
    )


def _of_groups(advice: Advice) -> list[str]:
    """What is known of the groups."""
    known, made = advice.evidence, advice.verdict
    if known.agrees:
        lines = [
            f"The groups that most repetitions agree on: {'; '.join(advice.members())} (adjusted "
            f"Rand index between repetitions {known.agreement:.2f})."
        ]
    elif known.count > 1:
        lines = [
            "The repetitions agree on no groups: the adjusted Rand index between those of two "
            f"repetitions is {known.agreement:.2f}, and from {STABLE:g} on groups are named."
        ]
    else:
        lines = [
            "The groups that most repetitions agree on: none, all clients together (adjusted Rand "
            f"index between repetitions {known.agreement:.2f})."
        ]
    if advice.in_use is not None and advice.uses_others:
        lines.append(
            "The job in use, whose models predict new rows, was trained once on all rows and has "
            f"other groups: {'; '.join(advice.members(advice.in_use))}."
        )
    if advice.differences:
        label, *inputs = advice.differences
        real = [one for one in inputs if one.size > one.chance]
        most = ", ".join(f"{one.what} {one.size:.2f}" for one in real[:_INPUTS])
        lines.append(
            f"In what two of them differ most: labels by {label.size:.2f}, inputs by "
            f"{f'{most} standard deviations' if real else 'no more than chance'}."
        )
    if advice.relations:
        one = max(advice.relations, key=lambda one: one.lead.mean)
        own, others, corrected = (
            show(one.metric, value) for value in (one.own, one.others, one.corrected)
        )
        less = f", {corrected} if the shares of labels are corrected" * (others != corrected)
        lines.append(
            f"On the test rows of {advice.members()[one.group]} its own model has {own} in "
            f"{inside(title(one.metric))}, those of the other groups {others}{less}; gain of its "
            f"own over the latter: {shown(one.metric, one.lead, advice.margin)}"
            f"{'' if one.lead.low > 0 else ', which may be chance'}."
        )
    if math.isnan(known.p):
        why = "groups do not have the best mean" if advice.permutations else "permutations=0"
        lines.append(f"The permutation test was not made: {why}.")
    else:
        lines.append(
            "Permutation test: with rows exchanged between clients, groups gain as much over one "
            f"model for all with p = {known.p:.2g}."
        )
    if made.doubts:
        lines.append(f"Groups have the best mean, but are not claimed: {'; '.join(made.doubts)}.")
    return lines


def _missing(advice: Advice) -> list[str]:
    """What would decide an open verdict, and who is too small to be told of."""
    needed, lines = advice.verdict.needed, []
    if needed is not None and needed.repetitions is not None:
        lines.append(
            f"If the difference stayed as it is, about {needed.repetitions} repetitions "
            f"(seeds={needed.repetitions}) would decide."
        )
    elif needed is not None and needed.rows is not None:
        rows = "more than a hundred times as many rows"
        if math.isfinite(needed.rows):
            rows = f"about {_rounded(needed.rows)} more rows"
        lines.append(
            f"More repetitions would not decide; if the difference stayed as it is, {rows} would."
        )
    found = sites(advice)
    choice = advice.verdict.choice
    told = {one.name: one.means[choice] for one in found if math.isfinite(one.means[choice])}
    if told:
        worst = min(told, key=lambda name: advice.repetitions.sign * told[name])
        size = next(one.rows for one in found if one.name == worst)
        lines.append(
            f"Worst off: {worst}, with {show(advice.metric, told[worst])} in "
            f"{inside(title(advice.metric))} ({size} rows)."
        )
    small = [one.name for one in found if one.is_small]
    if small:
        lines.append(
            f"Too few rows to be told of one by one: {some_of(small, _SHOWN)}; "
            "for these the verdict is that of all clients."
        )
    return lines


@dataclass(frozen=True)
class Site:
    """A client under the choices.

    Attributes:
        rows: it has.
        means: of the score by choice, NaN where it is not defined.
        gain: of the verdict's choice over each client alone, or of one model where that is it; None
            where fewer than two repetitions define it.
        p: of no gain, by Holm's correction for all clients that are not small; 1 without.
        is_small: whether it has hardly a test row, or an interval around 0 so wide that nothing is
            said.
    """

    name: str
    rows: int
    means: Mapping[str, float]
    gain: Paired | None
    is_small: bool
    p: float = 1.0

    @property
    def says(self) -> str:
        """What can be said of the gain."""
        if self.gain is None:
            return "not defined here"
        if self.is_small:
            return "too few rows to tell"
        if self.p >= ALPHA:
            apart = self.gain.low > 0 or self.gain.high < 0
            return "cannot be told of one among all" if apart else "cannot be told"
        return "gains" if self.gain.mean > 0 else "loses"


def pair_of(made: Verdict) -> tuple[str, str]:
    """The choice whose gain for every client is told, and that over which."""
    return ("one", "alone") if made.choice == "alone" else (made.choice, "alone")


def sites(advice: Advice) -> list[Site]:
    """Every client, in their order."""
    table, made = advice.repetitions.clients, advice.verdict
    chosen, other = pair_of(made)
    found = []
    for client, name in enumerate(advice.names):
        own = table[table["client"] == client]
        by = {c: some.set_index("seed")["score"].sort_index() for c, some in own.groupby("choice")}
        gaps = (advice.repetitions.sign * (by[chosen] - by[other])).dropna().to_numpy()
        first = own.iloc[0]
        train, test = int(first["train_count"]), int(first["test_count"])
        gain = _of_rows(gaps, advice.metric, test, train) if len(gaps) > 1 else None
        around_0 = gain is not None and gain.low <= 0 <= gain.high
        wide = gain is not None and (
            max(gain.high - gain.mean, gain.mean - gain.low) > SMALL * advice.margin
        )
        is_small = test < FEWEST or (around_0 and wide)
        means = {str(choice): float(values.mean()) for choice, values in by.items()}
        found.append(Site(str(name), train + test, means, gain, is_small))
    told = [one for one in found if one.gain is not None and not one.is_small]
    corrected = holm([one.gain.p for one in told if one.gain is not None])
    p = {one.name: float(value) for one, value in zip(told, corrected, strict=True)}
    return [replace(one, p=p.get(one.name, 1.0)) for one in found]


def _of_rows(gaps: NDArray[np.float64], metric: str, test: int, train: int) -> Paired:
    """A client's mean gain [R], R at least 2, with an interval that so few test rows can give and
    its p value.

    Of a score in percent two models differ on a row by -1, 0 or 1. With a mean gain g the variance
    of that is at least |g| (1 - |g|), however alike the repetitions are. Where g is 0 or 1, one row
    of all that were tested may have been another.
    """
    from scipy.special import stdtrit

    redrawn = test / max(1, train)
    gain = paired(gaps, redrawn)
    if not in_percent(metric) or not test:
        return replace(gain, p=gain.student())
    one_row = min(0.5, 1 / (gain.n * test))
    size = min(max(abs(gain.mean), one_row), 1 - one_row)
    error = math.sqrt(size * (1 - size) / test * (1 / gain.n + redrawn))
    half = max(gain.high - gain.mean, float(stdtrit(gain.n - 1, 1 - ALPHA / 2)) * error)
    gain = replace(gain, low=gain.mean - half, high=gain.mean + half)
    return replace(gain, p=gain.student(), low=max(-1.0, gain.low), high=min(1.0, gain.high))


def gained(advice: Advice, one: Paired) -> str:
    """A mean difference with its interval, as a reader sees the metric."""
    return shown(advice.metric, one, advice.margin)


def shown(metric: str, one: Paired, margin: float) -> str:
    """A mean difference of a metric with its interval."""
    times = factor(metric)
    places = 1 if in_percent(metric) else digits(margin)
    values = [times * value for value in (one.mean, one.low, one.high)]
    if values[1] * values[2] > 0:  # the end that is nearer to zero is not to look like it
        nearest = min(map(abs, values[1:]))
        places = max(places, min(places + 2, math.ceil(-math.log10(2 * nearest))))
    # less by a rounded -0, which is 0
    mean, low, high = (f"{round(value, places) + 0.0:+,.{places}f}" for value in values)
    return f"{mean} [{low}, {high}]{' points' if in_percent(metric) else ''}"


def sized(advice: Advice, size: float) -> str:
    """A difference without its sign, as a reader sees the metric."""
    if in_percent(advice.metric):
        return f"{100 * size:g} point{'s' if size != 0.01 else ''}"
    return f"{size:.2g}"


def digits(margin: float) -> int:
    """Decimals in which a tenth of what matters is seen."""
    return max(0, math.ceil(-math.log10(margin)) + 1)


def _rounded(value: float) -> str:
    """A number of rows with one digit that says something, as nobody knows more."""
    unit = 10 ** max(0, math.floor(math.log10(max(1.0, value))))
    return f"{math.ceil(value / unit) * unit:,}"

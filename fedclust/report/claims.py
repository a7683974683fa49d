"""Statements about arms that a report checks: measured, claimed, holds or not.

One class per kind; `KINDS` lists them. Iterations are 1-based, as in the papers. A claim is stated
on means over seeds, and the number of seeds in which it holds is given beside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedclust.errors import ConfigError, require
from fedclust.metrics import METRICS, meaning
from fedclust.report.arms import SEPARATOR, Arm
from fedclust.report.jobs import Curve
from fedclust.report.wording import factor, in_percent, show

_NOT_OVER = "not run to the end"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claimed: the claim in words.
        measured: what was measured, in words.
        holds: on means over seeds; None where the runs do not reach far enough to tell.
        seeds: in how many seeds it holds.
        of: among how many.
    """

    claimed: str
    measured: str
    holds: bool | None
    seeds: int
    of: int


class Claim(Protocol):
    """A statement about some arms."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arms it speaks of."""
        ...

    @property
    def setting(self) -> str:
        """What the titles of the settings it is about contain."""
        ...

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """What became of it; `arms` in the order of `names`."""
        ...


def _common(
    arms: Sequence[Arm], metric: str, pick: Callable[[Arm, str], Curve | None] = Arm.curve
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]] | None:
    """Rounds [R] and, per arm, values [R, S] that all arms have, seeds matched; None where there
    are none.
    """
    curves = [pick(arm, metric) for arm in arms]
    if any(curve is None for curve in curves):
        return None
    present = [curve for curve in curves if curve is not None]
    seeds = [s for s in present[0].seeds if all(s in c.seeds for c in present)]
    rounds = np.array(
        sorted(set.intersection(*(set(c.rounds.tolist()) for c in present))), dtype=np.int64
    )
    if not seeds or not len(rounds):
        return None
    return rounds, [_take(curve, rounds, seeds) for curve in present]


def _take(curve: Curve, rounds: NDArray[np.int64], seeds: Sequence[int]) -> NDArray[np.float64]:
    return curve.values[np.isin(curve.rounds, rounds)][:, [curve.seeds.index(s) for s in seeds]]


def _unknown(claimed: str, why: str) -> Verdict:
    return Verdict(claimed, why, None, 0, 0)


def _verdict(
    claimed: str,
    measured: str,
    test: Callable[[list[NDArray[np.float64]]], bool],
    values: Sequence[NDArray[np.float64]],
) -> Verdict:
    """`test` on the means over seeds and on every seed alone; values per arm [R, S].

    A seed that stopped early in one of the arms is left out.
    """
    complete = ~np.isnan(np.stack(list(values))).any(axis=(0, 1))
    if not complete.any():
        return _unknown(claimed, "no seed got this far in every arm")
    alone = [test([v[:, s] for v in values]) for s in np.flatnonzero(complete)]
    means = [v[:, complete].mean(axis=1) for v in values]
    return Verdict(claimed, measured, test(means), sum(alone), len(alone))


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What every claim has.

    Attributes:
        metric: what it is about.
        text: the claim in words, in place of the words made from its numbers.
        setting: the claim is checked in settings of which this holds: every piece begins a piece of
            the title, as "FEMNIST, swap all" does of "FEMNIST-MLP, swap all"; "" for all.
    """

    metrics: ClassVar[Mapping[str, Any]] = METRICS  # those that the kind allows
    metric: str = "accuracy"
    text: str = ""
    setting: str = ""

    def __post_init__(self) -> None:
        if self.metrics is METRICS:
            meaning(self.metric, "report.claims: metric")
        require(
            self.metric in self.metrics,
            "report.claims: metric",
            self.metric,
            f"one of {', '.join(self.metrics)}",
        )


@dataclass(frozen=True, kw_only=True)
class Pair(Statement):
    """A claim about two arms."""

    left: str
    right: str

    @property
    def names(self) -> tuple[str, ...]:
        """See `Claim`."""
        return (self.left, self.right)


@dataclass(frozen=True, kw_only=True)
class Single(Statement):
    """A claim about one arm and a value."""

    arm: str
    value: float

    @property
    def names(self) -> tuple[str, ...]:
        """See `Claim`."""
        return (self.arm,)


@dataclass(frozen=True, kw_only=True)
class EqualUntil(Pair):
    """Two arms agree through an iteration, to `tolerance` in the metric's unit (0.0005: they print
    alike).
    """

    kind: ClassVar[str] = "equal_until"
    iteration: int
    tolerance: float = 5e-4

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        claimed = self.text or f"{self.left} equals {self.right} through iteration {self.iteration}"
        common = _common(arms, self.metric)
        if common is None or common[0][-1] + 1 < self.iteration:
            return _unknown(claimed, f"not run to iteration {self.iteration}")
        values = [v[common[0] < self.iteration] for v in common[1]]
        gap = float(np.nanmax(np.abs(values[0] - values[1])))
        measured = f"largest difference {show(self.metric, gap)}"
        return _verdict(
            claimed, measured, lambda v: bool(np.abs(v[0] - v[1]).max() <= self.tolerance), values
        )


@dataclass(frozen=True, kw_only=True)
class OrderAtEnd(Statement):
    """The arms end in this order, best first."""

    kind: ClassVar[str] = "order_at_end"
    best_to_worst: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """See `Claim`."""
        return self.best_to_worst

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        better = " < " if METRICS[self.metric].better == "lower" else " > "
        claimed = self.text or f"{better.join(self.best_to_worst)} at the end ({self.metric})"
        common = _common(arms, self.metric)
        if common is None:
            return _unknown(claimed, f"no common rounds with {self.metric}")
        if not all(arm.finished for arm in arms):
            return _unknown(claimed, _NOT_OVER)
        values = [v[-1:] for v in common[1]]
        sign = -1.0 if METRICS[self.metric].better == "lower" else 1.0
        means = [float(np.nanmean(v)) for v in values]
        ranked = sorted(zip(self.names, means, strict=True), key=lambda pair: -sign * pair[1])
        measured = better.join(f"{name} {show(self.metric, value)}" for name, value in ranked)
        return _verdict(
            claimed,
            measured,
            lambda v: all(sign * a[0] > sign * b[0] for a, b in pairwise(v)),
            values,
        )


@dataclass(frozen=True, kw_only=True)
class Overtakes(Pair):
    """`left` is behind `right` at the first iteration of `between` and ahead at the second."""

    kind: ClassVar[str] = "overtakes"
    between: tuple[int, int]

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        first, second = self.between
        claimed = (
            self.text
            or f"{self.left} overtakes {self.right} between iterations {first} and {second}"
        )
        common = _common(arms, self.metric)
        wanted = [first - 1, second - 1]
        if common is None or not np.isin(wanted, common[0]).all():
            return _unknown(claimed, f"iterations {first} and {second} not both evaluated")
        values = [v[np.isin(common[0], wanted)] for v in common[1]]
        lead = np.nanmean(values[0] - values[1], axis=1)
        unit = " points" if in_percent(self.metric) else ""
        factor = 100 if unit else 1
        before, after = (f"{factor * value:+.2f}{unit}" for value in lead)
        measured = f"{self.left} leads by {before}, then {after}"
        return _verdict(
            claimed, measured, lambda v: bool(v[0][0] < v[1][0] and v[0][1] > v[1][1]), values
        )


@dataclass(frozen=True, kw_only=True)
class Reaches(Single):
    """An arm reaches a value by an iteration; one later still holds, since figures are read by
    eye.
    """

    kind: ClassVar[str] = "reaches"
    iteration: int

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        goal = show(self.metric, self.value)
        claimed = (
            self.text or f"{self.arm} reaches {goal} {self.metric} at iteration {self.iteration}"
        )
        common = _common(arms, self.metric)
        if common is None:
            return _unknown(claimed, f"{self.metric} not recorded")
        rounds, values = common
        reached = np.flatnonzero(np.nanmean(values[0], axis=1) >= self.value)
        if not len(reached) and rounds[-1] + 1 < self.iteration:
            return _unknown(claimed, f"not run to iteration {self.iteration}")
        measured = (
            f"iteration {rounds[reached[0]] + 1}"
            if len(reached)
            else f"not in {rounds[-1] + 1} iterations"
        )
        late = rounds <= self.iteration  # 0-based rounds: up to one iteration late
        return _verdict(claimed, measured, lambda v: bool((v[0][late] >= self.value).any()), values)


@dataclass(frozen=True, kw_only=True)
class AtLeast(Single):
    """An arm ends with at least a value."""

    kind: ClassVar[str] = "at_least"

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        claimed = (
            self.text
            or f"{self.arm} ends with {self.metric} of at least {show(self.metric, self.value)}"
        )
        common = _common(arms, self.metric)
        if common is None:
            return _unknown(claimed, f"{self.metric} not recorded")
        if not arms[0].finished:
            return _unknown(claimed, _NOT_OVER)
        values = [v[-1:] for v in common[1]]
        measured = show(self.metric, float(np.nanmean(values[0])))
        return _verdict(claimed, measured, lambda v: bool(v[0][0] >= self.value), values)


@dataclass(frozen=True, kw_only=True)
class FewerIterations(Pair):
    """`left` needs at least `percent` fewer iterations than `right` to reach `value` in the mean
    over seeds.

    The reduction is 1 - t_left / t_right with t the first such iteration, counted from 1; half a
    percent is allowed, since papers print whole percents. Where `right` never gets there, its last
    iteration bounds the reduction from below.
    """

    kind: ClassVar[str] = "fewer_iterations"
    value: float
    percent: float

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        goal = f"{show(self.metric, self.value)} {self.metric}"
        claimed = (
            self.text
            or f"{self.left} needs {self.percent:g} % fewer iterations than {self.right} to {goal}"
        )
        common = _common(arms, self.metric)
        if common is None:
            return _unknown(claimed, f"{self.metric} not recorded")
        rounds, values = common

        def reduction(pair: Sequence[NDArray[np.float64]]) -> float:
            """The reduction in percent, or a lower bound; NaN where `left` does not get there."""
            left, right = (self._first(rounds, one) for one in pair)
            return math.nan if left is None else 100 * (1 - left / (right or int(rounds[-1]) + 1))

        known = ~np.isnan(np.stack(values)).any(axis=(0, 1))
        if not known.any():
            return _unknown(claimed, "no seed got this far in every arm")
        means = [v[:, known].mean(axis=1) for v in values]
        left, right = (self._first(rounds, mean) for mean in means)
        last = int(rounds[-1]) + 1
        if left is None:
            measured = f"{self.left} does not reach it in {last} iterations"
            if right is None:
                return _unknown(claimed, f"neither reaches it in {last} iterations")
        else:
            each = [reduction([v[:, s] for v in values]) for s in np.flatnonzero(known)]
            median = "" if len(each) == 1 else f", median over seeds {np.nanmedian(each):.1f} %"
            more = "> " if right is None else ""
            there = f"more than {last}" if right is None else right
            measured = f"iteration {left} against {there}: {more}{reduction(means):.1f} %{median}"
            if right is None and reduction(means) < self.percent - 0.5:
                return _unknown(claimed, measured)
        return _verdict(claimed, measured, lambda v: reduction(v) >= self.percent - 0.5, values)

    def _first(self, rounds: NDArray[np.int64], mean: NDArray[np.float64]) -> int | None:
        reached = np.flatnonzero(mean >= self.value)
        return int(rounds[reached[0]]) + 1 if len(reached) else None


@dataclass(frozen=True, kw_only=True)
class Gain(Pair):
    """`left` leads `right` by so many points, in the last common round or by the best rounds of
    each.

    It holds when the measured lead has the claimed sign and at least half of the claimed size.
    """

    kind: ClassVar[str] = "gain"
    points: float
    score: str = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.score in ("last", "max"), "report.claims: gain.score", self.score, "last or max"
        )

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        where = "at the end" if self.score == "last" else "by the best round"
        size = f"{self.points:+g} points"
        said = (
            f"{self.text} ({size}; "
            if self.text
            else f"{self.left} leads {self.right} by {size} {where} ("
        )
        claimed = f"{said}half of it is enough)"
        pick = Arm.counted if self.score == "max" else Arm.curve
        common = _common(arms, self.metric, pick)
        if common is None:
            return _unknown(claimed, f"no common rounds with {self.metric}")
        if not all(arm.finished for arm in arms):
            return _unknown(claimed, _NOT_OVER)
        scores = [
            v[-1:] if self.score == "last" else np.fmax.reduce(v, axis=0)[None] for v in common[1]
        ]
        unit = factor(self.metric)

        def lead(pair: Sequence[NDArray[np.float64]]) -> float:
            return unit * float(pair[0][0] - pair[1][0])

        def enough(pair: Sequence[NDArray[np.float64]]) -> bool:
            return lead(pair) * self.points >= 0 and abs(lead(pair)) >= abs(self.points) / 2

        measured = f"{lead([np.nanmean(v, axis=1) for v in scores]):+.2f} points"
        return _verdict(claimed, measured, enough, scores)


@dataclass(frozen=True, kw_only=True)
class CostRatio(Pair):
    """`left` sends `ratio` times what `right` sends over all common rounds, within 2 percent."""

    kind: ClassVar[str] = "cost_ratio"
    metrics: ClassVar[Mapping[str, Any]] = dict.fromkeys(("models", "bytes"))
    ratio: float
    metric: str = "models"

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """See `Claim`."""
        claimed = (
            self.text or f"{self.left} sends {self.ratio:g} times the {self.metric} of {self.right}"
        )
        if len({arm.job.rounds for arm in arms}) > 1:
            return _unknown(claimed, "not the same number of iterations")
        common = _common(arms, self.metric)
        if common is None:
            return _unknown(claimed, f"{self.metric} not recorded")
        sent = [v.sum(axis=0, keepdims=True) for v in common[1]]
        total = [float(np.nanmean(v)) for v in sent]
        if not total[1]:
            return _unknown(claimed, f"{self.right} sends nothing")
        return _verdict(
            claimed,
            f"{total[0] / total[1]:.3g} times",
            lambda v: bool(abs(v[0][0] - self.ratio * v[1][0]) <= 0.02 * self.ratio * v[1][0]),
            sent,
        )


KINDS: dict[str, type[Any]] = {
    c.kind: c
    for c in (EqualUntil, OrderAtEnd, Overtakes, Reaches, AtLeast, FewerIterations, Gain, CostRatio)
}


def _within(setting: str, title: str) -> bool:
    """Whether every piece of a claim's setting begins a piece of a title."""
    pieces = title.split(SEPARATOR)
    return all(
        any(piece.startswith(wanted) for piece in pieces) for wanted in setting.split(SEPARATOR)
    )


def claim(entry: Mapping[str, Any]) -> Claim:
    """The claim a config entry describes.

    Raises:
        ConfigError: for an unknown kind, key or metric, or a missing key.
    """
    given: dict[str, Any] = {
        str(key): tuple(v) if isinstance(v, list) else v
        for key, v in entry.items()
        if v is not None
    }
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise ConfigError(f"report.claims: kind={kind} is not allowed: one of {', '.join(KINDS)}")
    known = [field.name for field in fields(KINDS[kind])]
    for key in given:
        if key not in known:
            raise ConfigError(
                f"report.claims: {kind}.{key} is not allowed: one of {', '.join(known)}"
            )
    try:
        made: Claim = KINDS[kind](**given)
    except TypeError as error:
        raise ConfigError(
            f"report.claims: {kind} is incomplete ({error}); it takes {', '.join(known)}"
        ) from error
    return made


def check(claims: Sequence[Claim], arms: Sequence[Arm]) -> list[tuple[str, Verdict]]:
    """Verdicts, each with the setting it was checked in ("" where there is one only).

    A claim names algorithms, names of arms or whole labels, and is checked in every setting in
    which all of its arms ran; an arm without a setting stands for itself in all of them.
    """
    checked = []
    for entry in claims:
        pools = [
            [a for a in arms if name in (a.label, a.name, a.algorithm)] for name in entry.names
        ]
        settings = dict.fromkeys(arm.setting for pool in pools for arm in pool if arm.setting) or {
            "": None
        }
        for setting in settings:
            present = [
                found
                for pool in pools
                if (found := next((a for a in pool if a.setting in ("", setting)), None))
            ]
            if len(present) < len(pools):
                continue
            title = setting or str(present[0].job.asked.get("case") or "")
            if _within(entry.setting, title):
                checked.append((setting if len(settings) > 1 else "", entry.check(present)))
    return checked

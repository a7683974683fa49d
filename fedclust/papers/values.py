"""Statements about values, which only runs of the published size can answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedclust.helpers.errors import counted, require
from fedclust.papers.published import interval, lead
from fedclust.papers.statements import Pair, Rounds, Single, Values, judged, unknown
from fedclust.report.arms import Arm
from fedclust.report.formats import factor, show
from fedclust.report.reference import Verdict
from fedclust.report.runs import Curve


@dataclass(frozen=True, kw_only=True)
class Reaches(Single):
    """An arm reaches a value, or falls to it where less is better, by a round; one later still
    holds, since figures are read by eye.
    """

    kind: ClassVar[str] = "reaches"
    about_value: ClassVar[bool] = True
    round: int

    def missing(self, arms: Sequence[Arm], rounds: Rounds, values: list[Values]) -> str:
        return ""

    def answer(self, rounds: Rounds, values: list[Values]) -> Verdict:
        values, value = [self.sign * one for one in values], self.sign * self.value
        reached = np.flatnonzero(np.nanmean(values[0], axis=1) >= value)
        if not len(reached) and rounds[-1] + 1 < self.round:
            return unknown(self.claimed, f"not run to round {self.round}")
        never = f"not in {counted(int(rounds[-1]) + 1, 'round')}"
        measured = f"round {rounds[reached[0]] + 1}" if len(reached) else never
        late = rounds <= self.round  # 0-based rounds: up to one round late
        return judged(self.claimed, measured, lambda v: bool((v[0][late] >= value).any()), values)

    def verdict(self, values: Sequence[Values]) -> Verdict:
        """The verdict where the first such rounds alone are known, [1, S] from 1, infinite where a
        seed never gets there: of the median seed, as their curve is not known.
        """
        middle = float(np.median(values[0]))
        there = math.isfinite(middle)
        measured = f"round {middle:g} in the median seed" if there else "not in the median seed"
        alone = judged(self.claimed, measured, lambda v: bool(v[0][0] <= self.round + 1), values)
        return replace(alone, holds=middle <= self.round + 1)

    @property
    def claimed(self) -> str:
        goal = show(self.metric, self.value)
        return self.text or f"{self.arm} reaches {goal} {self.metric} at round {self.round}"


@dataclass(frozen=True, kw_only=True)
class AtLeast(Single):
    """An arm ends with at least a value."""

    kind: ClassVar[str] = "at_least"
    about_value: ClassVar[bool] = True

    def verdict(self, values: Sequence[Values]) -> Verdict:
        measured = show(self.metric, float(np.nanmean(values[0])))
        return judged(self.claimed, measured, lambda v: bool(v[0][0] >= self.value), values)

    @property
    def claimed(self) -> str:
        goal = show(self.metric, self.value)
        return self.text or f"{self.arm} ends with {self.metric} of at least {goal}"


@dataclass(frozen=True, kw_only=True)
class FewerRounds(Pair):
    """`left` needs at least `percent` fewer rounds than `right` to reach `value` in the mean
    over seeds.

    The reduction is 1 - t_left / t_right with t the first such round, counted from 1; half a
    percent is allowed, since papers print whole percents. Where `right` never gets there, its last
    round bounds the reduction from below.
    """

    kind: ClassVar[str] = "fewer_rounds"
    about_value: ClassVar[bool] = True
    value: float
    percent: float

    @property
    def claimed(self) -> str:
        goal = f"{show(self.metric, self.value)} {self.metric}"
        fewer = f"{self.percent:g} % fewer rounds"
        return self.text or f"{self.left} needs {fewer} than {self.right} to {goal}"

    def missing(self, arms: Sequence[Arm], rounds: Rounds, values: list[Values]) -> str:
        known = ~np.isnan(np.stack(values)).any(axis=(0, 1))
        return "" if known.any() else "no seed got this far in every arm"

    def answer(self, rounds: Rounds, values: list[Values]) -> Verdict:
        def reduction(pair: Sequence[Values]) -> float:
            """The reduction in percent, or a lower bound; NaN where `left` does not get there."""
            left, right = (self._first(rounds, one) for one in pair)
            return math.nan if left is None else 100 * (1 - left / (right or int(rounds[-1]) + 1))

        known = ~np.isnan(np.stack(values)).any(axis=(0, 1))
        means = [v[:, known].mean(axis=1) for v in values]
        left, right = (self._first(rounds, mean) for mean in means)
        last = int(rounds[-1]) + 1
        if left is None:
            measured = f"{self.left} does not reach it in {counted(last, 'round')}"
            if right is None:
                return unknown(self.claimed, f"neither reaches it in {counted(last, 'round')}")
        else:
            each = [reduction([v[:, s] for v in values]) for s in np.flatnonzero(known)]
            several = len(each) > 1
            median = f", in the median seed {np.nanmedian(each):.1f} %" if several else ""
            more = "> " if right is None else ""
            there = f"more than {last}" if right is None else right
            measured = f"round {left} against {there}: {more}{reduction(means):.1f} %{median}"
            measured = f"on the mean curve {measured}" if several else measured
            if right is None and reduction(means) < self.percent - 0.5:
                return unknown(self.claimed, measured)
        return judged(self.claimed, measured, lambda v: reduction(v) >= self.percent - 0.5, values)

    def _first(self, rounds: Rounds, mean: Values) -> int | None:
        reached = np.flatnonzero(self.sign * mean >= self.sign * self.value)
        return int(rounds[reached[0]]) + 1 if len(reached) else None


@dataclass(frozen=True, kw_only=True)
class Gain(Pair):
    """`left` leads `right` by so many points, in the last common round or by the best rounds of
    each.

    The lead is a number like any other: it holds when the measured leads agree with the claimed one
    (`Published.agrees`), of one seed when it lies within a point. The interval is over all seeds,
    so that all of them or none count as agreeing. With 0 points it holds when there is a lead.
    """

    kind: ClassVar[str] = "gain"
    points: float
    score: str = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.score in ("last", "max"), "report.claims: gain.score", self.score, "last or max"
        )

    @property
    def about_value(self) -> bool:  # type: ignore[override]
        """Whether it takes runs of full size to judge it: not an order alone."""
        return self.points != 0

    @property
    def claimed(self) -> str:
        where = "at the end" if self.score == "last" else "by the best round"
        if not self.points:
            return self.text or f"{self.left} leads {self.right} {where}"
        size = f"{self.points:+g} points"
        if self.text:
            return f"{self.text} (claimed {size})"
        return f"{self.left} leads {self.right} by {size} {where}"

    def curve(self, arm: Arm) -> Curve | None:
        return arm.counted(self.metric) if self.score == "max" else arm.curve(self.metric)

    def scores(self, rounds: Rounds, values: list[Values]) -> list[Values]:
        """The last or the best values, [1, S]."""
        best = np.fmax if self.sign > 0 else np.fmin
        return [v[-1:] if self.score == "last" else best.reduce(v, axis=0)[None] for v in values]

    def verdict(self, values: Sequence[Values]) -> Verdict:
        unit = self.sign * factor(self.metric)

        each = (unit * (values[0] - values[1]))[0]
        each = each[~np.isnan(each)]
        if not len(each):
            return unknown(self.claimed, "no seed got this far in every arm")
        measured = f"{self.left} leads {self.right} by {each.mean():+.2f} points"
        if not self.points:
            return judged(
                self.claimed, measured, lambda v: bool(unit * (v[0][0] - v[1][0]) > 0), values
            )
        if wide := interval(float(each.std()), len(each)):
            measured += f", one more run ± {wide:.2f}"
        holds = lead(self.points).agrees(each)
        if len(each) == 1:
            holds = holds is None  # within the margin, see `outcome` for what one seed tells
        return Verdict(self.claimed, measured, holds, len(each) if holds else 0, len(each))


@dataclass(frozen=True, kw_only=True)
class CostRatio(Pair):
    """`left` sends `ratio` times what `right` sends over all common rounds, within 2 percent."""

    kind: ClassVar[str] = "cost_ratio"
    about_value: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Any]] = dict.fromkeys(("models", "bytes"))
    ratio: float
    metric: str = "models"

    @property
    def claimed(self) -> str:
        times = f"{self.ratio:g} times the {self.metric}"
        return self.text or f"{self.left} sends {times} of {self.right}"

    def missing(self, arms: Sequence[Arm], rounds: Rounds, values: list[Values]) -> str:
        if len({arm.run.rounds for arm in arms}) > 1:
            return "not the same number of rounds"
        return "" if np.nanmean(values[1].sum(axis=0)) else f"{self.right} sends nothing"

    def scores(self, rounds: Rounds, values: list[Values]) -> list[Values]:
        """What is sent in all rounds, [1, S]."""
        return [v.sum(axis=0, keepdims=True) for v in values]

    def verdict(self, values: Sequence[Values]) -> Verdict:
        total = [float(np.nanmean(v)) for v in values]
        return judged(
            self.claimed,
            f"{total[0] / total[1]:.3g} times",
            lambda v: bool(abs(v[0][0] - self.ratio * v[1][0]) <= 0.02 * self.ratio * v[1][0]),
            values,
        )

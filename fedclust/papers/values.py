"""Statements about values, which only runs of the published size can answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import counted, require
from fedclust.metrics import METRICS
from fedclust.papers.published import limit, rounding
from fedclust.papers.statements import (
    NOT_OVER,
    Pair,
    Single,
    judged,
    matched,
    unknown,
)
from fedclust.report.arms import Arm
from fedclust.report.formats import factor, show
from fedclust.report.reference import Verdict


def sign_of(metric: str) -> float:
    """1 where more of a metric is better, else -1."""
    return -1.0 if METRICS[metric].better == "lower" else 1.0


@dataclass(frozen=True, kw_only=True)
class Reaches(Single):
    """An arm reaches a value, or falls to it where less is better, by a round; one later still
    holds, since figures are read by eye.
    """

    kind: ClassVar[str] = "reaches"
    about_value: ClassVar[bool] = True
    round: int

    def check(self, arms: Sequence[Arm]) -> Verdict:
        common = matched(arms, self.metric)
        if common is None:
            return unknown(self._claimed, f"{self.metric} not recorded")
        rounds, values = common
        sign = sign_of(self.metric)
        values = [sign * one for one in values]
        value = sign * self.value
        reached = np.flatnonzero(np.nanmean(values[0], axis=1) >= value)
        if not len(reached) and rounds[-1] + 1 < self.round:
            return unknown(self._claimed, f"not run to round {self.round}")
        never = f"not in {counted(int(rounds[-1]) + 1, 'round')}"
        measured = f"round {rounds[reached[0]] + 1}" if len(reached) else never
        late = rounds <= self.round  # 0-based rounds: up to one round late
        return judged(self._claimed, measured, lambda v: bool((v[0][late] >= value).any()), values)

    def verdict(self, firsts: Sequence[NDArray[np.float64]]) -> Verdict:
        """The verdict where the first such rounds alone are known, [1, S] from 1, infinite where a
        seed never gets there: of the median seed, as their curve is not known.
        """
        middle = float(np.median(firsts[0]))
        there = math.isfinite(middle)
        measured = f"round {middle:g} in the median seed" if there else "not in the median seed"
        alone = judged(self._claimed, measured, lambda v: bool(v[0][0] <= self.round + 1), firsts)
        return replace(alone, holds=middle <= self.round + 1)

    @property
    def _claimed(self) -> str:
        """The claim in words."""
        goal = show(self.metric, self.value)
        return self.text or f"{self.arm} reaches {goal} {self.metric} at round {self.round}"


@dataclass(frozen=True, kw_only=True)
class AtLeast(Single):
    """An arm ends with at least a value."""

    kind: ClassVar[str] = "at_least"
    about_value: ClassVar[bool] = True

    def check(self, arms: Sequence[Arm]) -> Verdict:
        common = matched(arms, self.metric)
        if common is None:
            return unknown(self._claimed, f"{self.metric} not recorded")
        if not arms[0].finished:
            return unknown(self._claimed, NOT_OVER)
        return self.verdict([v[-1:] for v in common[1]])

    def verdict(self, last: Sequence[NDArray[np.float64]]) -> Verdict:
        """The verdict on the values at the end, [1, S]."""
        measured = show(self.metric, float(np.nanmean(last[0])))
        return judged(self._claimed, measured, lambda v: bool(v[0][0] >= self.value), last)

    @property
    def _claimed(self) -> str:
        """The claim in words."""
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

    def check(self, arms: Sequence[Arm]) -> Verdict:
        goal = f"{show(self.metric, self.value)} {self.metric}"
        claimed = (
            self.text
            or f"{self.left} needs {self.percent:g} % fewer rounds than {self.right} to {goal}"
        )
        common = matched(arms, self.metric)
        if common is None:
            return unknown(claimed, f"{self.metric} not recorded")
        rounds, values = common

        def reduction(pair: Sequence[NDArray[np.float64]]) -> float:
            """The reduction in percent, or a lower bound; NaN where `left` does not get there."""
            left, right = (self._first(rounds, one) for one in pair)
            return math.nan if left is None else 100 * (1 - left / (right or int(rounds[-1]) + 1))

        known = ~np.isnan(np.stack(values)).any(axis=(0, 1))
        if not known.any():
            return unknown(claimed, "no seed got this far in every arm")
        means = [v[:, known].mean(axis=1) for v in values]
        left, right = (self._first(rounds, mean) for mean in means)
        last = int(rounds[-1]) + 1
        if left is None:
            measured = f"{self.left} does not reach it in {counted(last, 'round')}"
            if right is None:
                return unknown(claimed, f"neither reaches it in {counted(last, 'round')}")
        else:
            each = [reduction([v[:, s] for v in values]) for s in np.flatnonzero(known)]
            several = len(each) > 1
            median = f", in the median seed {np.nanmedian(each):.1f} %" if several else ""
            more = "> " if right is None else ""
            there = f"more than {last}" if right is None else right
            measured = f"round {left} against {there}: {more}{reduction(means):.1f} %{median}"
            measured = f"on the mean curve {measured}" if several else measured
            if right is None and reduction(means) < self.percent - 0.5:
                return unknown(claimed, measured)
        return judged(claimed, measured, lambda v: reduction(v) >= self.percent - 0.5, values)

    def _first(self, rounds: NDArray[np.int64], mean: NDArray[np.float64]) -> int | None:
        sign = sign_of(self.metric)
        reached = np.flatnonzero(sign * mean >= sign * self.value)
        return int(rounds[reached[0]]) + 1 if len(reached) else None


@dataclass(frozen=True, kw_only=True)
class Gain(Pair):
    """`left` leads `right` by so many points, in the last common round or by the best rounds of
    each.

    It holds when the measured lead lies within `limit` of the claimed one; with 0 points, when
    there is a lead.
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
    def _claimed(self) -> str:
        """The claim in words, with its size."""
        where = "at the end" if self.score == "last" else "by the best round"
        if not self.points:
            return self.text or f"{self.left} leads {self.right} {where}"
        size = f"{self.points:+g} points"
        if self.text:
            return f"{self.text} (claimed {size})"
        return f"{self.left} leads {self.right} by {size} {where}"

    def check(self, arms: Sequence[Arm]) -> Verdict:
        pick = Arm.counted if self.score == "max" else Arm.curve
        best = np.fmax if sign_of(self.metric) > 0 else np.fmin
        common = matched(arms, self.metric, pick)
        if common is None:
            return unknown(self._claimed, f"no common rounds with {self.metric}")
        if not all(arm.finished for arm in arms):
            return unknown(self._claimed, NOT_OVER)
        return self.verdict(
            [v[-1:] if self.score == "last" else best.reduce(v, axis=0)[None] for v in common[1]]
        )

    def verdict(self, scores: Sequence[NDArray[np.float64]]) -> Verdict:
        """The verdict on the scores of `left` and `right`, [1, S] each."""
        unit = sign_of(self.metric) * factor(self.metric)

        def lead(pair: Sequence[NDArray[np.float64]]) -> float:
            return unit * float(pair[0][0] - pair[1][0])

        each = unit * (scores[0] - scores[1])
        each = each[~np.isnan(each)]
        last = rounding(str(self.points))
        allowed = limit(float(each.std()), len(each), rounding=last) if len(each) else 0.0

        def enough(pair: Sequence[NDArray[np.float64]]) -> bool:
            if not self.points:
                return lead(pair) > 0
            return abs(lead(pair) - self.points) <= allowed + 1e-9

        size = lead([np.nanmean(v, axis=1) for v in scores])
        measured = f"{self.left} leads {self.right} by {size:+.2f} points"
        if self.points:
            measured += f", {allowed:.2f} allowed"
        return judged(self._claimed, measured, enough, scores)


@dataclass(frozen=True, kw_only=True)
class CostRatio(Pair):
    """`left` sends `ratio` times what `right` sends over all common rounds, within 2 percent."""

    kind: ClassVar[str] = "cost_ratio"
    about_value: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Any]] = dict.fromkeys(("models", "bytes"))
    ratio: float
    metric: str = "models"

    def check(self, arms: Sequence[Arm]) -> Verdict:
        claimed = (
            self.text or f"{self.left} sends {self.ratio:g} times the {self.metric} of {self.right}"
        )
        if len({arm.run.rounds for arm in arms}) > 1:
            return unknown(claimed, "not the same number of rounds")
        common = matched(arms, self.metric)
        if common is None:
            return unknown(claimed, f"{self.metric} not recorded")
        sent = [v.sum(axis=0, keepdims=True) for v in common[1]]
        total = [float(np.nanmean(v)) for v in sent]
        if not total[1]:
            return unknown(claimed, f"{self.right} sends nothing")
        return judged(
            claimed,
            f"{total[0] / total[1]:.3g} times",
            lambda v: bool(abs(v[0][0] - self.ratio * v[1][0]) <= 0.02 * self.ratio * v[1][0]),
            sent,
        )

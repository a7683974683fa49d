"""Statements about the order of arms, which runs of any size can confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedclust.metrics import METRICS
from fedclust.papers.statements import NOT_OVER, Pair, Statement, judged, matched, unknown
from fedclust.report.arms import Arm
from fedclust.report.formats import in_percent, show
from fedclust.report.reference import Verdict


@dataclass(frozen=True, kw_only=True)
class EqualUntil(Pair):
    """Two arms agree through a round, to `tolerance` in the metric's unit (0.0005: they print
    alike).
    """

    kind: ClassVar[str] = "equal_until"
    round: int
    tolerance: float = 5e-4

    @property
    def _claimed(self) -> str:
        return self.text or f"{self.left} equals {self.right} through round {self.round}"

    def check(self, arms: Sequence[Arm]) -> Verdict:
        common = matched(arms, self.metric)
        if common is None or common[0][-1] + 1 < self.round:
            return unknown(self._claimed, f"not run to round {self.round}")
        if common[0][0] >= self.round:
            return unknown(self._claimed, f"not evaluated up to round {self.round}")
        return self.verdict([v[common[0] < self.round] for v in common[1]])

    def verdict(self, values: Sequence[NDArray[np.float64]]) -> Verdict:
        """The verdict on the values of `left` and `right` in some rounds, [R, S] each."""
        gap = float(np.nanmax(np.abs(values[0] - values[1])))
        size = f"{100 * gap:.2f} points" if in_percent(self.metric) else show(self.metric, gap)
        measured = f"largest difference {size}"
        return judged(
            self._claimed,
            measured,
            lambda v: bool(np.abs(v[0] - v[1]).max() <= self.tolerance),
            values,
        )


@dataclass(frozen=True, kw_only=True)
class OrderAtEnd(Statement):
    """The arms end in this order, best first."""

    kind: ClassVar[str] = "order_at_end"
    best_to_worst: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.best_to_worst

    @property
    def _better(self) -> str:
        return " < " if METRICS[self.metric].better == "lower" else " > "

    @property
    def _claimed(self) -> str:
        return self.text or f"{self._better.join(self.best_to_worst)} at the end ({self.metric})"

    def check(self, arms: Sequence[Arm]) -> Verdict:
        common = matched(arms, self.metric)
        if common is None:
            return unknown(self._claimed, f"no common rounds with {self.metric}")
        if not all(arm.finished for arm in arms):
            return unknown(self._claimed, NOT_OVER)
        return self.verdict([v[-1:] for v in common[1]])

    def verdict(self, values: Sequence[NDArray[np.float64]]) -> Verdict:
        """The verdict on the last values of the arms, [1, S] each."""
        sign = -1.0 if METRICS[self.metric].better == "lower" else 1.0
        means = [float(np.nanmean(v)) for v in values]
        ranked = sorted(zip(self.names, means, strict=True), key=lambda pair: -sign * pair[1])
        shown = [f"{name} {show(self.metric, value)}" for name, value in ranked]
        signs = [" = " if a == b else self._better for (_, a), (_, b) in pairwise(ranked)]
        measured = shown[0] + "".join(map("".join, zip(signs, shown[1:], strict=True)))
        return judged(
            self._claimed,
            measured,
            lambda v: all(sign * a[0] > sign * b[0] for a, b in pairwise(v)),
            values,
        )


@dataclass(frozen=True, kw_only=True)
class Overtakes(Pair):
    """`left` is behind `right` at the first round of `between` and ahead at the second."""

    kind: ClassVar[str] = "overtakes"
    between: tuple[int, int]

    @property
    def _claimed(self) -> str:
        first, second = self.between
        return (
            self.text or f"{self.left} overtakes {self.right} between rounds {first} and {second}"
        )

    def check(self, arms: Sequence[Arm]) -> Verdict:
        first, second = self.between
        common = matched(arms, self.metric)
        wanted = [first - 1, second - 1]
        if common is None or not np.isin(wanted, common[0]).all():
            return unknown(self._claimed, f"rounds {first} and {second} not both evaluated")
        return self.verdict([v[np.isin(common[0], wanted)] for v in common[1]])

    def verdict(self, values: Sequence[NDArray[np.float64]]) -> Verdict:
        """The verdict on the values of `left` and `right` at both rounds, [2, S] each."""
        sign = -1.0 if METRICS[self.metric].better == "lower" else 1.0
        values = [sign * one for one in values]
        lead = np.nanmean(values[0] - values[1], axis=1)
        unit = " points" if in_percent(self.metric) else ""
        factor = 100 if unit else 1
        before, after = (f"{factor * value:+.2f}{unit}" for value in lead)
        measured = f"{self.left} leads by {before}, then {after}"
        return judged(
            self._claimed, measured, lambda v: bool(v[0][0] < v[1][0] and v[0][1] > v[1][1]), values
        )

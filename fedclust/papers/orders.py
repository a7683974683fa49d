"""Statements about the order of arms, which runs of any size can confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from fedclust.papers.statements import Pair, Rounds, Statement, Values, judged
from fedclust.report.arms import Arm
from fedclust.report.formats import in_percent, show
from fedclust.report.reference import Verdict


@dataclass(frozen=True, kw_only=True)
class EqualUntil(Pair):
    """Two arms agree through a round, to `tolerance` in the metric's unit."""

    kind: ClassVar[str] = "equal_until"
    round: int
    tolerance: float = 5e-4

    @property
    def claimed(self) -> str:
        return self.text or f"{self.left} equals {self.right} through round {self.round}"

    def missing(self, arms: Sequence[Arm], rounds: Rounds, values: list[Values]) -> str:
        if rounds[-1] + 1 < self.round:
            return f"not run to round {self.round}"
        return f"not evaluated up to round {self.round}" if rounds[0] >= self.round else ""

    def scores(self, rounds: Rounds, values: list[Values]) -> list[Values]:
        """The values in the rounds before, [R, S]."""
        return [v[rounds < self.round] for v in values]

    def verdict(self, values: Sequence[Values]) -> Verdict:
        gap = float(np.nanmax(np.abs(values[0] - values[1])))
        size = f"{100 * gap:.2f} points" if in_percent(self.metric) else show(self.metric, gap)
        return judged(
            self.claimed,
            f"largest difference {size}",
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
        return " > " if self.sign > 0 else " < "

    @property
    def claimed(self) -> str:
        return self.text or f"{self._better.join(self.best_to_worst)} at the end ({self.metric})"

    def verdict(self, values: Sequence[Values]) -> Verdict:
        sign = self.sign
        means = [float(np.nanmean(v)) for v in values]
        ranked = sorted(zip(self.names, means, strict=True), key=lambda pair: -sign * pair[1])
        shown = [f"{name} {show(self.metric, value)}" for name, value in ranked]
        signs = [" = " if a == b else self._better for (_, a), (_, b) in pairwise(ranked)]
        measured = shown[0] + "".join(map("".join, zip(signs, shown[1:], strict=True)))
        return judged(
            self.claimed,
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
    def claimed(self) -> str:
        both = "{} and {}".format(*self.between)
        return self.text or f"{self.left} overtakes {self.right} between rounds {both}"

    def missing(self, arms: Sequence[Arm], rounds: Rounds, values: list[Values]) -> str:
        there = np.isin(np.array(self.between) - 1, rounds).all()
        return "" if there else "rounds {} and {} not both evaluated".format(*self.between)

    def scores(self, rounds: Rounds, values: list[Values]) -> list[Values]:
        """The values at both rounds, [2, S]."""
        return [v[np.isin(rounds + 1, self.between)] for v in values]

    def verdict(self, values: Sequence[Values]) -> Verdict:
        values = [self.sign * one for one in values]
        lead = np.nanmean(values[0] - values[1], axis=1)
        unit = " points" if in_percent(self.metric) else ""
        factor = 100 if unit else 1
        before, after = (f"{factor * value:+.2f}{unit}" for value in lead)
        measured = f"{self.left} leads by {before}, then {after}"
        return judged(
            self.claimed, measured, lambda v: bool(v[0][0] < v[1][0] and v[0][1] > v[1][1]), values
        )

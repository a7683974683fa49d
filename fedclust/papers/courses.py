"""Statements about the course of curves, which runs of any size can confirm: one arm against
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedclust.metrics import METRICS
from fedclust.papers.statements import NOT_OVER, Statement, judged, matched, unknown
from fedclust.report.arms import Arm
from fedclust.report.formats import factor, show
from fedclust.report.reference import Verdict

Values = NDArray[np.float64]
Rounds = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Extreme(Statement):
    """`arm` scores higher than each of the `others`; the score is that of the subclass."""

    words: ClassVar[str]
    arm: str
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.arm, *self.others)

    def check(self, arms: Sequence[Arm]) -> Verdict:
        claimed = self.text or f"{self.arm} {self.words} ({self.metric}): {', '.join(self.others)}"
        common = matched(arms, self.metric)
        if common is None:
            return unknown(claimed, f"no common rounds with {self.metric}")
        rounds, values = common
        missing = self.missing(arms, rounds)
        if missing:
            return unknown(claimed, missing)
        scores = [self.score(rounds, v)[None] for v in values]
        means = (float(np.nanmean(score)) for score in scores)
        said = (f"{name} {self.shown(mean)}" for name, mean in zip(self.names, means, strict=True))
        return judged(
            claimed, ", ".join(said), lambda v: bool(v[0][0] > max(o[0] for o in v[1:])), scores
        )

    def missing(self, arms: Sequence[Arm], rounds: Rounds) -> str:
        """What the runs lack to tell; "" for nothing."""
        return "" if all(arm.finished for arm in arms) else NOT_OVER

    def score(self, rounds: Rounds, values: Values) -> Values:
        """Of every seed [S], from values [R, S]; higher is what is claimed."""
        raise NotImplementedError

    def shown(self, score: float) -> str:
        """A score in words."""
        return show(self.metric, self.sign * score)

    @property
    def sign(self) -> float:
        """1 where more of the metric is better, else -1."""
        return -1.0 if METRICS[self.metric].better == "lower" else 1.0


@dataclass(frozen=True, kw_only=True)
class BestAtEnd(Extreme):
    """The best value in the last common round."""

    kind: ClassVar[str] = "best_at_end"
    words: ClassVar[str] = "ends better than the others"

    def score(self, rounds: Rounds, values: Values) -> Values:
        last: Values = self.sign * values[-1]
        return last


@dataclass(frozen=True, kw_only=True)
class WorstAtEnd(BestAtEnd):
    """The worst value in the last common round."""

    kind: ClassVar[str] = "worst_at_end"
    words: ClassVar[str] = "ends worse than the others"

    @property
    def sign(self) -> float:
        """That of the other direction."""
        return -super().sign


@dataclass(frozen=True, kw_only=True)
class BestEarly(Extreme):
    """The best mean over the first `round` rounds: faster in the beginning."""

    kind: ClassVar[str] = "best_early"
    words: ClassVar[str] = "is better than the others at first"
    round: int

    def missing(self, arms: Sequence[Arm], rounds: Rounds) -> str:
        if rounds[0] >= self.round:
            return f"not evaluated up to round {self.round}"
        return "" if rounds[-1] + 1 >= self.round else f"not run to round {self.round}"

    def score(self, rounds: Rounds, values: Values) -> Values:
        mean: Values = self.sign * values[rounds < self.round].mean(axis=0)
        return mean


@dataclass(frozen=True, kw_only=True)
class Steadiest(Extreme):
    """The least mean change from one evaluation to the next, either way."""

    kind: ClassVar[str] = "steadiest"
    words: ClassVar[str] = "changes less from round to round than the others"

    def score(self, rounds: Rounds, values: Values) -> Values:
        change: Values = -np.abs(np.diff(values, axis=0)).mean(axis=0)
        return change

    def shown(self, score: float) -> str:
        return f"±{-score * factor(self.metric):.2g}"


@dataclass(frozen=True, kw_only=True)
class SettlesFirst(Extreme):
    """The earliest round from which on the value stays within `within` of the last one."""

    kind: ClassVar[str] = "settles_first"
    words: ClassVar[str] = "settles earlier than the others"
    within: float = 0.01

    def score(self, rounds: Rounds, values: Values) -> Values:
        away = np.abs(values - values[-1]) > self.within
        after = len(away) - away[::-1].argmax(axis=0)  # place behind the last one that is away
        place = np.where(away.any(axis=0), after, 0)
        settled: Values = np.where(np.isnan(values[-1]), np.nan, -(rounds[place] + 1.0))
        return settled

    def shown(self, score: float) -> str:
        return f"round {-score:.0f}"


@dataclass(frozen=True, kw_only=True)
class SpreadShrinks(Statement):
    """The standard deviation over seeds is smaller in the second half of the rounds, on the
    mean.
    """

    kind: ClassVar[str] = "spread_shrinks"
    arm: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.arm,)

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """Seeds cannot be counted, since it takes all of them."""
        claimed = self.text or f"{self.arm}: seeds differ less as time goes on ({self.metric})"
        common = matched(arms, self.metric)
        if common is None:
            return unknown(claimed, f"{self.metric} not recorded")
        values = common[1][0]
        if not arms[0].finished or values.shape[1] < 2 or len(values) < 2:
            return unknown(claimed, NOT_OVER if not arms[0].finished else "one seed only")
        spread = np.nanstd(values, axis=1)
        early, late = (float(part.mean()) for part in np.array_split(spread, 2))
        unit = factor(self.metric)
        return Verdict(claimed, f"±{early * unit:.2g}, then ±{late * unit:.2g}", late < early, 0, 0)

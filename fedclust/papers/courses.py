"""Statements about the course of curves, which runs of any size can confirm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedclust.papers.statements import Rounds, Statement, Values, judged
from fedclust.report.arms import Arm
from fedclust.report.formats import factor, show
from fedclust.report.reference import Verdict


@dataclass(frozen=True, kw_only=True)
class Extreme(Statement):
    """`arm` scores higher than each of the `others`; the score is that of the subclass."""

    words: ClassVar[str]
    arm: str
    others: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.arm, *self.others)

    @property
    def claimed(self) -> str:
        return self.text or f"{self.arm} {self.words} ({self.metric}): {', '.join(self.others)}"

    def scores(self, rounds: Rounds, values: list[Values]) -> list[Values]:
        return [self.score(rounds, v)[None] for v in values]

    def verdict(self, values: Sequence[Values]) -> Verdict:
        means = (float(np.nanmean(score)) for score in values)
        each = (f"{name} {self.shown(mean)}" for name, mean in zip(self.names, means, strict=True))
        return judged(
            self.claimed,
            ", ".join(each),
            lambda v: bool(v[0][0] > max(o[0] for o in v[1:])),
            values,
        )

    def score(self, rounds: Rounds, values: Values) -> Values:
        """Of every seed [S], from values [R, S]; higher is what is claimed."""
        raise NotImplementedError

    def shown(self, score: float) -> str:
        """A score in words."""
        return show(self.metric, self.sign * score)


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

    def missing(self, arms: Sequence[Arm], rounds: Rounds, values: list[Values]) -> str:
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
    """The standard deviation over seeds is on the mean smaller in the second half of the rounds."""

    kind: ClassVar[str] = "spread_shrinks"
    arm: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.arm,)

    @property
    def claimed(self) -> str:
        return self.text or f"{self.arm}: seeds differ less as time goes on ({self.metric})"

    def missing(self, arms: Sequence[Arm], rounds: Rounds, values: list[Values]) -> str:
        few = "one seed only" if min(values[0].shape) < 2 else ""
        return super().missing(arms, rounds, values) or few

    def answer(self, rounds: Rounds, values: list[Values]) -> Verdict:
        """Seeds cannot be counted, since it takes all of them."""
        spread = np.nanstd(values[0], axis=1)
        early, late = (factor(self.metric) * float(h.mean()) for h in np.array_split(spread, 2))
        return Verdict(self.claimed, f"±{early:.2g}, then ±{late:.2g}", late < early, 0, 0)

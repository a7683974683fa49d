"""The base of all claims about arms: values that can be compared, and the verdict on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import require
from fedclust.metrics import METRICS, meaning
from fedclust.report.arms import Arm
from fedclust.report.reference import Verdict
from fedclust.report.runs import Curve
from fedclust.report.spec import check_value

Values = NDArray[np.float64]
Rounds = NDArray[np.int64]


def matched(curves: Sequence[Curve | None]) -> tuple[Rounds, list[Values]] | None:
    """Rounds [R] and, per curve, values [R, S] that all of them have, seeds matched; None where
    there are none.
    """
    present = [curve for curve in curves if curve is not None]
    if len(present) < len(curves):
        return None
    seeds = [s for s in present[0].seeds if all(s in c.seeds for c in present)]
    rounds = np.array(
        sorted(set.intersection(*(set(c.rounds.tolist()) for c in present))), dtype=np.int64
    )
    if not seeds or not len(rounds):
        return None
    return rounds, [
        c.values[np.isin(c.rounds, rounds)][:, [c.seeds.index(s) for s in seeds]] for c in present
    ]


def unknown(claimed: str, why: str) -> Verdict:
    """The verdict on a claim that the runs cannot answer."""
    return Verdict(claimed, why, None, 0, 0)


def judged(
    claimed: str,
    measured: str,
    test: Callable[[list[Values]], bool],
    values: Sequence[Values],
) -> Verdict:
    """`test` on the means over seeds and on every seed alone; values per arm [R, S].

    A seed that stopped early in one of the arms is left out.
    """
    complete = ~np.isnan(np.stack(list(values))).any(axis=(0, 1))
    if not complete.any():
        return unknown(claimed, "no seed got this far in every arm")
    alone = [test([v[:, s] for v in values]) for s in np.flatnonzero(complete)]
    means = [v[:, complete].mean(axis=1) for v in values]
    return Verdict(claimed, measured, test(means), sum(alone), len(alone))


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The keys of every claim.

    Attributes:
        metric: what it is about.
        text: the claim in words, in place of the words made from its numbers.
        setting: the claim is checked in settings of which this holds: every piece begins a piece of
            the title, as "FEMNIST, swap all" does of "FEMNIST-MLP, swap all"; "" for all.
    """

    metrics: ClassVar[Mapping[str, Any]] = METRICS  # those that the kind allows
    about_value: ClassVar[bool] = False  # whether it takes runs of full size to judge it
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
        value = getattr(self, "value", None)
        if value is not None:
            check_value(value, self.metric, "report.claims: value")

    @property
    def claimed(self) -> str:
        """The claim in words."""
        raise NotImplementedError

    @property
    def sign(self) -> float:
        """1 where more of the metric is better, else -1."""
        return -1.0 if METRICS[self.metric].better == "lower" else 1.0

    def curve(self, arm: Arm) -> Curve | None:
        """What it compares of an arm."""
        return arm.curve(self.metric)

    def check(self, arms: Sequence[Arm]) -> Verdict:
        """The verdict on arms in the order of `names`."""
        common = matched([self.curve(arm) for arm in arms])
        if common is None:
            alone = len(arms) == 1
            why = f"{self.metric} not recorded" if alone else f"no common rounds with {self.metric}"
            return unknown(self.claimed, why)
        if missing := self.missing(arms, *common):
            return unknown(self.claimed, missing)
        return self.answer(*common)

    def missing(self, arms: Sequence[Arm], rounds: Rounds, values: list[Values]) -> str:
        """What the arms lack to tell, of rounds [R] and values [R, S] of each; "" for nothing."""
        return "" if all(arm.finished for arm in arms) else "not run to the end"

    def answer(self, rounds: Rounds, values: list[Values]) -> Verdict:
        """The verdict on values [R, S] of every arm."""
        return self.verdict(self.scores(rounds, values))

    def scores(self, rounds: Rounds, values: list[Values]) -> list[Values]:
        """What decides of the values [R, S] of every arm: those in the last round, [1, S]."""
        return [v[-1:] for v in values]

    def verdict(self, values: Sequence[Values]) -> Verdict:
        """The verdict on the `scores` of every arm."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Pair(Statement):
    """A claim about two arms."""

    left: str
    right: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, kw_only=True)
class Single(Statement):
    """A claim about one arm and a value."""

    arm: str
    value: float

    @property
    def names(self) -> tuple[str, ...]:
        return (self.arm,)

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

NOT_OVER = "not run to the end"


def matched(
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


def unknown(claimed: str, why: str) -> Verdict:
    """The verdict on a claim that the runs cannot answer."""
    return Verdict(claimed, why, None, 0, 0)


def judged(
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

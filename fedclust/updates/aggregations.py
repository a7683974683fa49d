"""Means of updates that bad ones move less than the plain mean, inside every cluster.

An update is what a participant made of a model, minus the model; c of them are to be combined, with
shares p_i that add up to 1 (`common.aggregation`: by examples, or equal). Shares by examples let a
client that lies about its number weigh as much as it likes; `common.aggregation=uniform` does not.
`hostile` and `trim` are shares of a cluster's participants, so that they suit clusters of any size.
A rule that needs more participants than a cluster has takes the median there; so it does where a
positive share of them, rounded down, is nobody, and the rule would resist nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from fedclust.core.server import median
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Positive, Range, Ranged
from fedclust.helpers.rounding import rounded_down

Minority = Annotated[float, Range(0, 1)]  # below 1/2, which a message of its own says
Often = Annotated[int, Range(1, 10_000)]


class Robust(Ranged):
    """A rule that suits a cohort of any size."""

    def check(self, cohort: int) -> None:
        pass

    def is_short(self, count: int) -> bool:
        return False

    @staticmethod
    def counts_alike(arguments: Mapping[str, Any]) -> str:  # noqa: ARG004
        """Why the shares have no effect with these arguments, in words; "" where they have one."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Mean(Robust):
    """No rule: None leaves the plain mean of `fedclust.helpers.ops.mean_of`."""

    def __call__(self, updates: Tensor, share: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Median(Robust):
    """The median of every coordinate, whatever the shares: Yin, Chen, Ramchandran, Bartlett, ICML
    2018, arXiv:1803.01498. Of an even number, the mean of the middle two.
    """

    @staticmethod
    def counts_alike(arguments: Mapping[str, Any]) -> str:  # noqa: ARG004
        return "aggregation=median counts every participant alike"

    def __call__(self, updates: Tensor, share: Tensor) -> Tensor | None:
        return median(updates)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Robust):
    """The mean of every coordinate without its extremes: Yin et al. 2018, arXiv:1803.01498. With
    fewer than 1 / trim participants, of whom it would drop nobody, a cluster takes the median.
    """

    # share of the participants that is dropped at each end, rounded down; 0 is the plain mean to
    # the bit. What is left is weighted by the shares.
    trim: Minority = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.trim < 0.5, "aggregation.trim", self.trim, "below 0.5, or nobody is left")

    def is_short(self, count: int) -> bool:
        return self.trim > 0 and rounded_down(self.trim, count) == 0

    def __call__(self, updates: Tensor, share: Tensor) -> Tensor | None:
        count = len(updates)
        if self.is_short(count):
            return median(updates)
        if self.trim == 0:
            return None
        cut = rounded_down(self.trim, count)
        ordered, place = updates.sort(0)
        kept = share[place[cut : count - cut]]  # [c - 2 cut, P]
        return (ordered[cut : count - cut] * kept).sum(0) / kept.sum(0)


@dataclass(frozen=True, kw_only=True)
class Krum(Robust):
    """The updates that lie nearest to the others: Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS
    2017.

    The score of an update is the sum of the squared distances to its c - m - 2 nearest others. With
    fewer than 2 m + 3 participants, and with fewer than 1 / hostile, which makes m = 0, a cluster
    takes the median.
    """

    hostile: Minority = 0.2  # share of the participants that may be hostile; m of c, rounded down
    # how many updates of least score are averaged, by the shares: 1 is Krum, more are Multi-Krum;
    # null: c - m - 2, at least 1
    chosen: AtLeastOne | None = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "below 0.5: more than half cannot be outvoted"
        require(self.hostile < 0.5, "aggregation.hostile", self.hostile, allowed)

    @staticmethod
    def counts_alike(arguments: Mapping[str, Any]) -> str:
        return "aggregation.chosen=1 takes one update whole" if arguments["chosen"] == 1 else ""

    def is_short(self, count: int) -> bool:
        m = rounded_down(self.hostile, count)
        return count < 2 * m + 3 or (self.hostile > 0 and m == 0)

    def check(self, cohort: int) -> None:
        """Refuse a cohort below 2 m + 3, before round 0; a cluster below it takes the median."""
        m = rounded_down(self.hostile, cohort)
        allowed = (
            f"so that 2 m + 3 participants take part: of the {cohort} in a round m = {m} may be "
            "hostile; take more clients, or another aggregation"
        )
        require(cohort >= 2 * m + 3, "aggregation.hostile", self.hostile, allowed)

    def __call__(self, updates: Tensor, share: Tensor) -> Tensor | None:
        count = len(updates)
        if self.is_short(count):
            return median(updates)
        near = count - rounded_down(self.hostile, count) - 2
        apart = torch.stack([(updates - one).square().sum(1) for one in updates])
        apart.fill_diagonal_(torch.inf)  # oneself is no other
        score = apart.sort(1).values[:, :near].sum(1)
        best = score.argsort(stable=True)[: near if self.chosen is None else self.chosen]
        part = share[best] / share[best].sum()
        return part @ updates[best]


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Robust):
    """The point of least weighted sum of distances: RFA, Pillutla, Kakade, Harchaoui 2022,
    arXiv:1912.13445; smoothed Weiszfeld steps from the mean.
    """

    # at most so many steps; fewer where a step changes less than a millionth
    iterations: Often = 100
    smoothing: Positive = 1e-6  # nu of the paper, the least distance that counts

    def __call__(self, updates: Tensor, share: Tensor) -> Tensor | None:
        middle = share @ updates
        for _ in range(self.iterations):
            weight = share / (updates - middle).norm(dim=1).clamp(min=self.smoothing)
            after = weight @ updates / weight.sum()
            step, middle = (after - middle).norm(), after
            if step <= 1e-6 * middle.norm():
                break
        return middle


@dataclass(frozen=True, kw_only=True)
class CenteredClipping(Robust):
    """The mean of what is left of the updates within a distance from a centre: Karimireddy, He,
    Jaggi, ICML 2021, arXiv:2012.10333. The centre begins at 0, the model itself, in every round; in
    the paper at the last aggregate, and its workers send their momentum.
    """

    radius: Positive | None = None  # tau of the paper; null: the median norm of the updates
    iterations: Often = 3  # how often the centre is moved

    def __call__(self, updates: Tensor, share: Tensor) -> Tensor | None:
        radius, centre = _radius(self.radius, updates), torch.zeros_like(updates[0])
        for _ in range(self.iterations):
            centre = centre + share @ _within(updates - centre, radius)
        return centre


@dataclass(frozen=True, kw_only=True)
class NormBound(Robust):
    """The mean of updates that are shortened to a bound: Sun, Kairouz, Suresh, McMahan 2019,
    arXiv:1911.07963.
    """

    # of an update's norm; null: the median norm of the updates. Where no update is longer, it is
    # the plain mean to the bit.
    bound: Positive | None = None

    def __call__(self, updates: Tensor, share: Tensor) -> Tensor | None:
        bound = _radius(self.bound, updates)
        if bool((updates.norm(dim=1) <= bound).all()):
            return None
        return share @ _within(updates, bound)


def _radius(given: float | None, updates: Tensor) -> float:
    """A norm, or the median one of the updates [C, P]."""
    return float(median(updates.norm(dim=1, keepdim=True))) if given is None else given


def _within(updates: Tensor, radius: float) -> Tensor:
    """Updates [C, P], those longer than `radius` shortened to it."""
    norm = updates.norm(dim=1, keepdim=True)
    part: Tensor = (radius / norm.clamp(min=1e-300)).clamp(max=1.0)
    return part * updates

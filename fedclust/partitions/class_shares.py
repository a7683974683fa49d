"""Clusters that share their classes unequally: label skews 2 and 3 of CLoVE (arXiv 2506.22427)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.ranges import AtLeastZero, Positive, Probability
from fedclust.helpers.rng import Stream
from fedclust.partitions.class_subsets import ClassSubsets
from fedclust.partitions.cut import Rows
from fedclust.partitions.shares import equal_shares

_SMALL = 0.05  # from here on a draw of 0 is less likely than 1e-15
_MORE = 0.05  # by which the reserve grows


@dataclass(frozen=True, kw_only=True)
class ClassShares(ClassSubsets):
    """As `ClassSubsets`, but of a class a reserve is divided equally among its owners and the rest
    by a draw from Dirichlet(alpha, …, alpha).

    Where a cluster ends up with too few training examples, the reserve grows by 0.05 and all is
    drawn again. Differs from the released code, which draws the test shares apart from the training
    shares: here, both are the same. There, the cap holds for test examples too.

    Attributes:
        alpha: concentration of the Dirichlet distribution.
        reserve: part of a class that its owners share equally, in [0, 1].
        min_per_cluster: training examples of a cluster.
        cluster_sizes: equal only; the shares decide.
    """

    alpha: Positive = 0.5
    reserve: Probability = 0.1
    min_per_cluster: AtLeastZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes, allowed = self.cluster_sizes, "equal, since the shares decide on the sizes"
        require(sizes == "equal", "partition.cluster_sizes", sizes, allowed)

    def divided(self, owns: npt.NDArray[np.float64], supply: Rows, stream: Stream) -> Rows:
        """Training examples of every class for every cluster, [G, Y]. Raises `ConfigError` if a
        cluster has too few even if its classes are shared equally.
        """
        rng, reserve = stream.numpy(), self.reserve
        owners = np.maximum(owns.sum(0), 1)
        while True:
            drawn = dirichlet(self.alpha, owns, rng)
            shares = equal_shares(reserve * owns / owners + (1 - reserve) * drawn, supply)
            if shares.sum(1).min() >= self.min_per_cluster:
                return shares
            if reserve >= 1:
                raise ConfigError(
                    f"partition.min_per_cluster={self.min_per_cluster} is not allowed: a cluster "
                    f"has {int(shares.sum(1).min())} even if its classes are shared equally"
                )
            reserve = min(1.0, reserve + _MORE)


def dirichlet(
    alpha: float, owns: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """A draw from Dirichlet(alpha, …, alpha) among the owners of every class, [G, Y]; its columns
    sum to 1.

    The gamma draws are taken in logs: with a small alpha they are below what a float holds. With
    U uniform, log Gamma(alpha) is log Gamma(alpha + 1) + log(U) / alpha.
    """
    shares: npt.NDArray[np.float64] = rng.standard_gamma(alpha, owns.shape) * owns
    if alpha < _SMALL or (shares.sum(0)[owns.any(0)] == 0).any():
        above = np.log(rng.standard_gamma(alpha + 1, owns.shape))
        logs = np.where(owns > 0, above + np.log(rng.random(owns.shape)) / alpha, -np.inf)
        shares = np.exp(logs - np.where(owns.any(0), logs.max(0), 0))
    np.divide(shares, shares.sum(0), out=shares, where=owns.any(0))
    return shares

"""Clusters split where updates disagree: CFL, Sattler et al., arXiv:1910.01991, Algorithms 1 and 2.

Differs from the released code (felisat/clustered-federated-learning):
- Splits are the optimal ones of Algorithm 1, which is single linkage; `bipartition: complete` is
  the code's.
- The code has no criterion on gamma; that is `gamma_max: 0`.
- The code splits after round 20 only, clusters of more than two clients, and multiplies the rate by
  0.99 every round (`solver.decay`); here neither rounds nor members are bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean, cosine
from fedclust.helpers.ranges import BelowOne, NonNegative
from fedclust.verbs import Method

Bipartition = Literal["optimal", "complete"]


@dataclass(frozen=True, kw_only=True)
class Splitting(Method):
    """When and where a cluster is split.

    Attributes:
        eps1: a cluster may split when the norm of its mean update is below.
        eps2: and some member's update has a norm above.
        gamma_max: least separation: a split needs sqrt((1 - a) / 2) > gamma_max, where a is the
            largest cosine across it; 0 takes every split.
        bipartition: `optimal`, the one with the least a, or by `complete` linkage.
    """

    eps1: NonNegative
    eps2: NonNegative
    gamma_max: BelowOne = 0.5
    bipartition: Bipartition = "optimal"

    def __post_init__(self) -> None:
        require(self.eps1 >= 0, "algorithm.eps1", self.eps1, "at least 0; 0 never splits")
        require(self.eps2 >= 0, "algorithm.eps2", self.eps2, "at least 0")
        require(0 <= self.gamma_max < 1, "algorithm.gamma_max", self.gamma_max, "in [0, 1)")

    def sides(self, update: Tensor, mean_norm: float, largest_norm: float) -> Tensor | None:
        """Which of two new clusters every member goes to, [C] bool; None for no split.

        Args:
            update: [C, P] of the members.
            mean_norm: of their mean.
            largest_norm: of one of them.
        """
        if len(update) < 2 or mean_norm >= self.eps1 or largest_norm <= self.eps2:
            return None
        side, across = bipartition(cosine(update, update), self.bipartition)
        return side if math.sqrt((1 - across) / 2) > self.gamma_max else None


def norms(update: Tensor, weight: Tensor | None) -> tuple[float, float]:
    """Norm of the mean of the updates [C, P] with weights [C], and the largest norm of an
    update.
    """
    one = torch.zeros(len(update), dtype=torch.int64, device=update.device)
    mean = cluster_mean(update, one, weight, empty=update.new_zeros(1, update.shape[1]))
    return float(mean.norm()), float(torch.linalg.vector_norm(update, dim=1).max())


def bipartition(similarity: Tensor, how: Bipartition) -> tuple[Tensor, float]:
    """Which of two sides every row is on, [C] bool with False first, and the largest similarity
    across.

    Args:
        similarity: [C, C] cosines, at least two rows.
        how: `optimal` makes the largest similarity across as small as it can be (Algorithm 1:
            joining the most similar pairs until two sets are left, that is single linkage), or
            `complete` linkage.
    """
    distance = (1 - similarity).double().cpu().numpy()
    distance = np.maximum(distance, distance.T)  # a product need not be symmetric to the last bit
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance), "single" if how == "optimal" else "complete")
    found = cut_tree(tree, 2).squeeze(1)
    side = torch.from_numpy(found != found[0]).to(similarity.device)
    return side, float(similarity[~side][:, side].max())

"""Dirichlet shares of groups of labels: FedEM's CIFAR-10 (Marfoq et al., arXiv 2108.10252)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne
from fedclust.partitions.cut import Rows, even
from fedclust.partitions.dirichlet import DirichletLabels


@dataclass(frozen=True, kw_only=True)
class LabelGroupDirichlet(DirichletLabels):
    """The classes form random groups of equal size; the classes of a group are divided among the
    clients by one draw from Dirichlet(alpha, …, alpha). No true groups of clients.

    Differs from the released code, which draws the client of every example from these shares.
    """

    label_groups: AtLeastOne = 3  # at most the number of classes, which gives `DirichletLabels`

    def draw(self, supply: Rows, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        groups, num_classes = self.label_groups, len(supply)
        allowed = f"at most the {num_classes} classes of the dataset"
        require(groups <= num_classes, "partition.label_groups", groups, allowed)
        group = np.repeat(np.arange(groups), even(num_classes, groups))
        group = group[rng.permutation(num_classes)]
        each: npt.NDArray[np.float64] = np.full(self.num_clients, self.alpha)
        return rng.dirichlet(each, groups)[group].T

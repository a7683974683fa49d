"""Dirichlet label shares with sizes held together: the form of Yurochkin et al.'s released code,
which PFLlib (`dir`) and Flower (`self_balancing`) offer as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedclust.partitions.cut import Rows
from fedclust.partitions.dirichlet import DirichletLabels


@dataclass(frozen=True, kw_only=True)
class BalancedDirichlet(DirichletLabels):
    """As `DirichletLabels`, but a client that holds N / M training examples or more gets none of
    the classes that come later.

    A client exceeds N / M by less than its part of one class.
    """

    def draw(self, supply: Rows, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        owns, limit = self.owns(len(supply), rng), supply.sum() / self.num_clients
        share, held = np.zeros(owns.shape), np.zeros(self.num_clients)
        for c, count in enumerate(supply):
            clients = np.flatnonzero(owns[:, c])
            room = held[clients] < limit
            weight = rng.dirichlet(np.full(len(clients), self.alpha)) * room
            if weight.sum() == 0:  # a tiny alpha may give all weight to those that are full
                weight = self.instead(room)
            share[clients, c] = weight / weight.sum()
            held[clients] += share[clients, c] * count
        return share

    def owns(self, num_classes: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Which classes every client has, [M, Y]."""
        return np.ones((self.num_clients, num_classes), dtype=bool)

    def instead(self, room: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Who shares a class whose draw is for full clients alone; `room` is of its owners."""
        return room

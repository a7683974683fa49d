"""Dirichlet label shares, client by client: Hsu, Qi, Brown, arXiv 1909.06335."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedclust.partitions.cut import Rows, even
from fedclust.partitions.dirichlet import DirichletLabels

_LEAST = 1e-12  # of a share: any smaller one is no example, and 0 could not be scaled
_FITS = 1000


@dataclass(frozen=True, kw_only=True)
class ClientDirichlet(DirichletLabels):
    """Every client draws its label shares from Dirichlet(alpha p), p the shares of the classes in
    the training set, and has N / M examples by them, without replacement; no true groups.

    No draws use up every class exactly. What is over or missing is shared by all clients in
    proportion to what they drew (iterative proportional fitting), so that the last ones do not take
    what is left. The test set is divided in the same proportions.
    """

    def draw(self, supply: Rows, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Training examples of every client in every class, [M, Y]."""
        occurs = supply > 0  # a class without examples has no share
        sizes = even(int(supply.sum()), self.num_clients)
        wanted = np.zeros((self.num_clients, len(supply)))
        drawn = rng.dirichlet(self.alpha * supply[occurs] / supply.sum(), self.num_clients)
        wanted[:, occurs] = np.maximum(drawn, _LEAST)
        for _ in range(_FITS):
            wanted *= (sizes / wanted.sum(1))[:, None]
            used = wanted.sum(0)
            if np.abs(used - supply).max() < 0.5:
                break
            wanted[:, occurs] *= supply[occurs] / used[occurs]
        return _whole(wanted, sizes, supply).astype(np.float64)


def _whole(wanted: npt.NDArray[np.float64], sizes: Rows, supply: Rows) -> Rows:
    """Whole numbers near `wanted` [M, Y] with these sums of rows and columns: a client is also owed
    what those before it were rounded by.
    """
    counts, left = np.zeros(wanted.shape, dtype=np.int64), supply.copy()
    for taken, size, until in zip(counts, sizes, wanted.cumsum(0), strict=True):
        owed = until - (supply - left)
        taken += np.clip(np.floor(owed).astype(np.int64), 0, left)
        while missing := int(size - taken.sum()):
            gap = owed - taken
            if missing > 0:
                taken[np.where(taken < left, gap, -np.inf).argmax()] += 1
            else:
                taken[np.where(taken > 0, gap, np.inf).argmin()] -= 1
        left -= taken
    return counts

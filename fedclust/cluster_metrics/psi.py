"""Distance of clients' class shares by the population stability index: Clust-PSI-PFL, 2025,
arXiv:2512.20363.

Every client sends how many examples of each class it has. With its shares p and those of all
clients together, q, it lies at
    z_c = (p_c - q_c) ln(p_c / q_c),  one number a class,
whose sum is the population stability index of p and q, also called Jeffreys' divergence: at least
0, and 0 only if p = q. It sees label shift alone. The paper takes k-means with the k of the best
silhouette: `cluster_method=kmeans num_clusters=auto`.

The abstract is all that was at hand of the paper, so this is our reading:
- The terms z, not their sum, which would be the same for different skews of one strength. A class
  that a client has too much of and one it has too little of can still look alike.
- Half an example more of each class, so that no share is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.ops import distances, symmetric

_MORE = 0.5  # examples of every class


@dataclass(frozen=True, kw_only=True)
class PSI:
    """d(i, j) = ||z_i - z_j||."""

    num_components: ClassVar[None] = None
    needs_classes: ClassVar[bool] = True

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        pool = rnd.fed.pool
        place = terms(rnd.fed.train.classes(pool.y, pool.num_classes)[ids])
        return symmetric(distances(place, place))

    def reads(self, ids: Tensor, rnd: Round) -> Tensor:
        """Nobody's model."""
        return ids[:0]

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """The examples of every class, from every client."""
        return 0, 0, num_clients * num_classes


def terms(count: Tensor) -> Tensor:
    """The terms [C, Y] float64 >= 0 of the index, from the examples [C, Y] of every class."""
    one, all_ = count.double() + _MORE, count.sum(0).double() + _MORE
    p, q = one / one.sum(1, keepdim=True), all_ / all_.sum()
    return (p - q) * (p / q).log()

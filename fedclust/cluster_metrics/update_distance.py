"""Distance of clients' updates: FL+HC, Briggs, Fan, Andras, IJCNN 2020, arXiv:2004.11791."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.ops import distances, gram, symmetric
from fedclust.helpers.ranges import Ranged

Norm = Literal["l1", "l2", "cosine"]
_TINY_NORM = 1e-12  # below this an update has no direction


@dataclass(frozen=True, kw_only=True)
class UpdateDistance(Ranged):
    """d(i, j) = ||u_i - u_j||, or 1 - cos(u_i, u_j), of the updates u_i = v_i - w of the common
    model w.

    In a norm w drops out, so that `l2` is the distance of the models. An update of length 0 is at
    cosine distance 1 from all others. `l1` costs C * C * P operations without a matrix product.
    """

    norm: Norm = "l2"  # l1, l2 or cosine

    num_components: ClassVar[None] = None

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        models, common = (clients.layout.of_trained(rows) for rows in (models, common))
        if self.norm == "cosine":
            return symmetric(_angles(models, common))
        if self.norm == "l1":
            return symmetric(torch.cdist(models, models, p=1))
        return symmetric(distances(models, models))

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """Every update goes to the server once."""
        return 0, num_clients, 0


def _angles(models: Tensor, common: Tensor) -> Tensor:
    """One minus the cosines of the updates, [C, C] float32."""
    products = gram(models, common)
    norm = products.diagonal().sqrt()
    scale = norm.unsqueeze(1) * norm
    still = (norm < _TINY_NORM).unsqueeze(1) | (norm < _TINY_NORM)
    cosines = (products / scale.masked_fill(still, 1)).masked_fill(still, 0)
    return 1 - cosines.clamp(-1, 1).float()

"""Euclidean distance of decomposed cosine similarity (EDC): FlexCFL, arXiv:2108.09749, eq. (7)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.errors import DivergedError, require
from fedclust.helpers.ops import gram, leading_coordinates
from fedclust.helpers.ranges import AtLeastOne, Ranged

_TINY_NORM = 1e-12  # below this an update has no direction


@dataclass(frozen=True, kw_only=True)
class EDC(Ranged):
    """d(i, j) = ||e_i - e_j|| / m, where e_i holds the cosines of client i's update with m common
    directions.

    The update of client i is v_i minus the common model. The directions are the m leading left
    singular vectors of the matrix whose columns are the updates, without centring; their signs do
    not matter.
    """

    num_components: AtLeastOne  # m, at most the number of clients to cluster

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        """[C, C] float32 in [0, 2 / sqrt(m)]; see `fedclust.verbs.ClusterMetric`."""
        m, allowed = self.num_components, f"at most the {len(models)} clients to cluster"
        require(m <= len(models), "cluster_metric.num_components", m, allowed)
        trained = clients.layout.of_trained
        place = embedding(trained(models), trained(common), m)
        distance = torch.cdist(place, place, compute_mode="donot_use_mm_for_euclid_dist")
        return (distance / m).float()

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """Every update goes to the server once."""
        return 0, num_clients, 0


def embedding(models: Tensor, common: Tensor, num_components: int) -> Tensor:
    """Cosines of every update, from the `common` model [1, P] to the clients' [C, P], with the m <=
    C leading singular directions, [C, m] float64.

    Raises:
        DivergedError: if an update is not finite.
    """
    products = gram(models, common).cpu()
    if not bool(torch.isfinite(products).all()):
        raise DivergedError("an update of a client is not finite; a smaller solver.lr may help")
    scores = leading_coordinates(products, num_components)
    norm = products.diagonal().sqrt().unsqueeze(1)
    cosines: Tensor = (scores / norm.clamp(min=_TINY_NORM)).masked_fill(norm < _TINY_NORM, 0)
    return cosines.to(models.device)

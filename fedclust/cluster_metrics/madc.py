"""Mean of absolute differences of pairwise cosines (MADC): FlexCFL, arXiv:2108.09749."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.errors import require
from fedclust.helpers.ops import gram, symmetric

_TINY_NORM = 1e-12  # below this an update has no direction


@dataclass(frozen=True, kw_only=True)
class MADC:
    """d(i, j) = mean over the other clients z of |S_iz - S_jz|, S the cosines between the clients'
    updates.

    The update of client i is v_i minus the common model. Two clients are near if the others look
    alike from both, which in many dimensions tells more than the angle between the two. Costs C^3.
    The paper clusters by it with complete linkage: cluster_method=agglomerative with
    `linkage: complete`, which is not that method's default.
    """

    num_components: ClassVar[None] = None

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        """[C, C] float32 in [0, 2]; see `fedclust.verbs.ClusterMetric`."""
        size = len(models)
        allowed = f"it compares at least 3 clients, and there are {size}"
        require(size >= 3, "cluster_metric", "madc", allowed)
        trained = clients.layout.of_trained
        products = gram(trained(models), trained(common))
        norm = products.diagonal().sqrt()
        known = norm >= _TINY_NORM
        scale = known / norm.clamp(min=_TINY_NORM)  # an update without direction has the cosine 0
        similarity = (products * scale * scale.unsqueeze(1)).clamp(-1, 1)
        total = torch.cdist(similarity, similarity, p=1)
        # z = i and z = j do not count
        own = (similarity.diagonal().unsqueeze(1) - similarity).abs()
        distance = ((total - own - own.T) / (size - 2)).clamp(min=0)
        return symmetric(distance).float()

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """Every update goes to the server once."""
        return 0, num_clients, 0

"""Distance of clients' parameters: DiffNorm in the figures of LCFL, arXiv:2407.09360."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.ops import distances, symmetric


@dataclass(frozen=True, kw_only=True)
class ParamNorm:
    """d(i, j) = ||v_i - v_j||_2 over all parameters."""

    num_components: ClassVar[None] = None

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        models = clients.layout.of_trained(models)
        return symmetric(distances(models, models))

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """Every model goes to the server once."""
        return 0, num_clients, 0

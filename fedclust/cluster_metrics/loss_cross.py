"""How differently one model fits two clients' data: LCFL, arXiv:2407.09360, eq. (6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round


@dataclass(frozen=True, kw_only=True)
class LossCross:
    """d~(i, j) = |L_i(v_i) - L_j(v_i)| + |L_i(v_j) - L_j(v_j)|, every model on both clients' data.

    The paper discusses it and does not run it. Where every v_i minimises L_i, d <= d~ with d of
    `Loss`.
    """

    num_components: ClassVar[None] = None

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        """[C, C] float32 nats per example; see `fedclust.verbs.ClusterMetric`."""
        table = clients.loss(models, ids)  # [C, C], table[i, j] = L_i(v_j)
        half = table.sub(table.diagonal()).abs_()  # |L_i(v_j) - L_j(v_j)|
        return half + half.T  # eq. (6)

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """As `Loss`, but every client sends the loss of every model, its own included."""
        return num_clients * (num_clients - 1), num_clients, num_clients**2

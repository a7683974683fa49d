"""How much worse clients' models fit each other's data than their own: LCFL, arXiv:2407.09360, eq. (2)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedclust.types import Engine, Round


@dataclass(frozen=True, kw_only=True)
class Loss:
    """d(i, j) = |L_i(v_i) - L_i(v_j)| + |L_j(v_i) - L_j(v_j)|, every client with its own data.

    L_i is the mean training loss of client i and v_i its model. A dissimilarity, not a metric: the triangle
    inequality does not hold in general.
    """

    def __call__(self, engine: Engine, models: Tensor, common: Tensor, clients: Tensor, rnd: Round) -> Tensor:  # noqa: ARG002
        """[C, C] float32 nats per example; see `fedclust.types.ClusterMetric`."""
        table = engine.loss(models, clients, rnd)  # [C, C], table[i, j] = L_i(v_j)
        half = table.sub(table.diagonal().unsqueeze(1)).abs_()  # what client i computes alone
        return half + half.T  # eq. (2)

    def transfers(self, num_clients: int) -> tuple[int, int]:
        """Every model goes to the server once and from there to all other clients."""
        return num_clients * (num_clients - 1), num_clients

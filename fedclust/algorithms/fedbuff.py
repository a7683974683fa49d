"""FedBuff, buffered asynchronous aggregation: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba,
AISTATS 2022, arXiv:2106.06639.

Algorithm 1 with its scaling of stale updates: w += eta_g / K sum_i s(tau_i) Delta_i after every K
arrivals, s(tau) = 1 / sqrt(1 + tau). A round is one buffer, K arrivals.

Differs from the paper:
- Updates are weighted by examples, or equally with `common.aggregation=uniform`, as in the paper.
- eta_g is 1; `server=sgd` sets another one.
- No differential privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedclust.algorithms.parts.arrivals import Asynchronous
from fedclust.algorithms.steps import Aggregation, average, zeros
from fedclust.core.calls import LocalResult
from fedclust.core.front import Clients
from fedclust.core.types import Cost
from fedclust.helpers.ranges import AtLeastOne


@dataclass(frozen=True, kw_only=True)
class FedBuff(Asynchronous):
    """One model for everybody, a step of which is the mean of a buffer of updates."""

    aggregation: Aggregation = "by_samples"
    buffer: AtLeastOne | None = None  # K; None for as many as train at the same time

    unnoised = "updates whenever they are done"

    def counts(self, at_once: int) -> tuple[int, int]:
        return (self.buffer or at_once,) * 2

    def updated(
        self,
        model: Tensor,
        local: LocalResult,
        start: Tensor,
        stale: Tensor,
        ids: Tensor,
        clients: Clients,
    ) -> tuple[Tensor, Cost]:
        """The mean of the updates, each scaled by how stale it is."""
        scale = ((1 + stale) ** -0.5).unsqueeze(1)
        moved = model + scale * (local.params - start)
        # to the bit where nothing is stale
        params = moved.where(stale.unsqueeze(1) > 0, local.params)
        local, label = replace(local, params=params), zeros(ids)
        return average(clients, local, model, label, ids, clients.rnd, self.aggregation)

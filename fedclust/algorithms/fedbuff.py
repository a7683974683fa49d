"""FedBuff, buffered asynchronous aggregation: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba,
AISTATS 2022, arXiv:2106.06639.

Algorithm 1 with its scaling of stale updates: w += eta_g / K sum_i s(tau_i) Delta_i after every K
arrivals, s(tau) = 1 / sqrt(1 + tau). A round is one buffer, K arrivals.

Differs from the paper:
- Updates are weighted by examples, or equally with `common.aggregation=uniform`, as in the paper.
- eta_g is 1; `server=sgd` sets another one.
- With `num_clusters` there is such a server for each of several models, see
  `parts/asynchronous.py`; a round is as many arrivals in all.
- No differential privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedclust.algorithms.parts.asynchronous import Asynchronous
from fedclust.algorithms.steps import Aggregation, average
from fedclust.core.calls import LocalResult
from fedclust.core.front import Clients
from fedclust.core.types import Cost
from fedclust.helpers.ranges import AtLeastOne


@dataclass(frozen=True, kw_only=True)
class FedBuff(Asynchronous):
    """K models, a step of each of which is the mean of a buffer of updates."""

    aggregation: Aggregation = "by_samples"
    # K in the paper; None for as many as train at the same time, without those of other clusters
    buffer: AtLeastOne | None = None

    unnoised = "updates whenever they are done"

    def counts(self, at_once: int) -> tuple[int, int | None]:
        return self.buffer or at_once, self.buffer

    def updated(
        self,
        models: Tensor,
        local: LocalResult,
        start: Tensor,
        stale: Tensor,
        label: Tensor,
        ids: Tensor,
        clients: Clients,
    ) -> tuple[Tensor, Cost]:
        """The mean of the updates of every cluster, each scaled by how stale it is."""
        scale = ((1 + stale) ** -0.5).unsqueeze(1)
        moved = models[label] + scale * (local.params - start)
        # to the bit where nothing is stale
        params = moved.where(stale.unsqueeze(1) > 0, local.params)
        local = replace(local, params=params)
        return average(clients, local, models, label, ids, clients.rnd, self.aggregation)

"""LCFL: Gu, Chen, Wen, Cai, Han, Novel clustered federated learning based on local loss, 2024.

https://arxiv.org/abs/2407.09360, Algorithm 1. DiffNorm and GradCos of its figures are the same
method with another `metric`, FL+HC and k-means on models also with another warm-up.

Differs from the paper:
- Where the clusters start is left open, section III-B lets it be the local models: here it is the
  server's model.
Differs from the released code (wenh06/LCFL):
- The metric uses training data only (`cluster_metric.data`); k-medoids takes the best of several
  starts (`cluster_method.variant`).
- Clients are tested with their cluster's model; the code tests participants with the model they
  trained last (`algorithm=last_local` records both).
More in `fedclust.algorithms.warmup` and `fedclust.algorithms.cluster_rounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.algorithms.cluster_rounds import ClusterRounds
from fedclust.algorithms.clustering import check_size, clustered, distance_tables
from fedclust.algorithms.steps import arrived, average, clients_with_data, zeros
from fedclust.algorithms.warmup import Warmup
from fedclust.types import ClientModels, Cost, Round, Served
from fedclust.verbs import Clients, ClusterMethod, ClusterMetric


@dataclass(frozen=True, kw_only=True)
class LCFL(ClusterRounds):
    """One clustering by how models fit each other's data, then FedAvg in every cluster.

    Attributes:
        solver, participation, aggregation, divisor: see `ClusterRounds`.
        metric: dissimilarity of two clients.
        method: dissimilarities to clusters; knows their number.
        warmup: how the clients get the models that are compared.
    """

    metric: ClusterMetric
    method: ClusterMethod
    warmup: Warmup

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models and who uses them.

        Attributes:
            models: [1, P] during the warm-up, [K, P] after the clustering.
            label: [M] int64 cluster, -1 for clients without one.
            local: [M, P] each client's own model during the warm-up, None after the clustering.
            trained: [M] bool, who has trained during the warm-up.
        """

        models: Tensor
        label: Tensor
        local: ClientModels | None
        trained: Tensor

    def remark(self, rounds: int) -> str:
        """Says so where a run ends before its clustering."""
        return self.warmup.remark(rounds)

    def tables(self, num_clients: int) -> Mapping[str, int]:
        """Distances between all clients."""
        return distance_tables(num_clients, " (cluster_metric.landmarks spares losses, not these)")

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A fresh model; with the local warm-up also everything up to the clusters."""
        check_size(self.metric, self.method, len(clients_with_data(rnd)))
        model = clients.init(rnd.stream("init"), 1)
        state = self.State(
            models=model,
            label=torch.full_like(rnd.fed.group, -1),
            local=ClientModels.alike(model, rnd.fed.num_clients),
            trained=torch.zeros_like(rnd.present),
        )
        if self.warmup.mode == "federated":
            return state, Cost()
        ids, params, alone = self.warmup.alone(model, self.solver, clients, rnd)  # lines 1-5
        state, clustering = self._cluster(_keep(state, ids, params), clients, rnd)
        return state, alone.plus(clustering)

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A warm-up round, or a round inside the clusters; the first of these begins with the
        clustering.
        """
        if state.local is not None and rnd.t < self.warmup.rounds:
            return self._warm_up(state, clients, rnd)
        clustering = Cost()
        if state.local is not None:
            state, clustering = self._cluster(state, clients, rnd)
        models, label, cost = self.train_clusters(state.models, state.label, clients, rnd)
        return replace(state, models=models, label=label), clustering.plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The server's model during the warm-up, then that of the client's cluster."""
        label = state.label if state.local is None else torch.zeros_like(state.label)
        return Served(models=state.models, label=arrived(label, rnd))

    def _warm_up(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg; v_i is what client i made in its last one."""
        cohort = self.warmup.cohort(rnd)
        models, label = state.models, zeros(cohort)
        local = clients.train(models, label, cohort, self.solver)
        models, cost = average(clients, local, models, label, cohort, rnd, self.aggregation)
        return replace(_keep(state, cohort, local.params), models=models), cost

    def _cluster(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Lines 6-12: clusters of the clients that are there, each with the server's model."""
        server, trained = state.models, state.trained
        everybody = clients_with_data(rnd)
        reads = getattr(self.metric, "reads", lambda ids, _: ids)  # of one's own: all, if unsaid
        ids, params, covering = self.warmup.cover(
            server, trained, reads(everybody, rnd), self.solver, clients
        )
        state = _keep(state, ids, params)
        assert state.local is not None
        found, k, cost = clustered(self.metric, self.method, state.local, server, clients, rnd)
        state = replace(state, models=server.repeat(k, 1), label=found, local=None)
        return state, covering.plus(cost)


def _keep(state: LCFL.State, ids: Tensor, params: Tensor) -> LCFL.State:
    """The state in which the clients `ids` [C] have just trained `params` [C, P]."""
    if state.local is None or not len(ids):
        return state
    local = state.local.replaced(ids, params)
    return replace(state, local=local, trained=state.trained.index_fill(0, ids, True))

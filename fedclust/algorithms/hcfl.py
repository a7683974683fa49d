"""HCFL, clusters that share the body of their models less and less: as in the package `cfla`.

After rounds of FedAvg everybody trains once from the common model; clients are merged by the cosine
distances of their updates until `num_clusters` are left, or clusters are `method.threshold` apart.
From then on a participant begins at its cluster's model, to which it is pulled, and in round r
after the clustering a cluster's body is
    (1 - l_r) * mean of its participants + l_r * mean of all participants,  l_r = l_0 / (1 + a r)^p,
the body being all layers but the last. With l_0 = 1 all clusters have one body in the first round.

There is no paper that we know of; this follows `cfla` 1.0.4.
Differs from it (cfla/framework/server/server_hcfl.py):
- Clusters are by the cosine distances of updates and average linkage throughout; there, with a
  given number of clusters, by Ward's linkage of the Euclidean update vectors (259-265), and by
  cosines with a threshold alone (266-272). `method` gets distances: Ward's is none of its choices.
- The number of clusters is given unless there is a threshold; there it is 0.5.
- The run's cohort takes part; there every cluster has a cohort of its own.
- A cluster's mean is that of `aggregation`; there it is plain, and only that of all is by examples.
- A client that arrives after the clustering joins the cluster of least training loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest, serve_joined
from fedclust.algorithms.parts.clustering import grouped, tables_of_pairs
from fedclust.algorithms.parts.shared_layers import Layers, check_layers, common_mean, shared
from fedclust.algorithms.steps import (
    Shares,
    average,
    clients_with_data,
    federated_averaging,
    weights,
    zeros,
)
from fedclust.algorithms.warmup import unclustered
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, Method
from fedclust.helpers.ops import cosine, symmetric
from fedclust.helpers.ranges import AtLeastOne, NonNegative, Probability


@dataclass(frozen=True, kw_only=True)
class HCFL(Method):
    """One clustering by updates, then clusters that share less and less."""

    solver: Solver  # local work
    method: ClusterMethod  # distances of updates to clusters
    warmup: AtLeastOne = 5  # rounds of FedAvg before the clustering
    layers: Layers = "body"  # what is compared and shared: the `body`, or `all` layers
    mu: NonNegative = 1.0  # pull of a participant to its cluster's model, (mu / 2) ||w - w_c||^2
    sharing: Probability = 1.0  # l_0, in the first round after the clustering
    decay: NonNegative = 0.1  # a; 0 shares as much for ever
    power: NonNegative = 1.0  # p
    aggregation: Shares = "by_samples"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, and who uses them."""

        models: Tensor  # [1, P] before the clustering, [K, P] after it
        # [M] int64 cluster; 0 before the clustering, -1 for clients without one after it
        label: Tensor

    @property
    def unused(self) -> Mapping[str, str]:
        """The pull of the warm-up, after it."""
        why = "after the warm-up, where algorithm.mu takes its place"
        return {"solver.proximal": why} if self.solver.proximal else {}

    def remark(self, rounds: int) -> str:
        return unclustered(self.warmup, rounds, "algorithm.warmup")

    tables = tables_of_pairs

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A fresh model; a `ConfigError` if it has no body and that is to be shared."""
        check_layers(self.layers, clients.layout)
        model = clients.init(rnd.stream("init"), 1)
        return self.State(models=model, label=torch.zeros_like(rnd.fed.group)), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A round of FedAvg, or one in the clusters, once they are found."""
        cohort, before = rnd.cohort, Cost()
        if rnd.t < self.warmup:
            models, cost = federated_averaging(self, clients, state.models, zeros(cohort), rnd)
            return replace(state, models=models), cost
        if rnd.t == self.warmup:
            state, before = self._cluster(state, clients, rnd)
        ids = clients_with_data(rnd)
        label, joining = join_cheapest(state.models, state.label, ids, clients)
        own, pulled = label[cohort], replace(self.solver, proximal=self.mu)
        local = clients.train(Train(state.models, own, cohort, pulled))
        means, cost = average(clients, local, state.models, own, cohort, rnd, self.aggregation)
        weight = weights(cohort, rnd, self.aggregation)
        common = common_mean(clients, local, state.models, own, weight)
        mask = shared(self.layers, clients.layout).to(common.device, common.dtype)
        share = self.share(rnd.t - self.warmup) * mask
        # a cluster without participants keeps its model
        moved = own.bincount(minlength=len(means)).unsqueeze(1) > 0
        mixed = (means + share * (common - means)).where(moved, means)
        models = clients.server.passed_on(means, mixed)
        return self.State(models=models, label=label), before.plus(joining).plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return serve_joined(state.models, state.label, clients, rnd)

    def share(self, since: int) -> float:
        """l_r, `since` rounds after the clustering."""
        return float(self.sharing / (1 + self.decay * since) ** self.power)

    def _cluster(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Everybody's update of the common model, and the clusters, each with that model."""
        ids = clients_with_data(rnd)
        local = clients.train(Train(state.models, zeros(ids), ids, self.solver, purpose="cover"))
        trained = clients.layout.of_trained
        compared = trained(shared(self.layers, clients.layout)).to(ids.device)
        update = trained(local.params - state.models)[:, compared]
        distance = symmetric(1 - cosine(update, update))
        label, k, found = grouped(self.method, distance, ids, rnd)
        steps = int(local.steps.sum())
        cost = Cost(models_down=len(ids), floats_up=update.numel(), gradient_steps=steps)
        return self.State(models=state.models.repeat(k, 1), label=label), cost.plus(found)

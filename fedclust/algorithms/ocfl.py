"""OCFL, which finds the round to cluster in: Zuziak, Pellungrini, Rinzivillo, 2025.

https://arxiv.org/abs/2509.01587, https://arxiv.org/abs/2503.04231. FedAvg, until the updates of the
participants agree less than in the round before; then one clustering by the cosines of the updates,
and FedAvg in every cluster. The measure, a temperature, is
    T = ||G||_F / sqrt(4 n (n - 1)),  G_ij = 1 - cos(u_i, u_j),
0 if all n updates point alike, 0.5 if they are orthogonal, 1 if two are opposite.

Follows the released code (MKZuziak/Clustered-Federated-Learning bbe5eca: T in
FedCL/aggregators/temperature.py:7-13, the round in FedCL/simulation/simulation.py:267-312); the
papers' text was not at hand.
Differs from it:
- Not everybody takes part in every round: T is of the participants, and the others join the cluster
  of least training loss. The papers have full participation.
- `method` is any clustering of distances; noise of HDBSCAN is one common cluster, as in the code
  (simulation.py:289-296).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest, serve_joined
from fedclust.algorithms.parts.clustering import grouped, tables_of_pairs
from fedclust.algorithms.steps import Aggregation, average, clients_with_data, federated_averaging
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, Method
from fedclust.helpers.ops import cosine, symmetric


@dataclass(frozen=True, kw_only=True)
class OCFL(Method):
    """One clustering by updates, in the first round in which they agree less than before."""

    solver: Solver  # local work
    method: ClusterMethod  # distances of updates to clusters
    aggregation: Aggregation = "by_samples"

    unnoised = "updates of single clients, which are compared"
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and how far the updates agree."""

        models: Tensor  # [1, P] before the clustering, [K, P] after it
        # [M] int64 cluster; 0 before the clustering, -1 for clients without one after it
        label: Tensor
        temperature: float  # of the last round before the clustering; infinite at first
        clustered: bool  # whether the clustering has been

    tables = tables_of_pairs

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        far = 1 - torch.eye(len(rnd.cohort))
        self.method(far, rnd.stream("clustering"))  # refuses too few participants
        state = self.State(
            models=clients.init(rnd.stream("init"), 1),
            label=torch.zeros_like(rnd.fed.group),
            temperature=math.inf,
            clustered=False,
        )
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg in every cluster; a clustering comes before the means."""
        cohort = rnd.cohort
        if state.clustered:
            ids = clients_with_data(rnd)
            label, joining = join_cheapest(state.models, state.label, ids, clients)
            models, cost = federated_averaging(self, clients, state.models, label[cohort], rnd)
            return replace(state, models=models, label=label), cost.plus(joining)
        models, label, clustered = state.models, state.label, False
        local = clients.train(Train(models, label[cohort], cohort, self.solver))
        update = clients.layout.of_trained(local.params - models)
        distance = symmetric(1 - cosine(update, update))
        telling = Cost()
        now = temperature(distance) if len(cohort) > 1 else state.temperature
        if now > state.temperature:
            label, k, telling = grouped(self.method, distance, cohort, rnd)
            models, clustered = models.repeat(k, 1), True
        models, cost = average(clients, local, models, label[cohort], cohort, rnd, self.aggregation)
        state = self.State(models=models, label=label, temperature=now, clustered=clustered)
        return state, telling.plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return serve_joined(state.models, state.label, clients, rnd)


def temperature(distance: Tensor) -> float:
    """How little n > 1 updates agree, in [0, 1], by their cosine distances [n, n]."""
    count = len(distance)
    return float(distance.double().norm()) / math.sqrt(4 * count * (count - 1))

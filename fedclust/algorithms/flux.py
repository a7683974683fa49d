"""FLUX, clusters by descriptors of clients' data: Fenoglio et al., NeurIPS 2025.

https://arxiv.org/abs/2511.22305. Rounds of FedAvg, one clustering of all clients by descriptors of
their data (see `fedclust.cluster_metrics.descriptor`), then FedAvg in every cluster. The part of a
descriptor that needs no labels tells which cluster a client belongs to that nobody knows. It cannot
see a shift of P(Y|X), in which the same inputs mean other classes.

Differs from the released code (dariofenoglio98/FLUX 43aadbe):
- The clustering is in a given round; in the code it comes once the held-out accuracy gains less
  than 0.06 in a round, or after 80 % of the rounds (flux/server.py:669-678).
- Data are described by what enters the last layer; in the code by what the convolutions put out
  (public/models.py:51-63). Of its LeNet-5 that is 400 or 576 numbers before two dense layers, which
  can remove what a shift of P(X) looks like; of its ResNet-9 it is the same.
- Clients that arrive later are served by their inputs alone, those of their training examples, and
  join by their whole descriptor in their first round; so does the code's simulation of partial
  participation. The code also tests everybody by the inputs of the test examples alone
  (flux/server.py:791-865); `serve_by: inputs` does so by those of the training examples.
- Directions and scale are those of the descriptor here. Where the distances have no knee, nobody
  stands out; the code ends with an error.
- `flux_dynamic`, which is told in which round the data drift, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedclust.algorithms.parts.clustering import grouped, tables_of_pairs
from fedclust.algorithms.parts.profiles import DescribesClients, fitted, nearest, placed
from fedclust.algorithms.steps import Aggregation, arrived, clients_with_data, federated_averaging
from fedclust.algorithms.warmup import unclustered
from fedclust.core.front import Clients
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, Method
from fedclust.helpers.ops import cluster_mean, distances, symmetric
from fedclust.helpers.ranges import AtLeastOne

ServeBy = Literal["cluster", "inputs"]


@dataclass(frozen=True, kw_only=True)
class Flux(Method):
    """One clustering by descriptors of the data, then FedAvg in every cluster."""

    solver: Solver  # local work
    descriptor: DescribesClients  # of the clients' data
    method: ClusterMethod  # distances of descriptors to clusters
    warmup: AtLeastOne = 5  # rounds of FedAvg before the clustering
    # a client is served its `cluster`, or the one that its `inputs` are nearest to, whatever its
    # own is
    serve_by: ServeBy = "cluster"
    aggregation: Aggregation = "by_samples"

    needs_softmax: ClassVar[bool] = True  # as its descriptor

    unnoised = "descriptions of data"
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and what the clusters' data are like."""

        models: Tensor  # [1, P] before the clustering, [K, P] after it
        encoder: Tensor  # [1, P] what describes data; the model before the clustering
        label: Tensor  # [M] int64 cluster, -1 for clients without one
        scale: Tensor  # [2, D] of descriptors, see `fitted`; [2, 0] before the clustering
        centroid: Tensor  # [K, D] mean descriptor of a cluster's clients; [0, 0] before

    def remark(self, rounds: int) -> str:
        return unclustered(self.warmup, rounds, "algorithm.warmup")

    tables = tables_of_pairs

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        model = clients.init(rnd.stream("init"), 1)
        # refuses what it cannot describe
        self.descriptor.blocks(model, rnd.cohort[:0], clients, rnd)
        state = self.State(
            models=model,
            encoder=model,
            label=torch.full_like(rnd.fed.group, -1),
            scale=model.new_zeros(2, 0),
            centroid=model.new_zeros(0, 0),
        )
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A round of FedAvg in every cluster, after the clustering once that is due."""
        describing = Cost()
        if rnd.t == self.warmup:
            state, describing = self._cluster(state, clients, rnd)
        elif rnd.t > self.warmup:
            state, describing = self._admit(state, clients, rnd)
        # of one model before the clustering
        label = state.label[rnd.cohort].clamp(min=0)
        models, cost = federated_averaging(self, clients, state.models, label, rnd)
        encoder = state.encoder if len(state.centroid) else models
        return replace(state, models=models, encoder=encoder), describing.plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of a client's cluster, or of the one its inputs are nearest to."""
        if not len(state.centroid):
            return Served(models=state.models, label=arrived(torch.zeros_like(state.label), rnd))
        label, ids = state.label, clients_with_data(rnd)
        if self.serve_by == "cluster":
            ids = ids[label[ids] < 0]
        if len(ids):
            profile = self._profile(state, ids, clients, rnd)
            found = nearest(profile, state.centroid, rnd.fed.pool.num_classes)
            label = label.index_copy(0, ids, found)
        return Served(models=state.models, label=arrived(label, rnd))

    def _cluster(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Clusters of all clients that are there, each with the model so far."""
        ids = clients_with_data(rnd)
        blocks = self.descriptor.blocks(state.encoder, ids, clients, rnd)
        scale = fitted(blocks)
        profile = placed(blocks, scale)
        distance = symmetric(distances(profile, profile))
        label, k, found = grouped(self.method, distance, ids, rnd)
        empty = profile.new_zeros(k, profile.shape[1])
        state = replace(
            state,
            models=state.models.repeat(k, 1),
            label=label,
            scale=scale,
            centroid=cluster_mean(profile, label[ids], empty=empty),
        )
        # those of the cohort get the model anyway
        others = len(ids) - int(torch.isin(ids, rnd.cohort).sum())
        return state, Cost(models_down=others, floats_up=profile.numel()).plus(found)

    def _admit(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A cluster for every participant: that of the nearest descriptor."""
        new = rnd.cohort[state.label[rnd.cohort] < 0]
        if not len(new):
            return state, Cost()
        profile = self._profile(state, new, clients, rnd)
        found = distances(profile, state.centroid).argmin(1)
        sent = Cost(models_down=len(new), floats_up=profile.numel())
        return replace(state, label=state.label.index_copy(0, new, found)), sent

    def _profile(self, state: State, ids: Tensor, clients: Clients, rnd: Round) -> Tensor:
        return placed(self.descriptor.blocks(state.encoder, ids, clients, rnd), state.scale)

"""FedClust, clusters by the weights of the last layer: Islam, Javaherian, Xu, Yuan, Chen, Tzeng,
ICPP 2024.

https://arxiv.org/abs/2407.07124. Before the first round every client trains once from the initial
model and uploads its last layer only; the server clusters the clients by the distances of these
weights, then trains a model per cluster. A newcomer does the same and joins at once.

The paper stops merging clusters at a distance, which trades globalisation for personalisation:
`method.threshold`; here the number of clusters is given unless that is set.

Differs from the paper, or is left open by the abstract, which is what this follows:
- Distances are Euclidean, of weights and intercepts together; linkage is that of `method`.
- Every cluster begins at the initial model: the server has no other whole model.
- A newcomer joins the cluster to whose members it has the least mean distance.
We have found no code that the authors released.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.algorithms.parts.clustering import grouped, nearest_members, tables_of_pairs
from fedclust.algorithms.steps import (
    Aggregation,
    arrived,
    clients_with_data,
    federated_averaging,
    zeros,
)
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, Method
from fedclust.helpers.errors import require
from fedclust.helpers.ops import distances, symmetric
from fedclust.helpers.ranges import AtLeastOne


@dataclass(frozen=True, kw_only=True)
class FedClust(Method):
    """One clustering by the last layers before the first round, then FedAvg in every cluster."""

    # local work, also of the training before the clustering and of newcomers, both at the rate of
    # round 0
    solver: Solver
    # distances to clusters; knows their number, or the distance at which to stop
    method: ClusterMethod
    # how many layers a client uploads, from the model's end; all there are at most
    layers: AtLeastOne = 1
    aggregation: Aggregation = "by_samples"

    unnoised = "last layers of single clients, which are compared"
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and what the server knows of the clients."""

        start: Tensor  # [1, P] the initial model, which newcomers train from
        models: Tensor  # [K, P]
        label: Tensor  # [M] int64 cluster, -1 for clients without one
        uploaded: ClientModels  # [M, H] last layers, 0 for clients that have sent none

    tables = tables_of_pairs

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        depth, ids = clients.layout.num_layers, clients_with_data(rnd)
        allowed = f"at most the model's {depth} layers"
        require(self.layers <= depth, "algorithm.layers", self.layers, allowed)
        start = clients.init(rnd.stream("init"), 1)
        sent, cost = self._upload(start, ids, clients)
        label, k, found = grouped(self.method, symmetric(distances(sent, sent)), ids, rnd)
        uploaded = ClientModels.alike(torch.zeros_like(sent[:1]), len(label))
        state = self.State(
            start=start,
            models=start.repeat(k, 1),
            label=label,
            uploaded=uploaded.replaced(ids, sent),
        )
        return state, cost.plus(found)

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg in every cluster, newcomers first."""
        state, joining = self._admit(state, clients, rnd)
        label = state.label[rnd.cohort]
        models, cost = federated_averaging(self, clients, state.models, label, rnd)
        return replace(state, models=models), joining.plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _admit(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A cluster for every client that has arrived."""
        ids = clients_with_data(rnd)
        new, old = ids[state.label[ids] < 0], (state.label >= 0).nonzero().squeeze(1)
        if not len(new):
            return state, Cost()
        sent, cost = self._upload(state.start, new, clients)
        labels = nearest_members(distances(sent, state.uploaded[old]), state.label[old])
        label = state.label.index_copy(0, new, labels)
        uploaded = state.uploaded.replaced(new, sent)
        return replace(state, label=label, uploaded=uploaded), cost

    def _upload(self, start: Tensor, ids: Tensor, clients: Clients) -> tuple[Tensor, Cost]:
        """Last layers [C, H] of what the clients `ids` [C] make of the initial model."""
        alike = replace(self.solver, decay=1.0)  # newcomers train as the first did
        local = clients.train(Train(start, zeros(ids), ids, alike, purpose="before"))
        names = clients.layout.last_layers(self.layers)
        sent = local.params[:, clients.layout.mask(names).to(start.device)]
        steps = int(local.steps.sum())
        return sent, Cost(models_down=len(ids), floats_up=sent.numel(), gradient_steps=steps)

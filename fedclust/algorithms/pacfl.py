"""PACFL, clusters by principal angles between the clients' data: Vahidian, Morafah, Wang et al.,
AAAI 2023.

https://arxiv.org/abs/2209.10526, Algorithm 1. Before training, every client sends the leading
singular vectors of its inputs; the server clusters the clients by the angles between them, then
trains a model each.

Differs from the paper:
- Angles are principal angles, from the singular values of U_i' U_j. The paper's sum takes the
  diagonal of arccos(U_i' U_j), which depends on the arbitrary signs and order of singular vectors.
- A newcomer joins the cluster to whose members it has the least mean distance; the paper clusters
  all anew.
- Participants are averaged by `aggregation`; the paper weights by examples.
Differs from the released code (MMorafah/PACFL): the vectors are those of all inputs of a client, as
in the paper; the code takes some per class and the least entry of arccos(U_i' U_j), neither of
which the paper has.

Its average linkage is the weighted one (WPGMA), and it takes raw pixels; here linkage is that of
`method`, and inputs are normalised as a model sees them. A client sends d numbers for each
of its vectors once: `signature_bytes`, which `bytes` contains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.clustering import distance_tables, nearest_members
from fedclust.algorithms.steps import Aggregation, arrived, clients_with_data, train_and_average
from fedclust.algorithms.subspaces import dimensions, principal_angles, signatures
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients, ClusterMethod, Method

Angle = Literal["smallest", "sum"]


@dataclass(frozen=True, kw_only=True)
class PACFL(Method):
    """One clustering by the clients' inputs before the first round, then FedAvg in every cluster.

    Attributes:
        solver: local work.
        method: distances to clusters; knows their number, or the distance at which to stop.
        num_vectors: p in the paper.
        angle: distance of two clients: the `smallest` principal angle, eq. (2), or the `sum` of
            all, eq. (3), in degrees.
        aggregation: `uniform` mean over a cluster's participants, or weighted `by_samples`.
    """

    solver: Solver
    method: ClusterMethod
    num_vectors: AtLeastOne = 3
    angle: Angle = "sum"
    aggregation: Aggregation = "by_samples"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and what the server knows of the clients' data.

        Attributes:
            models: [K, P].
            label: [M] int64 cluster, -1 for clients without one.
            signature: [M, d, p] principal vectors, 0 for clients that have sent none.
        """

        models: Tensor
        label: Tensor
        signature: Tensor

    def __post_init__(self) -> None:
        require(self.num_vectors >= 1, "algorithm.num_vectors", self.num_vectors, "at least 1")

    def tables(self, num_clients: int) -> Mapping[str, int]:
        """Distances between all clients."""
        return distance_tables(num_clients)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Clusters by the data, and the same fresh model for each."""
        ids, features = clients_with_data(rnd), math.prod(rnd.fed.pool.shape)
        allowed = f"at most the {features} features of an example"
        require(self.num_vectors <= features, "algorithm.num_vectors", self.num_vectors, allowed)
        sent = signatures(ids, self.num_vectors, rnd)
        distance = self.distance(sent, sent)
        # a product of matrices need not be symmetric to the last bit
        distance = distance.maximum(distance.T).fill_diagonal_(0)
        found = self.method(distance, rnd.stream("clustering"))
        num_clusters = int(found.max()) + 1
        state = self.State(
            models=clients.init(rnd.stream("init"), 1).repeat(num_clusters, 1),
            label=torch.full_like(rnd.fed.group, -1).index_copy(0, ids, found),
            signature=sent.new_zeros(rnd.fed.num_clients, *sent.shape[1:]).index_copy(0, ids, sent),
        )
        cost = replace(_sending(sent), arrays={"distance": distance})
        notes = {"num_clusters_found": num_clusters, **cost.notes}
        return state, replace(cost, notes=notes)

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg in every cluster, newcomers first."""
        state, sending = self._admit(state, rnd)
        label = state.label[rnd.cohort]
        models, _, cost = train_and_average(
            clients, state.models, label, rnd.cohort, self.solver, self.aggregation, rnd
        )
        return replace(state, models=models), sending.plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of the client's cluster."""
        return Served(models=state.models, label=arrived(state.label, rnd))

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Distances of signatures [C, d, p] and [K, d, p], [C, K] degrees."""
        angles = principal_angles(a, b)
        return angles[..., 0] if self.angle == "smallest" else angles.sum(2)

    def _admit(self, state: State, rnd: Round) -> tuple[State, Cost]:
        """The state with a cluster for every client that is there, and what newcomers sent."""
        ids = clients_with_data(rnd)
        new, old = ids[state.label[ids] < 0], (state.label >= 0).nonzero().squeeze(1)
        if not len(new):
            return state, Cost()
        sent = signatures(new, self.num_vectors, rnd)
        found = nearest_members(self.distance(sent, state.signature[old]), state.label[old])
        label = state.label.index_copy(0, new, found)
        return replace(
            state, label=label, signature=state.signature.index_copy(0, new, sent)
        ), _sending(sent)


def _sending(signature: Tensor) -> Cost:
    """What it costs clients to send their vectors [C, d, p], those that are there."""
    numbers = signature.shape[1] * int(dimensions(signature).sum())
    return Cost(floats_up=numbers, notes={"signature_bytes": 4 * numbers})

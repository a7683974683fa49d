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
Differs from the released code (MMorafah/PACFL 7ef000d): the vectors are those of all inputs of a
client, as in the paper; the code takes some per class (main_pacfl.py:256-282) and the least entry
of arccos(U_i' U_j) (src/clustering/hierarchical_clustering.py:31-32), neither of which the paper
has.

Its average linkage is the weighted one (WPGMA, hierarchical_clustering.py:64-70), and it takes raw
pixels (main_pacfl.py:257-259); here linkage is that of `method`, and inputs are normalised as a
model sees them. A client sends d numbers for each of its vectors once: `signature_bytes`, which
`bytes` contains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.parts.clustering import grouped, nearest_members, tables_of_pairs
from fedclust.algorithms.steps import Aggregation, arrived, clients_with_data, federated_averaging
from fedclust.core.front import Clients
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, Method
from fedclust.helpers.errors import require
from fedclust.helpers.ops import symmetric
from fedclust.helpers.ranges import AtLeastOne

Angle = Literal["smallest", "sum"]
_BLOCK = 2**21  # pairs of vectors in one piece of work


@dataclass(frozen=True, kw_only=True)
class PACFL(Method):
    """One clustering by the clients' inputs before the first round, then FedAvg in every
    cluster.
    """

    solver: Solver
    # distances to clusters; knows their number, or the distance at which to stop
    method: ClusterMethod
    num_vectors: AtLeastOne = 3  # p in the paper
    # distance of two clients: the `smallest` principal angle, eq. (2), or the `sum` of all, eq.
    # (3), in degrees.
    angle: Angle = "sum"
    aggregation: Aggregation = "by_samples"

    unnoised = "directions of data"
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and what the server knows of the clients' data."""

        models: Tensor  # [K, P]
        label: Tensor  # [M] int64 cluster, -1 for clients without one
        signature: Tensor  # [M, d, p] principal vectors, 0 for clients that have sent none

    tables = tables_of_pairs

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Clusters by the data, and the same fresh model for each."""
        ids, features = clients_with_data(rnd), math.prod(rnd.fed.pool.shape)
        allowed = f"at most the {features} features of an example"
        numbers = rnd.fed.pool.vocabulary is None
        require(numbers, "algorithm", "pacfl", "another one, since token ids have no directions")
        require(self.num_vectors <= features, "algorithm.num_vectors", self.num_vectors, allowed)
        sent = signatures(ids, self.num_vectors, rnd)
        distance = symmetric(self.distance(sent, sent))
        label, num_clusters, found = grouped(self.method, distance, ids, rnd)
        state = self.State(
            models=clients.init(rnd.stream("init"), 1).repeat(num_clusters, 1),
            label=label,
            signature=sent.new_zeros(rnd.fed.num_clients, *sent.shape[1:]).index_copy(0, ids, sent),
        )
        return state, found.plus(_sending(sent))

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg in every cluster, newcomers first."""
        state, sending = self._admit(state, rnd)
        label = state.label[rnd.cohort]
        models, cost = federated_averaging(self, clients, state.models, label, rnd)
        return replace(state, models=models), sending.plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
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
    """The cost of sending vectors [C, d, p], those that are not 0."""
    numbers = signature.shape[1] * int(dimensions(signature).sum())
    return Cost(floats_up=numbers, notes={"signature_bytes": 4 * numbers})


def principal_vectors(x: Tensor, num_vectors: int) -> Tensor:
    """The leading left singular vectors of examples x [n, d] as columns, not centred, [d, p]
    float32; 0 past the rank of the examples. The sign of a column means nothing.
    """
    count, size = x.shape
    wide = x.double()
    # the smaller of the two product matrices has the same leading singular values
    gram = wide @ wide.T if count < size else wide.T @ wide
    square, vector = torch.linalg.eigh(gram)  # ascending
    square, vector = square.flip(0)[:num_vectors], vector.flip(1)[:, :num_vectors]
    if count < size:
        vector = wide.T @ vector / square.clamp(min=0).sqrt().clamp(min=1e-300)
    known = square > 1e-12 * square[:1]
    out = x.new_zeros(size, num_vectors, dtype=torch.float32)
    out[:, : len(square)] = vector.masked_fill(~known, 0).float()
    return out


def signatures(ids: Tensor, num_vectors: int, rnd: Round) -> Tensor:
    """The p principal vectors of the clients' training inputs, [C, d, p]; one client at a time."""
    pool = rnd.fed.pool
    found = [
        principal_vectors(pool.inputs(rnd.fed.train.of_client(client)).flatten(1), num_vectors)
        for client in ids.tolist()
    ]
    return torch.stack(found)


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    """Angles between subspaces in degrees, [C, K, p] float32 in [0, 90], ascending.

    The cosines of the principal angles are the singular values of A'B (Björck, Golub, Mathematics
    of Computation 1973), so neither signs nor the choice of basis matter. There are as many angles
    as the smaller subspace has dimensions; the mean of them stands for the others, so that few
    examples bring a client neither near nor far. With nothing that meets nothing it is 90.

    Args:
        a: [C, d, p] with orthonormal columns, then zeros.
        b: [K, d, p] likewise.
    """
    pieces = []
    rank = dimensions(a).unsqueeze(1).minimum(dimensions(b)).unsqueeze(2)  # [C, K, 1]
    known = torch.arange(a.shape[2], device=a.device) < rank  # [C, K, p]
    step = max(1, _BLOCK // max(1, len(b) * a.shape[2] ** 2))
    for first in range(0, len(a), step):
        rows = a[first : first + step]
        product = torch.einsum("cdp,kdq->ckpq", rows, b)
        pieces.append(torch.linalg.svdvals(product).clamp(max=1).acos().rad2deg())
    angles = torch.cat(pieces)
    mean = angles.where(known, 0).sum(2, keepdim=True) / rank.clamp(min=1)
    return angles.where(known, mean.where(rank > 0, 90))


def dimensions(vectors: Tensor) -> Tensor:
    """How many columns of [C, d, p] are not zero, [C] int64."""
    return (vectors != 0).any(1).sum(1)

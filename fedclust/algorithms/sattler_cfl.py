"""CFL, clusters split where clients disagree: Sattler, Müller, Samek, IEEE TNNLS 2020.

https://arxiv.org/abs/1910.01991, Algorithms 1 to 3. FedAvg, until the mean update of a cluster has
become small while single clients still want to move: there the cluster is split in two by the
angles of the updates.

Differs from the paper:
- Not everybody takes part in every round: a split is decided on the members whose last update is at
  most `memory` rounds old and began with a model of this cluster. The other members, and newcomers,
  join the cluster of least training loss. With everybody in every round this is the paper's method.
- Newcomers do not descend the tree of splits, which needs the updates of every split kept.
- The mean of the updates is that of `aggregation`; the paper weights by examples.
Differs from the released code (felisat/clustered-federated-learning 23a1c38, its notebook and
fl_devices.py):
- Splits are the optimal ones of Algorithm 1, which is single linkage; `bipartition: complete` is
  the code's (fl_devices.py:132-137).
- The code has no criterion on gamma; that is `gamma_max: 0`.
- The code splits after round 20 only, clusters of more than two clients, and multiplies the rate by
  0.99 every round (fl_devices.py:108, `solver.decay`); here neither rounds nor members are bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest
from fedclust.algorithms.steps import Shares, arrived, average, clients_with_data, weights
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.ops import cluster_mean, cosine
from fedclust.helpers.ranges import AtLeastOne, BelowOne, NonNegative

Bipartition = Literal["optimal", "complete"]


@dataclass(frozen=True, kw_only=True)
class SattlerCFL(Method):
    """FedAvg in clusters that split; keeps M updates in memory."""

    solver: Solver  # local work
    eps1: NonNegative  # a cluster may split when the norm of its mean update is below
    eps2: NonNegative  # and some member's update has a norm above
    # least separation: a split needs sqrt((1 - a) / 2) > gamma_max, where a is the largest cosine
    # across it; 0 takes every split
    gamma_max: BelowOne = 0.5
    # `optimal`, the one with the least a, or by `complete` linkage
    bipartition: Bipartition = "optimal"
    memory: AtLeastOne = 5  # rounds for which an update counts
    aggregation: Shares = "by_samples"

    unnoised = "updates of single clients, which are compared"
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and what clients last wanted."""

        models: Tensor  # [K, P]
        born: Tensor  # [K] int64 round at whose end the cluster came to be
        label: Tensor  # [M] int64 cluster, -1 for clients without one
        update: ClientModels  # [M, P] last update of every client
        updated: Tensor  # [M] int64 round of that update, -1 for none

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        model, label = clients.init(rnd.stream("init"), 1), torch.full_like(rnd.fed.group, -1)
        still = torch.zeros_like(clients.layout.of_trained(model))
        update = ClientModels.alike(still, rnd.fed.num_clients)
        state = self.State(models=model, born=label[:1], label=label, update=update, updated=label)
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Local training, splits, and the mean in every cluster, the new ones included."""
        cohort, ids = rnd.cohort, clients_with_data(rnd)
        placed, joining = join_cheapest(state.models, state.label, ids, clients)
        local = clients.train(Train(state.models, placed[cohort], cohort, self.solver))
        update = clients.layout.of_trained(local.params - state.models[placed[cohort]])
        state = replace(
            state,
            label=placed,
            update=state.update.replaced(cohort, update),
            updated=state.updated.index_fill(0, cohort, rnd.t),
        )
        state, notes = self._split(state, rnd)
        label = state.label[cohort]
        models, cost = average(clients, local, state.models, label, cohort, rnd, self.aggregation)
        label, joining_again = join_cheapest(models, state.label, ids, clients)
        cost = cost.plus(joining).plus(joining_again)
        noted = Cost(notes={**notes, "num_clusters_found": len(models)})
        return replace(state, models=models, label=label), cost.plus(noted)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _split(self, state: State, rnd: Round) -> tuple[State, dict[str, float]]:
        """The state with every cluster split that should be, and the norms that decided.

        A new cluster begins as a copy of the old one. Members that did not decide lose their label.
        """
        fresh = state.updated > state.born[state.label.clamp(min=0)].clamp(min=rnd.t - self.memory)
        known = rnd.present & (state.label >= 0) & fresh
        models, born, label = [state.models], state.born.clone(), state.label
        means, most = list[float](), list[float]()
        for cluster in range(len(state.models)):
            members = (known & (state.label == cluster)).nonzero().squeeze(1)
            if not len(members):
                continue
            update = state.update[members]
            mean, largest = norms(update, weights(members, rnd, self.aggregation))
            means.append(mean)
            most.append(largest)
            if (side := self.sides(update, mean, largest)) is None:
                continue
            label = label.masked_fill(state.label == cluster, -1)
            label = label.index_copy(0, members, torch.where(side, len(born), cluster))
            models.append(state.models[cluster : cluster + 1])
            born[cluster] = rnd.t
            born = torch.cat([born, torch.full_like(born[:1], rnd.t)])
        notes = {"mean_update_norm": min(means), "max_update_norm": max(most)} if means else {}
        return replace(state, models=torch.cat(models), born=born, label=label), notes

    def sides(self, update: Tensor, mean_norm: float, largest_norm: float) -> Tensor | None:
        """Which of two new clusters every member goes to, [C] bool, by their updates [C, P], the
        norm of the mean and the largest norm; None for no split.
        """
        if len(update) < 2 or mean_norm >= self.eps1 or largest_norm <= self.eps2:
            return None
        side, across = bipartition(cosine(update, update), self.bipartition)
        return side if math.sqrt((1 - across) / 2) > self.gamma_max else None


def norms(update: Tensor, weight: Tensor | None) -> tuple[float, float]:
    """Norm of the mean of updates [C, P] with weights [C], and the largest norm of an update."""
    one = torch.zeros(len(update), dtype=torch.int64, device=update.device)
    mean = cluster_mean(update, one, weight, empty=update.new_zeros(1, update.shape[1]))
    return float(mean.norm()), float(torch.linalg.vector_norm(update, dim=1).max())


def bipartition(similarity: Tensor, how: Bipartition) -> tuple[Tensor, float]:
    """Which of two sides every row is on, [C] bool with False first, and the largest similarity
    across.

    Args:
        how: `optimal` makes the largest similarity across as small as it can be (Algorithm 1:
            joining the most similar pairs until two sets are left, that is single linkage), or
            `complete` linkage.
    """
    distance = (1 - similarity).double().cpu().numpy()
    distance = np.maximum(distance, distance.T)  # a product need not be symmetric to the last bit
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance), "single" if how == "optimal" else "complete")
    cut = cut_tree(tree, 2).squeeze(1)
    side = torch.from_numpy(cut != cut[0]).to(similarity.device)
    return side, float(similarity[~side][:, side].max())

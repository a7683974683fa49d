"""CFL-GP, clustering by gradient-based partitioning: Kim, Kim, de Veciana, ICML 2024.

https://proceedings.mlr.press/v235/kim24p.html, Algorithm 1. Every P_c rounds clients send gradients
at the clusters' models; the server keeps their moving mean per client, reduces it by a singular
value decomposition, clusters what is left, and matches the new clusters to the old ones.

Differs from the paper:
- All models begin as copies of one, so that the first gradients belong to all of them.
- A model is the mean of what its clients made of it; `solver.steps=1` is the paper's step along the
  mean gradient.
- Not everybody need take part: those who have sent gradients are clustered, once they are as many
  as the clusters; the others join the cluster of least training loss.
Differs from the released code (Heasung-Kim/clustered-federated-learning-via-gradient-based-
partitioning 0b1b4dd, learning_agent/central_unit.py):
- Its gradients are those at a client's own model (`gradients: own`), and for K * P_c rounds each
  replaces the one before (lines 229-237, `accumulation: released`).
- Its k-means has one start; `method.starts` is ten. Where the number of clusters is unknown, the
  largest gap between singular values says how many directions it keeps, three at least.
- Clients train the model of their new cluster; the code adds to it a gradient at their old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest, serve_joined
from fedclust.algorithms.parts.clustering import tables_of_pairs
from fedclust.algorithms.parts.matching import at_most, renumbered
from fedclust.algorithms.steps import Aggregation, clients_with_data, federated_averaging
from fedclust.core.front import Clients, Gradient
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, Method
from fedclust.helpers.errors import DivergedError, require
from fedclust.helpers.ops import distances, gram, leading_coordinates
from fedclust.helpers.ranges import AtLeastOne

Accumulation = Literal["mean", "released"]
Gradients = Literal["all", "first", "own"]


@dataclass(frozen=True, kw_only=True)
class CFLGP(Method):
    """K models, and a clustering of kept gradients every few rounds; keeps M or M K of them."""

    solver: Solver  # local work; the gradients are of one batch of its size
    num_clusters: AtLeastOne  # K, or the most that `method` may find; its `auto` tries no more
    method: ClusterMethod  # distances of the reduced gradients to clusters
    # rounds from one clustering to the next, P_c in the paper; the first is in round 0
    period: AtLeastOne = 2
    clusterings: AtLeastOne = 5  # how many there are, T_cl in the paper
    # singular directions kept, None for K; a large common gradient takes one
    num_components: AtLeastOne | None = None
    gradients: Gradients = "all"  # at `all` models, at the `first`, or at each client's `own`
    # `mean` of a client's gradients, or with the beta_t of the `released` code
    accumulation: Accumulation = "mean"
    aggregation: Aggregation = "by_samples"

    unnoised = "gradients of single clients, which are compared"
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and the gradients."""

        models: Tensor  # [K, P]
        label: Tensor  # [M] int64 cluster, -1 for clients without one
        profile: Tensor  # [M, B P] kept gradients at B models, K or 1; column i of G in the paper
        sent: Tensor  # [M] int64 how many times a client has sent gradients

    tables = tables_of_pairs

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The same fresh model for every cluster; nobody has sent anything."""
        k, size = self.num_clusters, len(clients_with_data(rnd))
        require(k <= size, "num_clusters", k, f"at most the {size} clients to cluster")
        model, label = clients.init(rnd.stream("init"), 1), torch.full_like(rnd.fed.group, -1)
        models, blocks = model.repeat(k, 1), k if self.gradients == "all" else 1
        profile = model.new_zeros(len(label), blocks * model.shape[1])
        return self.State(models=models, label=label, profile=profile, sent=label + 1), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A clustering where one is due, then one round of FedAvg in every cluster."""
        cohort, partition = rnd.cohort, Cost()
        if rnd.t % self.period == 0 and rnd.t // self.period < self.clusterings:
            state, partition = self._partition(state, clients, rnd)
        label, joining = join_cheapest(state.models, state.label, cohort, clients)
        models, cost = federated_averaging(self, clients, state.models, label[cohort], rnd)
        state = replace(state, models=models, label=label)
        return state, cost.plus(joining).plus(partition)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return serve_joined(state.models, state.label, clients, rnd)

    def _partition(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Gradients of the cohort, and new clusters of all who have sent any."""
        cohort, k = rnd.cohort, self.num_clusters
        at = self._asked_at(state.label[cohort])
        number = state.sent[cohort].double() + 1
        if self.accumulation == "released":
            number = torch.full_like(number, (rnd.t + 1) // (k * self.period) + 1)
        profile = self._collected(state, at, cohort, 1 / number, clients)
        sent = state.sent.index_add(0, cohort, torch.ones_like(cohort))
        state = replace(state, profile=profile, sent=sent)
        # whoever has all models need not be sent its own again
        down = k - 1 if self.gradients == "all" else 1
        cost = Cost(models_down=down * len(cohort), models_up=len(at) * len(cohort))
        ids = ((sent > 0) & rnd.present).nonzero().squeeze(1)
        if len(ids) < k:
            return state, cost
        place = reduced(profile[ids], self.num_components or k)
        method = at_most(self.method, k)
        labels = method(distances(place, place), rnd.stream("clustering")).to(ids.device)
        label = state.label.index_copy(0, ids, renumbered(labels, state.label[ids], k))
        notes = {"num_clusters_found": int(labels.max()) + 1}
        return replace(state, label=label), replace(cost, notes=notes)

    def _asked_at(self, label: Tensor) -> list[Tensor]:
        """At which model [C] each client, of the cluster `label` [C], takes its gradient, for every
        block of a profile; without a cluster, -1, its own model is the first.
        """
        if self.gradients == "own":
            return [label.clamp(min=0)]
        blocks = self.num_clusters if self.gradients == "all" else 1
        return [torch.full_like(label, k) for k in range(blocks)]

    def _collected(
        self, state: State, at: Sequence[Tensor], ids: Tensor, beta: Tensor, clients: Clients
    ) -> Tensor:
        """The profiles [M, B P] after new gradients: G_i <- (1 - beta_i) G_i + beta_i g_i.

        Args:
            at: of each of the B blocks, at which model [C] every client takes its gradient.
            ids: [C] int64 the clients that send.
            beta: [C] in (0, 1], weight of the new gradient.
        """
        after, weight = state.profile.clone(), beta.to(state.profile.dtype).unsqueeze(1)
        size, batch = state.models.shape[1], self.solver.batch_size
        for block, label in enumerate(at):
            columns = slice(block * size, (block + 1) * size)
            before = state.profile[ids, columns]
            gradient = clients.grad(Gradient(state.models, label, ids, batch))
            after[ids, columns] = before + weight * (gradient - before)
        return after


def reduced(profile: Tensor, num_components: int) -> Tensor:
    """Columns of U_m' G for G = U S V', whose columns are the profiles: [A, m] float64, on the
    host.

    Their products are the best approximation of rank m of G'G. Signs are arbitrary.

    Args:
        num_components: m, at least 1; at most A count.

    Raises:
        DivergedError: if a gradient is not finite.
    """
    products = gram(profile, profile.new_zeros(1, profile.shape[1])).cpu()
    if not bool(products.isfinite().all()):
        raise DivergedError("a gradient of a client is not finite; a smaller solver.lr may help")
    return leading_coordinates(products, min(num_components, len(profile)))

"""LCFL: Gu, Chen, Wen, Cai, Han, Novel clustered federated learning based on local loss, 2024.

https://arxiv.org/abs/2407.09360, Algorithm 1. DiffNorm and GradCos of its figures are the same
method with another `metric`, FL+HC and k-means on models also with another warm-up.

Differs from the paper:
- Where the clusters start is left open, section III-B lets it be the local models: here it is the
  server's model.
- The sampled clients are averaged; the paper leaves the federated optimiser open.
- A client that arrives after the clustering joins the cluster of least training loss; the paper has
  none.
Differs from the released code (wenh06/LCFL):
- The metric uses training data only (`cluster_metric.data`); k-medoids takes the best of several
  starts (`cluster_method.variant`).
- Clients are tested with their cluster's model; the code tests participants with the model they
  trained last (`algorithm=last_local` records both).
- Cluster updates are divided by the number of participants; the code divides by rate * cluster
  size, which over-steps small clusters (`divisor: planned`).
More in `fedclust.algorithms.warmup`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.parts.cheapest import join_cheapest
from fedclust.algorithms.parts.clustering import check_size, clustered, tables_of_pairs
from fedclust.algorithms.steps import (
    Aggregation,
    arrived,
    average,
    clients_with_data,
    train_and_average,
    zeros,
)
from fedclust.algorithms.warmup import Warmup
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import ClusterMethod, ClusterMetric, Method
from fedclust.helpers.ops import on_host
from fedclust.helpers.ranges import Fraction

Divisor = Literal["participants", "planned"]


@dataclass(frozen=True, kw_only=True)
class LCFL(Method):
    """One clustering by how models fit each other's data, then FedAvg in every cluster."""

    solver: Solver  # local work
    # fraction of a cluster's clients in a round, at least one client; None for the fraction that
    # the run samples, rounded in each cluster; `total` for as many clients as the run samples, see
    # `shared_out`
    participation: Fraction | Literal["total"] | None
    aggregation: Aggregation = "by_samples"
    # the updates of a cluster are divided by its `participants`, or by the `planned` number of
    # them, participation times the cluster's size, as in the released code: a cluster of one client
    # then takes a step of 1 / participation times its update
    divisor: Divisor = "participants"
    metric: ClusterMetric  # dissimilarity of two clients
    method: ClusterMethod  # dissimilarities to clusters; knows their number
    warmup: Warmup  # how the clients get the models that are compared

    unnoised = "models and losses of the warm-up, which are compared"
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models and who uses them."""

        models: Tensor  # [1, P] during the warm-up, [K, P] after the clustering
        label: Tensor  # [M] int64 cluster, -1 for clients without one
        # [M, P] each client's own model during the warm-up, None after the clustering
        local: ClientModels | None
        trained: Tensor  # [M] bool, who has trained during the warm-up

    def remark(self, rounds: int) -> str:
        return self.warmup.remark(rounds)

    def tables(self, num_clients: int) -> Mapping[str, int]:
        note = " (cluster_metric.landmarks spares losses, not these)"
        return tables_of_pairs(self, num_clients, note)

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
        """A warm-up round, or one in the clusters, once they are found."""
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
        local = clients.train(Train(models, label, cohort, self.solver))
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
        labels, k, cost = clustered(self.metric, self.method, state.local, server, clients, rnd)
        state = replace(state, models=server.repeat(k, 1), label=labels, local=None)
        return state, covering.plus(cost)

    def train_clusters(
        self, models: Tensor, label: Tensor, clients: Clients, rnd: Round
    ) -> tuple[Tensor, Tensor, Cost]:
        """Lines 13-15, FedAvg in every cluster: models [K, P], labels [M] (-1 for clients that
        arrived after the clustering), and what it cost.
        """
        ids = clients_with_data(rnd)
        label, joining = join_cheapest(models, label, ids, clients)
        part = self.participation
        share = rnd.share if part is None or part == "total" else part
        cohort = cluster_cohorts(label, ids, share, rnd, in_total=part == "total")
        after, _, cost = train_and_average(
            clients, models, label[cohort], cohort, self.solver, self.aggregation, rnd
        )
        if self.divisor == "planned":
            size, number = (label[c].bincount(minlength=len(models)) for c in (ids, cohort))
            factor = (number / (share * size).clamp(min=1e-9)).to(models.dtype).unsqueeze(1)
            further = clients.layout.joined(models + factor * (after - models), after)
            after = clients.server.passed_on(after, further)
        return after, label, cost.plus(joining)


def _keep(state: LCFL.State, ids: Tensor, params: Tensor) -> LCFL.State:
    """The state in which the clients `ids` [C] have just trained `params` [C, P]."""
    if state.local is None or not len(ids):
        return state
    local = state.local.replaced(ids, params)
    return replace(state, local=local, trained=state.trained.index_fill(0, ids, True))


def cluster_cohorts(
    label: Tensor, ids: Tensor, share: float, rnd: Round, *, in_total: bool = False
) -> Tensor:
    """The round's participants, at least one of every cluster with clients, [C] int64 sorted.

    Args:
        label: [M] int64 cluster of every client.
        ids: [A] int64 the clients to draw from, each with a cluster.
        share: fraction of the clients: of each cluster's, or with `in_total` of all.
    """
    # on the host, which else would wait in every cluster to hear how many there are
    among, known, dropped = on_host(ids, label[ids], rnd.dropped)
    host, size = replace(rnd, dropped=dropped), known.bincount(minlength=1).tolist()
    if in_total:
        counts = shared_out(max(1, round(share * len(among))), size)
    else:
        counts = [max(1, round(share * members)) for members in size]
    cohorts = [host.sample(n, among=among[known == k]) for k, n in enumerate(counts)]
    return torch.cat(cohorts).sort().values.to(label.device, non_blocking=True)


def shared_out(total: int, size: Sequence[int]) -> list[int]:
    """How many clients of every cluster take part, `total` altogether, by largest remainder.

    Each cluster with clients has one seat at least, so that with more clusters than `total` they
    are more. Ties go to the first cluster.

    Args:
        total: participants, at most as many as there are clients.
        size: clients of every cluster.
    """
    everybody = max(1, sum(size))
    seats = [max(min(1, members), total * members // everybody) for members in size]

    def missing(k: int) -> int:
        return total * size[k] - seats[k] * everybody

    while sum(seats) < total:
        seats[max(range(len(size)), key=missing)] += 1
    while sum(seats) > max(total, sum(map(bool, size))):
        seats[min((k for k in range(len(size)) if seats[k] > 1), key=missing)] -= 1
    return seats

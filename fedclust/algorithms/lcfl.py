"""LCFL: Gu, Chen, Wen, Cai, Han, Novel clustered federated learning based on local loss, 2024.

https://arxiv.org/abs/2407.09360, Algorithm 1. DiffNorm and GradCos of its figures are the same
method with another `metric`.

Differs from the paper:
- The warm-up is by default what the released code does and what the published tables contain:
  rounds of FedAvg that count as rounds, after which every cluster starts from the server's model.
  `warmup.mode: local` is the printed one. Where the clusters then start is left open, section III-B
  lets it be the local models: here it is the server's initial model.
- Within a cluster the sampled clients are averaged; the paper leaves the federated optimiser open.
- A client that arrives after the clustering joins the cluster of least training loss; the paper has
  none.
Differs from the released code (wenh06/LCFL):
- The metric uses training data only; the code adds the test data (`cluster_metric.data:
  train_and_test`).
- k-medoids takes the best of several starts; the code alternates from the most central clients
  (`cluster_method.variant: alternate`).
- Clients are tested with their cluster's model; the code tests participants with the model they
  trained last (`algorithm=last_local` records both).
- Clients never sampled in the warm-up train once before the metric (`warmup.cover_all`); the code
  uses their initial model.
- Cluster updates are divided by the number of participants; the code divides by rate * cluster
  size, which over-steps small clusters (`divisor: planned`).
Two of its relatives are other papers' methods with the same steps. FL+HC (arXiv:2004.11791) stops
merging at a distance, `method.threshold`; here the number of clusters is given unless that is set.
One-shot clustering (Ghosh, Hong, Yin, Ramchandran 2019, arXiv:1906.06629) solves every
client's problem and aggregates robustly in each cluster; here a client takes 100 steps and the
aggregate is the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from fedclust.algorithms import (
    Aggregation,
    arrived,
    average,
    check_choice,
    clients_with_data,
    join_cheapest,
    with_rows,
    zeros,
)
from fedclust.errors import require
from fedclust.ops import on_host
from fedclust.ranges import AtLeastOne, Fraction
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients, ClusterMethod, ClusterMetric

Divisor = Literal["participants", "planned"]
Mode = Literal["federated", "local"]


class CostedMetric(ClusterMetric, Protocol):
    """A cluster metric that knows what it sends."""

    def transfers(self, num_clients: int) -> tuple[int, int, int]:
        """Models sent to and from `num_clients` clients for the distances, and numbers from
        them.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """What happens before the clustering.

    Attributes:
        mode: `federated` rounds of FedAvg, or `local` training alone.
        rounds: federated: rounds of FedAvg, part of the run's rounds.
        participation: federated: fraction of the clients per warm-up round; None samples as the run
            does.
        cover_all: federated: clients that were never sampled train once before the metric is
            computed.
        fresh: federated: everybody trains once from the server's model before the metric is
            computed, so that it compares updates of one and the same model, as FL+HC does.
        steps: local: full-gradient steps, T in the paper.
        own_start: local: every client draws its own initial model; False starts all from the
            server's.
    """

    mode: Mode = "federated"
    rounds: AtLeastOne = 5
    participation: Fraction | None = None
    cover_all: bool = True
    fresh: bool = False
    steps: AtLeastOne = 10
    own_start: bool = True

    def __post_init__(self) -> None:
        check_choice("algorithm.warmup.mode", self.mode, Mode)
        require(self.rounds >= 1, "algorithm.warmup.rounds", self.rounds, "at least 1")
        require(self.steps >= 1, "algorithm.warmup.steps", self.steps, "at least 1")
        require(
            self.participation is None or 0 < self.participation <= 1,
            "algorithm.warmup.participation",
            self.participation,
            "a fraction in (0, 1], or null to sample as the run does",
        )

    def cohort(self, rnd: Round) -> Tensor:
        """Participants of a warm-up round, [C] int64 sorted."""
        if self.participation is None:
            return rnd.cohort
        ids = clients_with_data(rnd)
        return rnd.sample(max(1, round(self.participation * len(ids))), among=ids)

    def uncovered(self, ids: Tensor, trained: Tensor) -> Tensor:
        """Those of `ids` [A] that train once before the metric is computed; trained [M] bool."""
        if self.mode == "local":
            return ids[:0]
        if self.fresh:
            return ids
        return ids[~trained[ids]] if self.cover_all else ids[:0]


@dataclass(frozen=True, kw_only=True)
class LCFL:
    """One clustering by how well clients' models fit each other's data, then FedAvg in every
    cluster.

    Attributes:
        solver: local work.
        metric: dissimilarity of two clients.
        method: dissimilarities to clusters; knows their number.
        participation: fraction of a cluster's clients in a round, at least one client; None for the
            fraction that the run samples.
        warmup: how the clients get the models that are compared.
        aggregation: `uniform` mean over a cluster's participants, or weighted `by_samples`.
        divisor: the updates of a cluster are divided by its `participants`, or by the `planned`
            number of them, participation times the cluster's size, as in the released code: a
            cluster of one client then takes a step of 1 / participation times its update.
    """

    solver: Solver
    metric: CostedMetric
    method: ClusterMethod
    participation: Fraction | None
    warmup: Warmup
    aggregation: Aggregation = "uniform"
    divisor: Divisor = "participants"

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
        local: Tensor | None
        trained: Tensor

    def __post_init__(self) -> None:
        require(
            self.participation is None or 0 < self.participation <= 1,
            "algorithm.participation",
            self.participation,
            "a fraction in (0, 1], or null to sample as the run does",
        )
        check_choice("algorithm.aggregation", self.aggregation, Aggregation)
        check_choice("algorithm.divisor", self.divisor, Divisor)

    def remark(self, rounds: int) -> str:
        """What a user should know about a run of `rounds` rounds before it starts; empty for
        nothing.
        """
        if self.warmup.mode == "local" or rounds > self.warmup.rounds:
            return ""
        return (
            f"nobody is clustered: the warm-up takes {self.warmup.rounds} rounds and the run has "
            f"{rounds}; "
            "raise rounds or lower algorithm.warmup.rounds"
        )

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A fresh model; with the local warm-up also everything up to the clusters."""
        k, ids = getattr(self.method, "num_clusters", "auto"), len(clients_with_data(rnd))
        # the method would say so too, but only after the warm-up
        fits = not isinstance(k, int) or k <= ids
        allowed = f"at most the {ids} clients to cluster"
        require(fits, "num_clusters", k, allowed)
        directions = getattr(self.metric, "num_components", 0)
        require(directions <= ids, "cluster_metric.num_components", directions, allowed)
        model = clients.init(rnd.stream("init"), 1)
        state = self.State(
            models=model,
            label=torch.full_like(rnd.fed.group, -1),
            local=model.repeat(rnd.fed.num_clients, 1),
            trained=torch.zeros_like(rnd.present),
        )
        if self.warmup.mode == "federated":
            return state, Cost()
        state, alone = self._train_alone(state, clients, rnd)
        state, clustering = self._cluster(state, clients, rnd)
        return state, _joined(alone, clustering)

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A warm-up round, or a round inside the clusters; the first of these begins with the
        clustering.
        """
        if state.local is None:
            return self._train_clusters(state, clients, rnd)
        if rnd.t < self.warmup.rounds:
            return self._warm_up(state, clients, rnd)
        state, clustering = self._cluster(state, clients, rnd)
        state, training = self._train_clusters(state, clients, rnd)
        return state, _joined(clustering, training)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The server's model during the warm-up, then that of the client's cluster."""
        label = state.label if state.local is None else torch.zeros_like(state.label)
        return Served(models=state.models, label=arrived(label, rnd))

    def _warm_up(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg, keeping what every participant trained: v_i is its last local
        model.
        """
        assert state.local is not None
        cohort = self.warmup.cohort(rnd)
        label = zeros(cohort)
        local = clients.train(state.models, label, cohort, self.solver)
        models, cost = average(local, state.models, label, cohort, rnd, self.aggregation)
        kept = with_rows(state.local, cohort, local.params)
        trained = state.trained.index_fill(0, cohort, True)
        return replace(state, models=models, local=kept, trained=trained), cost

    def _train_alone(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Lines 1-5: `steps` full-gradient steps of every client, without communication."""
        assert state.local is not None
        ids = clients_with_data(rnd)
        solver = replace(self.solver, batch_size=None, epochs=None, steps=self.warmup.steps)
        if self.warmup.own_start:
            start, label = clients.init(rnd.stream("warmup"), len(ids)), torch.arange(len(ids))
        else:
            start, label = state.models, zeros(ids)
        local = clients.train(start, label.to(ids.device), ids, solver, purpose="warmup")
        kept = with_rows(state.local, ids, local.params)
        trained = state.trained.index_fill(0, ids, True)
        cost = Cost(
            models_down=0 if self.warmup.own_start else len(ids),  # the start comes from the server
            gradient_steps=int(local.steps.sum()),
            train_loss=float(local.loss.mean()),
        )
        return replace(state, local=kept, trained=trained), cost

    def _cluster(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Lines 6-12: distances between the clients that are there, and their clusters."""
        state, covering = self._cover(state, clients, rnd)
        assert state.local is not None
        ids = clients_with_data(rnd)
        # picking rows copies them: up to 1.5 GB that the usual case can do without
        models = state.local if len(ids) == len(state.local) else state.local[ids]
        distance = self.metric(clients, models, state.models, ids, rnd)
        found = self.method(distance, rnd.stream("clustering"))
        num_clusters = int(found.max()) + 1
        down, up, scalars = self.metric.transfers(len(ids))
        cost = Cost(
            models_down=down,
            models_up=up,
            scalars_up=scalars,
            notes={"num_clusters_found": num_clusters},
            arrays={"distance": distance},
        )
        label = state.label.index_copy(0, ids, found)
        clusters = state.models.repeat(num_clusters, 1)
        return replace(state, models=clusters, label=label, local=None), _joined(covering, cost)

    def _cover(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Clients whose model is missing train once from the server's; the metric counts the way
        back.
        """
        assert state.local is not None
        missed = self.warmup.uncovered(clients_with_data(rnd), state.trained)
        if not len(missed):
            return state, Cost()
        local = clients.train(state.models, zeros(missed), missed, self.solver, purpose="cover")
        kept = with_rows(state.local, missed, local.params)
        trained = state.trained.index_fill(0, missed, True)
        cost = Cost(models_down=len(missed), gradient_steps=int(local.steps.sum()))
        return replace(state, local=kept, trained=trained), cost

    def _train_clusters(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Lines 13-15: one round of FedAvg in every cluster, with a cohort of its own."""
        ids = clients_with_data(rnd)
        # some have arrived after the clustering
        label, sent = join_cheapest(state.models, state.label, ids, clients)
        cohort = self._sample(label, ids, rnd)
        local = clients.train(state.models, label[cohort], cohort, self.solver)
        models, cost = average(local, state.models, label[cohort], cohort, rnd, self.aggregation)
        if self.divisor == "planned":
            size, number = (label[c].bincount(minlength=len(models)) for c in (ids, cohort))
            planned = self._share(rnd) * size
            factor = (number / planned.clamp(min=1e-9)).to(models.dtype).unsqueeze(1)
            models = state.models + factor * (models - state.models)
        chosen = sent // len(state.models)  # whoever was sent all models says which it chose
        cost = replace(cost, models_down=cost.models_down + sent, scalars_up=chosen)
        return replace(state, models=models, label=label), cost

    def _share(self, rnd: Round) -> float:
        """Fraction of a cluster's clients that a round samples."""
        return rnd.share if self.participation is None else self.participation

    def _sample(self, label: Tensor, ids: Tensor, rnd: Round) -> Tensor:
        """The round's participants, at least one of every cluster with clients, [C] int64
        sorted.
        """
        # on the host, which else would wait in every cluster to hear how many there are
        among, known, dropped = on_host(ids, label[ids], rnd.dropped)
        host, cohorts, share = replace(rnd, dropped=dropped), [], self._share(rnd)
        for cluster in range(max([0, *known.tolist()]) + 1):
            members = among[known == cluster]
            count = max(1, round(share * len(members)))
            cohorts.append(host.sample(count, among=members))
        return torch.cat(cohorts).sort().values.to(label.device, non_blocking=True)


def _joined(first: Cost, second: Cost) -> Cost:
    """The costs of both; training loss and notes of the one that has them, of the second if both
    do.
    """
    return Cost(
        models_down=first.models_down + second.models_down,
        models_up=first.models_up + second.models_up,
        scalars_up=first.scalars_up + second.scalars_up,
        gradient_steps=first.gradient_steps + second.gradient_steps,
        train_loss=first.train_loss if math.isnan(second.train_loss) else second.train_loss,
        notes={**first.notes, **second.notes},
        arrays={**first.arrays, **second.arrays},
    )

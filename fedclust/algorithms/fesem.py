"""FeSEM: Xie, Long, Shen, Zhou, Wang, Jiang, Zhang, Multi-center federated learning, 2020.

https://arxiv.org/abs/2005.01026, Algorithm 1 (stochastic expectation maximisation), as FlexCFL
(arXiv:2108.09749) compares with it.

Differs from the paper:
- Only the sampled clients are assigned anew in a round.
- All clients begin at one common model, as in FlexCFL's code (flearn/actor.py:39,
  flearn/trainer/fesem.py:80-81); then all first assignments coincide, and one cluster tends to keep
  everybody. `first_assignment: kmeans_pretrained` begins with k-means on pre-trained models, and a
  new client pre-trains before it is assigned.
Differs from the released code (morningD/FlexCFL 968b5fa):
- A cluster takes the mean of all its participants; the code's mean keeps one
  (flearn/group.py:104-113, 167-168; `aggregation: first_client`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedclust.algorithms.cold_start import ColdStart, ShiftTest
from fedclust.algorithms.parts.apart import check_apart
from fedclust.algorithms.steps import FlexAggregation, arrived, average, each
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.effects import IfDataChange, OnlyWith
from fedclust.helpers.ops import distances
from fedclust.helpers.ranges import AtLeastOne

FirstAssignment = Literal["init_model", "kmeans_pretrained"]


@dataclass(frozen=True, kw_only=True)
class FeSEM(Method):
    """K models; a client joins the one nearest to its own last model. Keeps M models in memory."""

    solver: Solver
    num_clusters: AtLeastOne  # number of clusters
    # of `kmeans_pretrained`: pre-training and clustering
    cold_start: Annotated[ColdStart, OnlyWith("first_assignment", "kmeans_pretrained")]
    first_assignment: FirstAssignment = "init_model"  # see the top of the file
    # whether clients whose data shifted are assigned anew at once, which cannot help much: the
    # criterion does not look at the data
    migration: Annotated[bool, IfDataChange()] = False
    # with `migration`: the test that finds these clients, that of FlexCFL
    shift: Annotated[ShiftTest, OnlyWith("migration", True)] = field(default_factory=ShiftTest)
    # `uniform` mean over a cluster's participants, weighted `by_samples`, or `first_client`
    aggregation: FlexAggregation = "by_samples"

    unnoised = "models of single clients, which are compared"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Clusters, and the clients' own models."""

        models: Tensor  # [K, P]
        # [M, P] last local model of every client, the common one before its first training
        local: ClientModels
        label: Tensor  # [M] int64 last cluster, -1 for clients that were never sampled
        # [M, L + 1] int64 what the test of a shift compares with, None without migration
        reference: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_assignment == "kmeans_pretrained":
            self.cold_start.check(self.num_clusters)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Independent cluster models, or the means of clustered pre-trained models."""
        common = clients.init(rnd.stream("common"), 1)
        local = ClientModels.alike(common, rnd.fed.num_clients)
        label = torch.full_like(rnd.fed.group, -1)
        if self.first_assignment == "init_model":
            models, joined = clients.init(rnd.stream("init"), self.num_clusters), rnd.cohort[:0]
            cost = Cost()
            how = "algorithm.first_assignment=kmeans_pretrained"
            check_apart(clients.layout.of_trained(models), how)
        else:
            groups = self.cold_start.groups(clients, common, self.num_clusters, rnd)
            models, joined, cost = groups.models, groups.ids, groups.cost
            local = local.replaced(joined, groups.local.params)
            label = label.index_copy(0, joined, groups.label)
        reference = self.shift.start(rnd, joined) if self.migration else None
        state = self.State(models=models, local=local, label=label, reference=reference)
        return state, cost

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Assignment by distance, then one round of FedAvg in every cluster."""
        state, starting = self._pretrain(state, clients, rnd)
        moving, reference = self.shift.followed(state.label, state.reference, rnd)
        assigned = torch.cat([moving, rnd.cohort])  # one that is in both gets the same twice
        trained = clients.layout.of_trained
        nearest = distances(trained(state.local[assigned]), trained(state.models)).argmin(1)  # E
        every = state.label.index_copy(0, assigned, nearest)
        label = every[rnd.cohort]
        models, cohort = state.models, rnd.cohort
        local = clients.train(Train(models, label, cohort, self.solver))  # M-step
        models, cost = average(clients, local, models, label, cohort, rnd, self.aggregation)
        migrated = Cost(notes={"migrated": int((every[moving] != state.label[moving]).sum())})
        kept = state.local.replaced(rnd.cohort, local.params)
        state = self.State(models=models, local=kept, label=every, reference=reference)
        return state, starting.plus(cost).plus(migrated)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The client's last cluster; nobody serves a client before it was first sampled."""
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _pretrain(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """New clients of the cohort pre-train from the common model where the first ones did."""
        new = rnd.cohort[state.label[rnd.cohort] < 0]
        if self.first_assignment == "init_model" or not len(new):
            return state, Cost()
        own = each(new)
        solver = self.cold_start.solver
        local = clients.train(Train(state.local[new], own, new, solver, purpose="pretrain"))
        cost = Cost(models_down=len(new), models_up=len(new), gradient_steps=int(local.steps.sum()))
        return replace(state, local=state.local.replaced(new, local.params)), cost

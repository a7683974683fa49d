"""FlexCFL: Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren, Flexible clustered federated learning, IEEE
TPDS 2022.

https://arxiv.org/abs/2108.09749, Algorithms 2 and 3. FedGroup (Duan et al. 2021) of its tables is
the same method without migration and inter-group aggregation; RCC and RAC are other cold starts.

Differs from the paper:
- A group begins at the mean of its members' pre-trained models, as in the released code and
  Algorithm 3; the text starts all groups from the same model (`group_init: common`).
- Pre-training takes 50 steps, as in the released code; the paper names E epochs and one epoch.
- Means are weighted by the participants' examples; Algorithm 1 divides by the examples of all
  clients.
- Shifts are detected on relative label frequencies, see `fedclust.algorithms.shift`.
- Inter-group aggregation is the released code's, see `fedclust.algorithms.inter_group`.
Differs from the released code (morningD/FlexCFL):
- The code's test of a shift is blind to which label is which (`shift.distance: released`).
- The group cold start sees the data of round 0. Under scenario=incremental that is the first part
  of them, in the code all (`scenario.complete_start`).
- k-means runs until it converges; the code stops after 20 iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedclust.algorithms.cold_start import ColdStart
from fedclust.algorithms.inter_group import InterGroup
from fedclust.algorithms.joining import Joining, join
from fedclust.algorithms.shift import ShiftTest
from fedclust.algorithms.steps import Aggregation, arrived, train_and_average
from fedclust.helpers.effects import IfDataChange, OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients, Method

GroupInit = Literal["pretrained_mean", "common"]


@dataclass(frozen=True, kw_only=True)
class FlexCFL(Method):
    """Groups by the direction of early training; clients join when first sampled and move when data
    shift.

    Attributes:
        solver: local work.
        num_clusters: number of groups, m in the paper.
        cold_start: how the first clients form groups.
        group_init: a group begins at the `pretrained_mean` of its first members, or at the `common`
            model.
        joining: a later client pre-trains and joins the group whose `direction` its update points
            along, or a `random` one; a client whose data shift always looks for the direction.
        migration: whether a client whose data shifted starts cold again.
        shift: the test that finds these clients.
        inter_group: exchange between the groups.
        aggregation: `uniform` mean over a group's participants, or weighted `by_samples`.
    """

    solver: Solver
    num_clusters: AtLeastOne
    cold_start: ColdStart
    shift: Annotated[ShiftTest, OnlyWith("migration", True)]
    inter_group: InterGroup
    group_init: GroupInit = "pretrained_mean"
    joining: Joining = "direction"
    migration: Annotated[bool, IfDataChange()] = True
    aggregation: Aggregation = "by_samples"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Groups, and who belongs to them.

        Attributes:
            base: [1, P] common model that every pre-training starts from, w_0.
            models: [K, P].
            direction: [K, P] mean pre-training update of each group; never changes.
            label: [M] int64 group, -1 for clients that were never sampled.
            reference: [M, L + 1] int64 what the test of a shift compares with, None without
                migration.
        """

        base: Tensor
        models: Tensor
        direction: Tensor
        label: Tensor
        reference: Tensor | None

    def __post_init__(self) -> None:
        require(self.num_clusters >= 1, "num_clusters", self.num_clusters, "at least 1")
        self.cold_start.check(self.num_clusters)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The group cold start, Algorithm 3."""
        base = clients.init(rnd.stream("init"), 1)
        groups = self.cold_start.groups(clients, base, self.num_clusters, rnd)
        label = torch.full_like(rnd.fed.group, -1).index_copy(0, groups.ids, groups.label)
        means, k = groups.models, len(groups.models)
        state = self.State(
            base=base,
            models=means if self.group_init == "pretrained_mean" else base.repeat(k, 1),
            direction=means - base,
            label=label,
            reference=self.shift.start(rnd, groups.ids) if self.migration else None,
        )
        sent_to = len(groups.ids) if self.joining == "direction" else 0
        return state, groups.cost.plus(Cost(models_down=k * sent_to))

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Migration, joining of new clients, then FedAvg in every group: Algorithm 2."""
        moving, reference = self.shift.followed(state.label, state.reference, rnd)
        how = self.cold_start.solver, self.joining
        groups = state.base, state.direction, state.label
        known, joining = join(clients, *groups, moving, *how, rnd)
        label = known[rnd.cohort]
        models, local, cost = train_and_average(
            clients, state.models, label, rnd.cohort, self.solver, self.aggregation, rnd
        )
        models = self.inter_group(models)
        cost = cost.plus(self.inter_group.cost(models, local.params, label)).plus(joining)
        return replace(state, models=models, label=known, reference=reference), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of the client's group; nobody serves a client before it was first sampled."""
        return Served(models=state.models, label=arrived(state.label, rnd))

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
- Inter-group aggregation is the released code's convex combination; eq. (20) adds a vector of norm
  up to rate * (K - 1) in every round, which diverges (`inter_group.normalize: false`).
Differs from the released code (morningD/FlexCFL):
- The code's test of a shift is blind to which label is which (`shift.distance: released`).
- The group cold start sees the data of round 0. Under scenario=incremental that is the first part
  of them, in the code all (`scenario.complete_start`).
- k-means runs until it converges; the code stops after 20 iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms import Aggregation, arrived, average, check_choice
from fedclust.algorithms.cold_start import ColdStart
from fedclust.algorithms.shift import ShiftTest
from fedclust.errors import require
from fedclust.ops import discrepancy
from fedclust.ranges import AtLeastOne, NonNegative
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients

GroupInit = Literal["pretrained_mean", "common"]
Joining = Literal["direction", "random"]

_TINY_NORM = 1e-12  # below this a model has no direction


@dataclass(frozen=True, kw_only=True)
class InterGroup:
    """Groups move towards each other after each round: w_g + rate * sum over l != g of w_l /
    ||w_l||.

    Attributes:
        rate: eta_g in the paper; 0 keeps the groups apart.
        normalize: divide by 1 + rate * sum over l != g of 1 / ||w_l||, a convex combination of the
            models; False is eq. (20) as printed.
    """

    rate: NonNegative = 0.0
    normalize: bool = True

    def __post_init__(self) -> None:
        require(self.rate >= 0, "algorithm.inter_group.rate", self.rate, "at least 0")

    def __call__(self, models: Tensor) -> Tensor:
        """The models [K, P] after the exchange."""
        if self.rate == 0:
            return models
        norm = torch.linalg.vector_norm(models, dim=1)
        pull = self.rate * (norm >= _TINY_NORM) / norm.clamp(min=_TINY_NORM)  # [K]
        weight = pull.expand(len(models), -1) * ~torch.eye(
            len(models), dtype=torch.bool, device=norm.device
        )
        moved: Tensor = models + weight @ models  # eq. (20)
        return moved / (1 + weight.sum(1, keepdim=True)) if self.normalize else moved


@dataclass(frozen=True, kw_only=True)
class FlexCFL:
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
    shift: ShiftTest
    inter_group: InterGroup
    group_init: GroupInit = "pretrained_mean"
    joining: Joining = "direction"
    migration: bool = True
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
        check_choice("algorithm.group_init", self.group_init, GroupInit)
        check_choice("algorithm.joining", self.joining, Joining)
        check_choice("algorithm.aggregation", self.aggregation, Aggregation)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The group cold start, Algorithm 3."""
        base = clients.init(rnd.stream("init"), 1)
        groups = self.cold_start.groups(clients, base, self.num_clusters, rnd)
        label = torch.full_like(rnd.fed.group, -1).index_copy(0, groups.ids, groups.label)
        reference = self.shift.start(rnd, groups.ids) if self.migration else None
        state = self.State(
            base=base,
            models=groups.models
            if self.group_init == "pretrained_mean"
            else base.repeat(len(groups.models), 1),
            direction=groups.models - base,
            label=label,
            reference=reference,
        )
        sent_to = len(groups.ids) if self.joining == "direction" else 0
        down = groups.cost.models_down + len(state.direction) * sent_to
        return state, replace(groups.cost, models_down=down)

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Migration, cold starts of the cohort, then one round of FedAvg in every group: Algorithm
        2.
        """
        moving, reference = self.shift.followed(state.label, state.reference, rnd)
        new = rnd.cohort[state.label[rnd.cohort] < 0]
        known, looking, steps = self._join(state, moving, new, clients, rnd)
        label = known[rnd.cohort]
        local = clients.train(state.models, label, rnd.cohort, self.solver)
        averaged, cost = average(local, state.models, label, rnd.cohort, rnd, self.aggregation)
        models, notes = self.inter_group(averaged), dict(cost.notes)
        if self.inter_group.rate:  # eq. (3) is of the models that the round ends with
            notes["discrepancy"] = float(discrepancy(local.params, models, label))
        # whoever keeps the directions since it joined looks for its group without another transfer
        sent_to = len(new) if self.joining == "direction" else len(moving)
        cost = replace(
            cost,
            models_down=cost.models_down + len(state.direction) * sent_to,
            models_up=cost.models_up + (len(models) if self.inter_group.rate else 0),
            scalars_up=looking,  # who looks for a group alone says which it found
            gradient_steps=cost.gradient_steps + steps,
            notes={
                **notes,
                "joined": len(new),
                "migrated": int((known[moving] != state.label[moving]).sum()),
            },
        )
        return replace(state, models=models, label=known, reference=reference), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of the client's group; nobody serves a client before it was first sampled."""
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _join(
        self, state: State, moving: Tensor, new: Tensor, clients: Clients, rnd: Round
    ) -> tuple[Tensor, int, int]:
        """Labels [M] after all cold starts of the round, who looked for its group, and local steps.

        Args:
            state: before the round.
            moving: [A] int64 clients whose data shifted; they look for the direction in any case.
            new: [B] int64 clients without a group.
            clients: what computes.
            rnd: the round.
        """
        label, looking = state.label, torch.cat([moving, new]).sort().values
        if self.joining == "random":
            at_random = rnd.stream("join").keys(new).remainder(len(state.models))
            label, looking = label.index_copy(0, new, at_random), moving
        found, steps = self.cold_start.join(clients, state.base, state.direction, looking, rnd)
        return label.index_copy(0, looking, found), len(looking), steps

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
- Shifts are detected on relative label frequencies, see `ShiftTest`.
- Inter-group aggregation is by default the released code's convex combination. Eq. (20) adds a
  vector of norm up to rate * (K - 1) in every round, which diverges (`inter_group.normalize:
  false`).
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

from fedclust.algorithms.cold_start import ColdStart, ShiftTest
from fedclust.algorithms.steps import Aggregation, arrived, train_and_average, zeros
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.effects import IfDataChange, OnlyWith, OnlyWithout
from fedclust.helpers.ops import cosine, discrepancy
from fedclust.helpers.ranges import AtLeastOne, NonNegative, Ranged
from fedclust.models.params import Layout

GroupInit = Literal["pretrained_mean", "common"]
Joining = Literal["direction", "random"]
_CPU_BLOCK = 2**26  # numbers in the models of one block of joining clients: 256 MiB of float32
_GPU_BLOCK = 2**29
_TINY_NORM = 1e-12  # below this a model has no direction


@dataclass(frozen=True, kw_only=True)
class InterGroup(Ranged):
    """Groups move towards each other after each round, eq. (20): w_g + rate * sum over l != g of
    w_l / ||w_l||.
    """

    rate: NonNegative = 0.0  # eta_g in the paper; 0 keeps the groups apart
    # divide by 1 + rate * sum over l != g of 1 / ||w_l||, a convex combination of the models; False
    # is eq. (20) as printed.
    normalize: Annotated[bool, OnlyWithout("rate", 0.0)] = True

    def __call__(self, models: Tensor) -> Tensor:
        """The models [K, P] after the exchange."""
        if self.rate == 0:
            return models
        norm = torch.linalg.vector_norm(models, dim=1)
        pull = self.rate * (norm >= _TINY_NORM) / norm.clamp(min=_TINY_NORM)  # [K]
        others = ~torch.eye(len(models), dtype=torch.bool, device=norm.device)
        weight = pull.expand(len(models), -1) * others
        moved: Tensor = models + weight @ models  # eq. (20)
        return moved / (1 + weight.sum(1, keepdim=True)) if self.normalize else moved

    def cost(self, models: Tensor, params: Tensor | None, label: Tensor, layout: Layout) -> Cost:
        """The cost of an exchange that ends with the models [K, P], with eq. (3) of them and the
        participants' `params` [C, P] of the groups `label` [C]; without where these are None.
        """
        if self.rate == 0:
            return Cost()
        cost = Cost(models_up=len(models))
        if params is None:
            return cost
        trained = layout.of_trained
        gap = discrepancy(trained(params), trained(models), label)
        return replace(cost, notes={"discrepancy": float(gap)})


@dataclass(frozen=True, kw_only=True)
class FlexCFL(Method):
    """Groups by the direction of early training; clients join when first sampled and move when data
    shift.
    """

    solver: Solver  # local work
    num_clusters: AtLeastOne  # number of groups, m in the paper
    cold_start: ColdStart  # how the first clients form groups
    shift: Annotated[ShiftTest, OnlyWith("migration", True)]  # the test that finds these clients
    inter_group: InterGroup  # exchange between the groups
    # a group begins at the `pretrained_mean` of its first members, or at the `common` model
    group_init: GroupInit = "pretrained_mean"
    # a later client pre-trains and joins the group whose `direction` its update points along, or a
    # `random` one; a client whose data shift always looks for the direction
    joining: Joining = "direction"
    # whether a client whose data shifted starts cold again
    migration: Annotated[bool, IfDataChange()] = True
    aggregation: Aggregation = "by_samples"

    unnoised = "updates of single clients, which are compared"

    @property
    def apart(self) -> str:
        """Groups that do not move towards each other."""
        return "" if self.inter_group.rate else "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Groups, and who belongs to them."""

        base: Tensor  # [1, P] common model that every pre-training starts from, w_0
        models: Tensor  # [K, P]
        direction: Tensor  # [K, P] mean pre-training update of each group; never changes
        label: Tensor  # [M] int64 group, -1 for clients that were never sampled
        # [M, L + 1] int64 what the test of a shift compares with, None without migration
        reference: Tensor | None

    def __post_init__(self) -> None:
        super().__post_init__()
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
        known, joining = self._join(state, moving, clients, rnd)
        label = known[rnd.cohort]
        models, local, cost = train_and_average(
            clients, state.models, label, rnd.cohort, self.solver, self.aggregation, rnd
        )
        exchanged = self._exchanged(models, clients.layout)
        models = clients.server.passed_on(models, exchanged)
        among = self.inter_group.cost(models, local.params, label, clients.layout)
        cost = cost.plus(among).plus(joining)
        return replace(state, models=models, label=known, reference=reference), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of the client's group; nobody serves a client before it was first sampled."""
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _join(
        self, state: State, moving: Tensor, clients: Clients, rnd: Round
    ) -> tuple[Tensor, Cost]:
        """The labels [M] once the cohort's new clients found a group, and clients whose data
        shifted, `moving` [A] int64: they look for the direction in any case.
        """
        label, k = state.label, len(state.direction)
        new = rnd.cohort[label[rnd.cohort] < 0]
        after, looking = label, torch.cat([moving, new]).sort().values
        if self.joining == "random":
            at_random = rnd.stream("join").keys(new).remainder(k)
            after, looking = after.index_copy(0, new, at_random), moving
        solver = self.cold_start.solver
        chosen, steps = nearest(clients, state.base, state.direction, looking, solver)
        after = after.index_copy(0, looking, chosen)
        # whoever keeps the directions since it joined looks for its group without another transfer
        sent_to = len(new) if self.joining == "direction" else len(moving)
        return after, Cost(
            models_down=k * sent_to,
            scalars_up=len(looking),  # who looks for a group alone says which it found
            gradient_steps=steps,
            notes={"joined": len(new), "migrated": int((after[moving] != label[moving]).sum())},
        )

    def _exchanged(self, models: Tensor, layout: Layout) -> Tensor:
        """The models [K, P] after the exchange between groups, each with its own statistics."""
        moved = self.inter_group(layout.of_trained(models))
        return layout.joined(moved, models)


def nearest(
    clients: Clients, base: Tensor, direction: Tensor, ids: Tensor, solver: Solver
) -> tuple[Tensor, int]:
    """Group whose `direction` [K, P] a client's update from the common model `base` [1, P] points
    along most, [C] int64, and local steps.
    """
    label, steps, trained = torch.zeros_like(ids), 0, clients.layout.of_trained
    # a shift can move everybody at once: no more than one block of models is kept
    rows = max(1, (_GPU_BLOCK if base.is_cuda else _CPU_BLOCK) // base.shape[1])
    for begin in range(0, len(ids), rows):
        some = ids[begin : begin + rows]
        local = clients.train(Train(base, zeros(some), some, solver, purpose="pretrain"))
        # eq. (8): argmin of (1 - cos) / 2, ties to the smallest index
        update = trained(local.params - base)
        label[begin : begin + rows] = cosine(update, trained(direction)).argmax(1)
        steps += int(local.steps.sum())
    return label, steps

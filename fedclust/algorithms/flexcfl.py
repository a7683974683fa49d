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
- A client moves when the test finds a shift; the code also asks the simulator (`shift.oracle:
  true`).
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
from fedclust.federation import label_histogram
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

    rate: float = 0.0
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
            along, or a `random` one.
        migration: whether a client whose data shifted starts cold again.
        shift: the test that finds these clients.
        inter_group: exchange between the groups.
        aggregation: `uniform` mean over a group's participants, or weighted `by_samples`.
    """

    solver: Solver
    num_clusters: int
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
            histogram: [M, L] int64 training labels at the last cold start, 0 before the first.
        """

        base: Tensor
        models: Tensor
        direction: Tensor
        label: Tensor
        histogram: Tensor

    def __post_init__(self) -> None:
        require(self.num_clusters >= 1, "num_clusters", self.num_clusters, "at least 1")
        check_choice("algorithm.group_init", self.group_init, GroupInit)
        check_choice("algorithm.joining", self.joining, Joining)
        check_choice("algorithm.aggregation", self.aggregation, Aggregation)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The group cold start, Algorithm 3."""
        base = clients.init(rnd.stream("init"), 1)
        groups = self.cold_start.groups(clients, base, self.num_clusters, rnd)
        label = torch.full_like(rnd.fed.group, -1)
        state = self.State(
            base=base,
            models=groups.models
            if self.group_init == "pretrained_mean"
            else base.repeat(len(groups.models), 1),
            direction=groups.models - base,
            label=label,
            histogram=label.new_zeros(len(label), rnd.fed.pool.num_classes),
        )
        down = groups.cost.models_down + self._directions(state) * len(groups.ids)
        return self._settle(state, groups.ids, groups.label, rnd), replace(
            groups.cost, models_down=down
        )

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Migration, cold starts of the cohort, then one round of FedAvg in every group: Algorithm
        2.
        """
        moving = self._shifted(state, rnd)
        new = rnd.cohort[state.label[rnd.cohort] < 0]
        starting = torch.cat([moving, new]).sort().values
        found, steps = self._join(state, starting, clients, rnd)
        joined = self._settle(state, starting, found, rnd)
        label = joined.label[rnd.cohort]
        local = clients.train(state.models, label, rnd.cohort, self.solver)
        averaged, cost = average(local, state.models, label, rnd.cohort, rnd, self.aggregation)
        models = self.inter_group(averaged)
        cost = replace(
            cost,
            models_down=cost.models_down + self._directions(state) * len(new),
            models_up=cost.models_up + (len(models) if self.inter_group.rate else 0),
            # who looks for a group alone says which it found
            scalars_up=len(starting) if self.joining == "direction" else 0,
            gradient_steps=cost.gradient_steps + steps,
            notes={
                **cost.notes,
                "joined": len(new),
                "migrated": int((joined.label[moving] != state.label[moving]).sum()),
            },
        )
        return replace(joined, models=models), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of the client's group; nobody serves a client before it was first sampled."""
        return Served(models=state.models, label=arrived(state.label, rnd))

    def _shifted(self, state: State, rnd: Round) -> Tensor:
        """Clients with a group whose data are no longer those they joined it with, [A] int64
        sorted.
        """
        if not self.migration:
            return rnd.cohort[:0]
        warm = (rnd.present & (state.label >= 0) & (rnd.fed.train.count > 0)).nonzero().squeeze(1)
        now = label_histogram(rnd.fed, warm)
        return warm[self.shift(now, state.histogram[warm], rnd.shifted[warm])]

    def _settle(self, state: State, ids: Tensor, label: Tensor, rnd: Round) -> State:
        """The state in which `ids` [C] have the groups `label` [C] and their data are the
        reference.
        """
        return replace(
            state,
            label=state.label.index_copy(0, ids, label),
            histogram=state.histogram.index_copy(0, ids, label_histogram(rnd.fed, ids)),
        )

    def _join(self, state: State, ids: Tensor, clients: Clients, rnd: Round) -> tuple[Tensor, int]:
        """Group of every client that starts cold now [C] int64, and their local steps."""
        if self.joining == "random":
            return rnd.stream("join").keys(ids).remainder(len(state.models)), 0
        return self.cold_start.join(clients, state.base, state.direction, ids, rnd)

    def _directions(self, state: State) -> int:
        """Models a client is sent to find its group; it keeps them, so that moving later costs
        nothing.
        """
        return len(state.direction) if self.joining == "direction" else 0

"""Federated averaging inside the true groups: the upper baseline of the clustered methods.

Knows what the others have to find out, the group of every client; everything else is FedAvg, from
the same initial model for every group.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedclust.algorithms import Aggregation, arrived, average, check_choice
from fedclust.errors import require
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """One model per true group.

    Attributes:
        solver: local work.
        aggregation: `uniform` mean over a group's participants, or weighted `by_samples`.
    """

    solver: Solver
    aggregation: Aggregation = "uniform"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The groups' models.

        Attributes:
            models: [K, P], row g belongs to group g.
        """

        models: Tensor

    def __post_init__(self) -> None:
        check_choice("algorithm.aggregation", self.aggregation, Aggregation)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The same fresh model for every group.

        Raises:
            ConfigError: if a client has no true group.
        """
        known = rnd.fed.num_clients > 0 and int(rnd.fed.group.min()) >= 0
        require(
            known, "algorithm", "oracle", "a partition with true groups, such as partition=rotated"
        )
        model = clients.init(rnd.stream("init"), 1)
        return self.State(models=model.repeat(int(rnd.fed.group.max()) + 1, 1)), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg in every group."""
        label = rnd.fed.group[rnd.cohort]
        local = clients.train(state.models, label, rnd.cohort, self.solver)
        models, cost = average(local, state.models, label, rnd.cohort, rnd, self.aggregation)
        return self.State(models=models), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of the client's group."""
        return Served(models=state.models, label=arrived(rnd.fed.group, rnd))

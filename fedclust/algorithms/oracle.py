"""Federated averaging inside the true groups: the upper baseline of the clustered methods.

Everything else is FedAvg, from the same initial model for every group.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedclust.algorithms.steps import Aggregation, arrived, federated_averaging
from fedclust.core.front import Clients
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.errors import require


@dataclass(frozen=True, kw_only=True)
class Oracle(Method):
    """One model per true group."""

    solver: Solver  # local work
    aggregation: Aggregation = "by_samples"

    unnoised = ""
    apart = "clusters"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The groups' models."""

        models: Tensor  # [K, P], row g belongs to group g; also for concepts that come later

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The same fresh model for every group; a `ConfigError` if a client has no true group."""
        known = rnd.fed.num_clients > 0 and int(rnd.fed.group.min()) >= 0
        require(
            known, "algorithm", "oracle", "a partition with true groups, such as partition=rotated"
        )
        model = clients.init(rnd.stream("init"), 1)
        groups = max(int(rnd.fed.group.max()) + 1, rnd.fed.pool.concepts)
        return self.State(models=model.repeat(groups, 1)), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """One round of FedAvg in every group."""
        label = rnd.fed.group[rnd.cohort]
        models, cost = federated_averaging(self, clients, state.models, label, rnd)
        return self.State(models=models), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.models, label=arrived(rnd.fed.group, rnd))

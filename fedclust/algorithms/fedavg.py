"""Federated averaging: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, AISTATS 2017,
arXiv:1602.05629.

Algorithm 1. FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020, arXiv:1812.06127,
Algorithm 2) is the same class with `solver.proximal` above 0.

Differs from the papers:
- FedAvg weights by examples; here `aggregation` also offers the plain mean.
- FedProx draws clients with probability n_i / n; here they are drawn uniformly. Partial work is a
  matter of the scenario (`scenario=unavailable`), the same for every method.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.algorithms.steps import Aggregation, arrived, federated_averaging, zeros
from fedclust.core.front import Clients
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method


@dataclass(frozen=True, kw_only=True)
class FedAvg(Method):
    """One model for everybody."""

    solver: Solver  # local work
    aggregation: Aggregation = "by_samples"

    unnoised = ""

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The server's model."""

        model: Tensor  # [1, P]

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        return self.State(model=clients.init(rnd.stream("init"), 1)), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The mean of what the cohort made of the model."""
        label = zeros(rnd.cohort)
        model, cost = federated_averaging(self, clients, state.model, label, rnd)
        return self.State(model=model), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.model, label=arrived(torch.zeros_like(rnd.fed.group), rnd))

"""FedAvg with momentum on the server: Hsu, Qi, Brown 2019, arXiv:1909.06335."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.algorithms.steps import Aggregation, arrived, train_and_average, zeros
from fedclust.helpers.errors import require
from fedclust.solver import Solver
from fedclust.types import Cost, Round, Served
from fedclust.verbs import Clients, Method


@dataclass(frozen=True, kw_only=True)
class ServerMomentum(Method):
    """One model for everybody that goes on in the direction of earlier rounds.

    Attributes:
        solver: local work.
        beta: what is left of the velocity after a round, in [0, 1); 0 is FedAvg.
        aggregation: how participants are weighted. A method with this option averages: so
            aggregation=median, server=adam and the like can be used with it.
    """

    solver: Solver
    beta: float = 0.9
    aggregation: Aggregation = "by_samples"

    unnoised = ""  # clients send nothing but updates to be averaged: privacy=client noises all

    @dataclass(frozen=True, kw_only=True)
    class State:
        """All that changes, as tensors: it is saved and restored without further code.

        Attributes:
            model: [1, P].
            velocity: [1, P] sum of the mean updates so far, older ones weighing less.
        """

        model: Tensor
        velocity: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta < 1, "algorithm.beta", self.beta, "in [0, 1)")

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """A fresh model at rest."""
        model = clients.init(rnd.stream("init"), 1)
        return self.State(model=model, velocity=torch.zeros_like(model)), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Local training of the cohort, its mean update, and a step with momentum."""
        label = zeros(rnd.cohort)
        mean, _, cost = train_and_average(
            clients, state.model, label, rnd.cohort, self.solver, self.aggregation, rnd
        )
        velocity = self.beta * state.velocity + (mean - state.model)
        return self.State(model=state.model + velocity, velocity=velocity), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:  # noqa: ARG002
        """The one model for every client that is there."""
        return Served(models=state.model, label=arrived(torch.zeros_like(rnd.fed.group), rnd))

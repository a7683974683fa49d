"""SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, ICML 2020, arXiv:1910.06378.

Algorithm 1 with option II. Control variates estimate where the clients' and the server's gradients
point; the difference is added to every local gradient, so that clients do not drift apart.

Differs from the paper:
- A client that does part of its local steps divides by the steps it took.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.algorithms.parts.descent import check_descent
from fedclust.algorithms.steps import arrived, zeros
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.errors import require
from fedclust.helpers.ops import on_host
from fedclust.helpers.ranges import Positive


@dataclass(frozen=True, kw_only=True)
class Scaffold(Method):
    """One model for everybody, and a control variate per client; keeps M rows in memory."""

    # local work; without momentum, proximal term and weight decay, since option II reads gradients
    # off the movement
    solver: Solver
    server_lr: Positive = 1.0  # eta_g, the server's step along the mean movement

    whole = "reads a client's gradient off its movement"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The server's model and all control variates."""

        model: Tensor  # [1, P] x in the paper
        control: Tensor  # [1, P] the mean of all c_i, with 0 for clients that have not arrived
        controls: ClientModels  # [M, P], row i is c_i in the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        no = "0, because SCAFFOLD reads a client's gradient off its movement"
        check_descent(self.solver, no)
        for name in ("proximal", "weight_decay"):
            value = getattr(self.solver, name)
            require(value == 0, f"solver.{name}", value, no)

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        model = clients.init(rnd.stream("init"), 1)
        control = torch.zeros_like(model)
        controls = ClientModels.alike(control, rnd.fed.num_clients)
        return self.State(model=model, control=control, controls=controls), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The mean movement of the cohort, whose gradients were corrected by c - c_i."""
        cohort, before = rnd.cohort, state.controls[rnd.cohort]
        # c in the paper; who has not arrived has c_i = 0
        mean = state.control * (rnd.fed.num_clients / rnd.present.sum())
        linear = mean - before
        local = clients.train(
            Train(state.model, zeros(cohort), cohort, self.solver, LocalWork(linear=linear))
        )
        moved = local.params - state.model  # y_i - x
        steps = local.steps.clamp(min=1).unsqueeze(1) * self.solver.rate(rnd.t)
        after = -linear - moved / steps  # c_i+ = c_i - c + (x - y_i) / (K eta_l)
        change = (after - before).sum(0, keepdim=True) / rnd.fed.num_clients
        total, loss = on_host(local.steps.sum(), local.loss.mean())
        state = self.State(
            model=clients.layout.joined(
                state.model + self.server_lr * moved.mean(0, keepdim=True),
                local.params.mean(0, keepdim=True),
            ),
            control=state.control + change,
            controls=state.controls.replaced(cohort, after),
        )
        # the model and its control variate, each way
        sent = 2 * len(cohort)
        return state, Cost(
            models_down=sent, models_up=sent, gradient_steps=int(total), train_loss=float(loss)
        )

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        return Served(models=state.model, label=arrived(torch.zeros_like(rnd.fed.group), rnd))

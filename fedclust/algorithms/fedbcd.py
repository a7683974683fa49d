"""FedBCD, federated block coordinate descent: Wu, Scaglione, Wai, Karakoc, Hreinsson, Ma, AAAI
2021.

https://arxiv.org/abs/2012.13900; a baseline of CFL-MGD (Electronics 2023, 12, 1972). Minimises
sum_i f_i(w_i) + rho / 2 * |w_i - x|^2 in turn over the clients' models w_i, by local steps, and
over the server's model x, exactly. The coefficient rho is `solver.proximal`.

Differs from the paper:
- One synchronous server; the paper has several, which agree on x among themselves, and an
  asynchronous form.
- Clients are drawn as for every method here, and the others enter the mean with the model they sent
  last.
- The local solver is the run's, so it may use mini-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.steps import arrived, clients_with_data, each, zeros
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.ops import cluster_mean

ServedModel = Literal["global", "personal"]


@dataclass(frozen=True, kw_only=True)
class FedBCD(Method):
    """One model for the server and one for every client, tied by a quadratic penalty; keeps [M,
    P].
    """

    solver: Solver  # local work; its proximal coefficient is rho
    # what is tested: the `global` model x, or every client's `personal` one
    served: ServedModel = "global"

    whole = "has clients go on from the model that they send"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Both blocks of variables."""

        model: Tensor  # [1, P] the server's, x
        local: ClientModels  # [M, P] the clients', w_i

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        model = clients.init(rnd.stream("init"), 1)
        return self.State(model=model, local=ClientModels.alike(model, rnd.fed.num_clients)), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Each participant's steps on f_i(w) + rho / 2 * |w - x|^2 from its own w_i; then x."""
        cohort = rnd.cohort
        anchor = state.model.expand(len(cohort), -1)
        start, own = state.local[cohort], each(cohort)
        trained = clients.train(Train(start, own, cohort, self.solver, LocalWork(anchor=anchor)))
        local = state.local.replaced(cohort, trained.params)
        ids = clients_with_data(rnd)  # the others never hold anything but the initial model
        held = local[ids]
        cost = Cost(
            models_down=len(cohort),
            models_up=len(cohort),
            gradient_steps=int(trained.steps.sum()),
            train_loss=float(trained.loss.mean()),
        )
        model = cluster_mean(held, zeros(ids), empty=state.model)
        return self.State(model=model, local=local), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The server's model for everybody, or everybody's own."""
        if self.served == "global":
            return Served(models=state.model, label=arrived(torch.zeros_like(rnd.fed.group), rnd))
        own = each(rnd.present)
        return Served(models=state.local.all(), label=arrived(own, rnd))

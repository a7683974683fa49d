"""No federation: every client trains a model of its own from a common start and never communicates.

The lower baseline of the clustered methods. LCFL's paper (arXiv:2407.09360) means the mean over
clients of their accuracies, `accuracy_client_mean`; with equally large test sets `accuracy` is the
same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedclust.algorithms.steps import arrived, clients_with_data, each
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method

Participants = Literal["all", "cohort"]


@dataclass(frozen=True, kw_only=True)
class Local(Method):
    """One model per client; keeps M models in memory."""

    solver: Solver  # local work of one round
    # who trains in a round: `all` clients that are there, or only the `cohort`
    participants: Participants = "all"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The clients' models."""

        models: ClientModels  # [M, P], row i belongs to client i

    sends: ClassVar[bool] = False
    apart = "clients"

    @property
    def unused(self) -> Mapping[str, str]:
        """Who is sampled, where all train."""
        why = "participants=all trains every client in every round"
        sampled = ("participation", "clients_per_round")
        return dict.fromkeys(sampled, why) if self.participants == "all" else {}

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        model = clients.init(rnd.stream("init"), 1)
        return self.State(models=ClientModels.alike(model, rnd.fed.num_clients)), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Every participant goes on with its own model."""
        ids = clients_with_data(rnd) if self.participants == "all" else rnd.cohort
        own = each(ids)
        local = clients.train(Train(state.models[ids], own, ids, self.solver))
        models = state.models.replaced(ids, local.params)
        cost = Cost(gradient_steps=int(local.steps.sum()), train_loss=float(local.loss.mean()))
        return self.State(models=models), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        own = each(rnd.present)
        return Served(models=state.models.all(), label=arrived(own, rnd))

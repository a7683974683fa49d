"""Base of methods with a model per client: who has one, and who is served which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedclust.algorithms.steps import arrived, each
from fedclust.core.front import Clients
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method


def serve_personal(personal: ClientModels, trained: Tensor, others: Served, rnd: Round) -> Served:
    """Everybody's own model [M, P], and for clients that have none, not `trained` [M], what
    `others` serves them, whose models [K, P] are the last rows; copies M models.
    """
    common = torch.where(others.label < 0, others.label, others.label + len(personal))
    label = each(trained).where(trained, common)
    return Served(models=torch.cat([personal.all(), others.models]), label=arrived(label, rnd))


def everything(models: Tensor) -> Tensor:
    """All parameters of models [K, P], [P] bool: what stays with the client of a personal one."""
    return torch.ones(models.shape[1], dtype=torch.bool, device=models.device)


@dataclass(frozen=True, kw_only=True)
class PersonalModels(Method):
    """One common model, and one model per client; keeps M models in memory."""

    unnoised = ""  # personal models stay with their clients

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The common model and the clients' own."""

        model: Tensor  # [1, P] the server's
        personal: ClientModels  # [M, P], row i belongs to client i
        trained: Tensor  # [M] bool, who has taken part

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        model = clients.init(rnd.stream("init"), 1)
        state = self.State(
            model=model,
            personal=ClientModels.alike(model, rnd.fed.num_clients),
            trained=torch.zeros_like(rnd.present),
        )
        return state, Cost()

    def changed(self, state: State, model: Tensor, cohort: Tensor, personal: Tensor) -> State:
        """The state with a common model [1, P], and those of the cohort [C], [C, P]."""
        return self.State(
            model=model,
            personal=state.personal.replaced(cohort, personal),
            trained=state.trained.index_fill(0, cohort, True),
        )

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """Everybody's own model; the common one, in the last row, where there is none."""
        common = Served(models=state.model, label=torch.zeros_like(rnd.fed.group))
        return serve_personal(state.personal, state.trained, common, rnd)

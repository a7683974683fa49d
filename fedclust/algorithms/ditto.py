"""Ditto, a personal model beside the common one: Li, Hu, Beirami, Smith, ICML 2021.

https://arxiv.org/abs/2012.04221, Algorithm 1. The common model is that of FedAvg; a participant
also trains a model of its own that is pulled to the common one by (lambda / 2) * ||v - w||^2.

Differs from the paper:
- Both models see the same batches, as in the released code (litian96/ditto 26d9b29,
  flearn/trainers_MTL/ditto.py:88-125); the paper leaves it open.
- Clients that have never taken part are served the common model; their own is still the initial
  one.
- Participants are averaged by `aggregation`; the paper averages uniformly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedclust.algorithms.parts.personal import PersonalModels, everything
from fedclust.algorithms.steps import Aggregation, each, federated_averaging, zeros
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round


@dataclass(frozen=True, kw_only=True)
class Ditto(PersonalModels):
    """FedAvg, whose model is w in the paper, and one personal model v_i per client."""

    solver: Solver  # local work on the common model
    # local work on the personal model; its `proximal` is lambda in the paper, 0 trains alone
    personal: Solver
    aggregation: Aggregation = "by_samples"  # of common models

    several = "trains several models of a client in a round"

    def round(
        self, state: PersonalModels.State, clients: Clients, rnd: Round
    ) -> tuple[PersonalModels.State, Cost]:
        """One round of FedAvg; the cohort's personal models are drawn to what it began with."""
        cohort = rnd.cohort
        model, cost = federated_averaging(self, clients, state.model, zeros(cohort), rnd)
        # line 6: v <- v - eta * (grad F(v) + lambda * (v - w^t))
        anchor = state.model.expand(len(cohort), -1)
        start, work = state.personal[cohort], LocalWork(anchor=anchor)
        asked = Train(start, each(cohort), cohort, self.personal, work, stays=everything(start))
        own = clients.train(asked)
        state = self.changed(state, model, cohort, own.params)
        steps = cost.gradient_steps + int(own.steps.sum())
        return state, replace(cost, gradient_steps=steps, train_loss=float(own.loss.mean()))

"""APFL, adaptive personalized federated learning: Deng, Kamani, Mahdavi, 2020, arXiv:2003.13461.

Every client uses the mixture u_i = alpha v_i + (1 - alpha) w_i of a model v_i of its own and the
common one. A local step on one batch is
    w_i -= eta grad f_i(w_i),    v_i -= eta alpha grad f_i(u_i),
and the server averages the w_i. In terms of the mixture, which is what is trained here,
    u_i -= alpha^2 eta grad f_i(u_i) - (1 - alpha) (what w_i has moved in this step).

Differs from the step above: w_i is trained first, and then u_i on the same batches while w_i moves
evenly from its start to its end. With one local step that is the step itself.

Differs from the released code (MLOPTPSU/FedTorch ab8068d, fedtorch/comms):
- Parameters are mixed; the code mixes the outputs of both models (utils/eval.py:34-36). For softmax
  regression that is the same.
- In the step above v_i sees the w_i from before it; the code's, the w_i just moved
  (trainings/federated/apfl.py:95-116).
- alpha is fixed; the code can adapt it (apfl.py:118-123, utils/flow_utils.py:240-250).
- A mixture is served with the server's model of now; clients that have never taken part are served
  the common model alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fedclust.algorithms.parts.descent import check_descent
from fedclust.algorithms.parts.personal import PersonalModels, everything
from fedclust.algorithms.steps import Aggregation, average, each, zeros
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.helpers.ranges import Fraction


@dataclass(frozen=True, kw_only=True)
class APFL(PersonalModels):
    """FedAvg, and a personal model v_i per client that corrects it; `State.personal` holds v_i."""

    # local work on both models; without momentum, which would repeat what w_i has moved
    solver: Solver
    alpha: Fraction = 0.5  # share of the personal model; 0 would be FedAvg, 1 trains it alone
    aggregation: Aggregation = "by_samples"  # of the w_i

    several = "trains several models of a client in a round"

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "0, because APFL adds the common model's movement to every step"
        check_descent(self.solver, allowed)

    def round(
        self, state: PersonalModels.State, clients: Clients, rnd: Round
    ) -> tuple[PersonalModels.State, Cost]:
        """One round of FedAvg, and the mixtures of the cohort on the same batches."""
        cohort, alpha = rnd.cohort, self.alpha
        model, label = state.model, zeros(cohort)
        common = clients.train(Train(model, label, cohort, self.solver))
        model, cost = average(clients, common, model, label, cohort, rnd, self.aggregation)
        solver = replace(self.solver, lr=alpha**2 * self.solver.lr)
        moved = (common.params - state.model) / common.steps.clamp(min=1).unsqueeze(1)
        linear = -(1 - alpha) / solver.rate(rnd.t) * moved
        mixtures = alpha * state.personal[cohort] + (1 - alpha) * state.model  # u_i
        work = LocalWork(linear=linear)
        asked = Train(mixtures, each(cohort), cohort, solver, work, stays=everything(mixtures))
        local = clients.train(asked)
        personal = (local.params - (1 - alpha) * common.params) / alpha  # v_i
        personal = clients.layout.joined(personal, local.params)
        state = self.changed(state, model, cohort, personal)
        steps = cost.gradient_steps + int(local.steps.sum())
        return state, replace(cost, gradient_steps=steps, train_loss=float(local.loss.mean()))

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """Everybody's own mixture; the common model, in the last row, where there is none."""
        mixtures = self.alpha * state.personal.all() + (1 - self.alpha) * state.model
        own = replace(state, personal=ClientModels.of(mixtures))
        return super().serve(own, clients, rnd)

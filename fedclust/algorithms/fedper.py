"""FedPer, a shared body under personal heads: Arivazhagan, Aggarwal, Singh, Choudhary, 2019.

https://arxiv.org/abs/1912.00818, Algorithm 1. Clients train all layers together; the server
averages the lower ones, and each client keeps its last `personal_layers`.

Differs from the paper:
- The server can also take the plain mean of the participants (`aggregation: uniform`).
- Clients that have never taken part are served the shared body under the initial head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.algorithms.steps import Aggregation, arrived, each, weights, zeros
from fedclust.core.calls import LocalResult
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean, on_host
from fedclust.helpers.ranges import AtLeastOne
from fedclust.models.params import Layout


@dataclass(frozen=True, kw_only=True)
class FedPer(Method):
    """One body for everybody and a head per client; keeps M heads in memory, serves M models."""

    solver: Solver
    # layers that a client keeps, counted from the model's end; K_P in the paper
    personal_layers: AtLeastOne = 1
    aggregation: Aggregation = "by_samples"  # of bodies

    unnoised = ""

    @dataclass(frozen=True, kw_only=True)
    class State:
        """The shared body and the clients' heads."""

        model: Tensor  # [1, P] whose body is the server's and whose head is the initial one
        heads: Tensor  # [M, H] the parameters that each client keeps

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        depth, key = clients.layout.num_layers, "algorithm.personal_layers"
        allowed = f"below the model's {depth} layers, or nothing would be shared"
        require(self.personal_layers < depth, key, self.personal_layers, allowed)
        model = clients.init(rnd.stream("init"), 1)
        heads = model[:, self._head(clients.layout, model.device)].repeat(rnd.fed.num_clients, 1)
        return self.State(model=model, heads=heads), Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The cohort trains body and heads; the bodies are averaged."""
        cohort, head = rnd.cohort, self._head(clients.layout, rnd.cohort.device)
        local = self._train(self._models(state, head, cohort), clients, rnd)
        weight = weights(cohort, rnd, self.aggregation)
        bodies = local.params.where(~head, state.model)
        model = cluster_mean(bodies, zeros(cohort), weight, empty=state.model)
        model = clients.server.replaced(state.model, bodies, model, zeros(cohort), weight)
        model = clients.server.passed_on(model, model.where(~head, state.model))
        steps, loss = on_host(local.steps.sum(), local.loss.mean())
        body = len(cohort) * int((~head).sum())
        cost = Cost(
            floats_down=body, floats_up=body, gradient_steps=int(steps), train_loss=float(loss)
        )
        heads = state.heads.index_copy(0, cohort, local.params[:, head])
        return self.State(model=model, heads=heads), cost

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The body under everybody's own head."""
        everybody = each(rnd.present)
        head = self._head(clients.layout, everybody.device)
        models = self._models(state, head, everybody)
        return Served(models=models, label=arrived(everybody, rnd))

    def _train(self, models: Tensor, clients: Clients, rnd: Round) -> LocalResult:
        """Local training of the cohort [C] from `models` [C, P]."""
        own = each(models)
        head = self._head(clients.layout, models.device)
        return clients.train(Train(models, own, rnd.cohort, self.solver, stays=head))

    def _head(self, layout: Layout, device: torch.device) -> Tensor:
        """[P] bool, what a client keeps."""
        return layout.mask(layout.last_layers(self.personal_layers)).to(device)

    def _models(self, state: State, head: Tensor, ids: Tensor) -> Tensor:
        """The body under the heads of `ids` [C], [C, P]."""
        models = state.model.repeat(len(ids), 1)
        models[:, head] = state.heads[ids]
        return models

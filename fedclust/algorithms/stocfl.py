"""StoCFL, stochastic clustered federated learning: Zeng, Hu, Liu, Yu, Wang, Xu, 2023.

https://arxiv.org/abs/2303.00897. A client trains once from a fixed anchor when it is first sampled;
the way it went is what the server compares ever after. Clusters begin as single clients, and those
of a round that point alike are united, for ever. Cluster models are pulled to a common model, whose
training goes on beside theirs.

Differs from the released code (dunzeng/StoCFL bd6d031), which this follows where the paper is
brief:
- Everybody trains the common model from where the round began; in the code a client goes on from
  what the client before it made of it (trainer.py:69-73).
- A united cluster takes the model of its largest part that has one, of the one with the smallest
  number where several are as large; in the code it may begin again from the common model
  (StoCFL-FCC+CFL.py:89-91, 143-168).
- Clients that were never sampled are served the common model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedclust.algorithms.parts.uniting import linked, unite
from fedclust.algorithms.steps import (
    Aggregation,
    arrived,
    average,
    each,
    federated_averaging,
    zeros,
)
from fedclust.core.calls import LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.verbs import Method
from fedclust.helpers.ops import cluster_mean, cosine
from fedclust.helpers.ranges import NonNegative, Range

Direction = Literal["participants", "members"]


@dataclass(frozen=True, kw_only=True)
class StoCFL(Method):
    """Clusters that unite, and a common model; keeps M updates in memory."""

    solver: Solver  # local work on cluster models and on the common model
    observe: Solver  # a client's training from the anchor
    # tau: clusters are united if the cosine of their directions is at least this; above 1 never, -1
    # always
    similarity: Annotated[float, Range(-1, 2)]
    # pull of the cluster models to the common one, lambda in the paper: (mu / 2) * ||theta - w||^2
    # is added to the local loss
    mu: NonNegative = 0.05
    # of a cluster: the mean update of its `participants` in the round, or of all its `members`
    direction: Direction = "participants"
    aggregation: Aggregation = "by_samples"

    unnoised = "updates of single clients, which are compared"
    several = "trains several models of a client in a round"

    @dataclass(frozen=True, kw_only=True)
    class State:
        """Models, who uses them, and what was observed."""

        anchor: Tensor  # [1, P] what every observation starts from; never changes
        common: Tensor  # [1, P] w in the paper
        models: Tensor  # [K, P] theta in the paper
        label: Tensor  # [M] int64 cluster, -1 for clients that were never sampled
        update: ClientModels  # [M, P] the observations, 0 for clients that were never sampled

    def init(self, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        model, label = clients.init(rnd.stream("init"), 1), torch.full_like(rnd.fed.group, -1)
        still = torch.zeros_like(clients.layout.of_trained(model))
        update = ClientModels.alike(still, len(label))
        state = self.State(anchor=model, common=model, models=model[:0], label=label, update=update)
        return state, Cost()

    def round(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """Observation, unions, then training of the cluster models and of the common one."""
        cohort, known = rnd.cohort, len(state.models)
        state, observing = self._observe(state, clients, rnd)
        state = self._unite(state, known, cohort)
        label, anchor = state.label[cohort], state.common.expand(len(cohort), -1)
        common, beside = federated_averaging(self, clients, state.common, zeros(cohort), rnd)
        pulled = replace(self.solver, proximal=self.mu)
        local = clients.train(Train(state.models, label, cohort, pulled, LocalWork(anchor=anchor)))
        models, cost = average(clients, local, state.models, label, cohort, rnd, self.aggregation)
        cost = replace(cost, notes={**cost.notes, "num_clusters_found": len(models)})
        return replace(state, common=common, models=models), observing.plus(beside).plus(cost)

    def serve(self, state: State, clients: Clients, rnd: Round) -> Served:
        """The model of the client's cluster; the common one, in the last row, if it has none."""
        label = state.label.where(state.label >= 0, len(state.models))
        return Served(models=torch.cat([state.models, state.common]), label=arrived(label, rnd))

    def _observe(self, state: State, clients: Clients, rnd: Round) -> tuple[State, Cost]:
        """The cohort's new clients train from the anchor; each is a cluster, begun at w."""
        new = rnd.cohort[state.label[rnd.cohort] < 0]
        if not len(new):
            return state, Cost()
        local = clients.train(Train(state.anchor, zeros(new), new, self.observe, purpose="observe"))
        own = len(state.models) + each(new)
        state = replace(
            state,
            models=torch.cat([state.models, state.common.repeat(len(new), 1)]),
            label=state.label.index_copy(0, new, own),
            update=state.update.replaced(
                new, clients.layout.of_trained(local.params - state.anchor)
            ),
        )
        sent, steps = len(new), int(local.steps.sum())
        return state, Cost(models_down=sent, models_up=sent, gradient_steps=steps)

    def _unite(self, state: State, known: int, cohort: Tensor) -> State:
        """One cluster for those of the cohort that point alike; the first `known` have a model."""
        here = state.label[cohort].unique()  # type: ignore[no-untyped-call]  # [A] clusters
        ids = cohort
        if self.direction == "members":
            ids = torch.isin(state.label, here).nonzero().squeeze(1)
        place = torch.searchsorted(here, state.label[ids])
        update = state.update[ids]
        empty = update.new_zeros(len(here), update.shape[1])
        direction = cluster_mean(update, place, empty=empty)
        part = linked(cosine(direction, direction), self.similarity)
        label, largest = unite(state.label, here, part, known, len(state.models))
        return replace(state, models=state.models[largest], label=label)

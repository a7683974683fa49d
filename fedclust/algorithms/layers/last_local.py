"""Any method, and beside its accuracy that of each participant's own last model: what LCFL prints.

In LCFL's simulator (fl-sim) a participant is tested after the server has sent its model and before
the model is copied into the client, so the tested model is the client's own from its last
participation; whoever takes part for the first time is tested with the initial weights. Such
accuracies say less about the clusters than those of the method itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedclust.algorithms.steps import each
from fedclust.core.calls import LocalResult, MeanResult
from fedclust.core.front import Clients, Layer, Train, mean_by_rows
from fedclust.core.types import ClientModels, Cost, Round, Served
from fedclust.core.wrapper import Wrapper


@dataclass(frozen=True, kw_only=True)
class LastLocal(Wrapper):
    """A method whose participants are also tested with their own last local models.

    Each round adds the metric `accuracy_last_local`: correct test examples of the round's
    participants / their number, each with the model it held before the round. Keeps M models.
    """

    @property
    def added(self) -> Mapping[str, type[Any]]:
        """held: [M, P] every client's last local model, at first the initial one."""
        return {"held": ClientModels}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base; every client holds one initial model."""
        state, cost = self.base.init(clients, rnd)
        model = clients.init(rnd.stream("init"), 1)
        return self.with_added(state, held=ClientModels.alike(model, rnd.fed.num_clients)), cost

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base, testing who trained with what it held before."""
        before, watched = clients.aside(), _Watched(clients)
        after, cost = self.base.round(state, watched, rnd)
        if not watched.last:
            return self.with_added(after, held=state.held), cost
        ((trained, params),) = watched.last
        ids = trained[rnd.fed.test.count[trained] > 0]
        if len(ids):
            own = each(ids)
            label = torch.full_like(rnd.fed.group, -1).index_copy(0, ids, own)
            result = before.evaluate(Served(models=state.held[ids], label=label))
            task = rnd.fed.pool.task
            own_score = float(task.headline(result.sums.sum(0), result.count.sum()))
            name = f"{task.score.name}_last_local"
            cost = replace(cost, notes={**cost.notes, name: own_score})
        held = state.held.replaced(trained, params)
        return self.with_added(after, held=held), cost


@dataclass(frozen=True)
class _Watched(Layer):
    """Clients of whom it is known what they trained last."""

    # who trained in the round, [C] int64, and what they made, [C, P]: one entry, or none
    last: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def at(self, rnd: Round) -> Clients:
        return self.behind.at(rnd)

    def aside(self) -> Clients:
        return self.behind.aside()

    def train(self, asked: Train) -> LocalResult:
        result = self.behind.train(asked)
        # not what a method trains besides, such as to get to know its clients
        if asked.purpose == "train":
            self.last[:] = [(asked.ids, result.params)]
        return result

    def train_mean(self, asked: Train) -> MeanResult:
        return mean_by_rows(self, asked)

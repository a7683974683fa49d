"""Clients whose training moves every model by one vector: what methods do is known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor
from toys import federation_of, pool_of

from fedclust.core.calls import LocalResult, MeanResult
from fedclust.core.front import Train
from fedclust.core.server import Server
from fedclust.core.types import Federation, Round
from fedclust.helpers.rng import Stream
from fedclust.models.params import Layout
from fedclust.scenarios.static import Static
from fedclust.solver import Solver

SOLVER = Solver(lr=0.1)


@dataclass
class ToyEngine:
    """Training adds `pull` [M, P] of the client, whatever the anchor; `target` [M, P] is where its
    loss is 0.

    `start` [K, P]: init returns the first rows, or the last one where one model is asked for.
    """

    pull: Tensor
    start: Tensor
    target: Tensor | None = None
    discrepancy: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    server: ClassVar[Server] = Server()
    layout: ClassVar[Layout] = Layout(names=(), shapes=())  # all is trained

    def at(self, rnd: object) -> Any:
        return self

    def init(self, stream: Stream, k: int) -> Tensor:
        return self.start[:k].clone() if k > 1 else self.start[-1:].clone()

    def train(self, asked: Train) -> LocalResult:
        one = torch.ones(len(asked.ids))
        params, steps = asked.models[asked.label] + self.pull[asked.ids], one.to(torch.int64)
        return LocalResult(params=params, slots=None, loss=one, first_loss=one, steps=steps)

    def train_mean(self, asked: Train) -> MeanResult:
        local = self.train(asked)
        how = asked.models, asked.label, asked.weight, asked.work.slots
        return MeanResult.of(local, *how, keep=self.discrepancy, exact=True)

    def loss(self, models: Tensor, ids: Tensor) -> Tensor:
        assert self.target is not None
        return torch.cdist(self.target[ids], models)


def toy_federation(labels: Sequence[Sequence[int]], num_classes: int = 3) -> Federation:
    """Client i owns training examples with the classes labels[i], and no test examples."""
    y = torch.tensor([c for mine in labels for c in mine])
    ends = torch.tensor([0] + [len(mine) for mine in labels]).cumsum(0).tolist()
    train = [torch.arange(a, b) for a, b in pairwise(ends)]
    pool = pool_of(torch.zeros(len(y), 1), y, num_classes)
    return federation_of(pool, train, test=[torch.empty(0, dtype=torch.int64)] * len(labels))


def toy_round(
    fed: Federation, cohort: Sequence[int], t: int = 0, shifted: Sequence[int] = ()
) -> Round:
    """Round t with this cohort; the data of the clients `shifted` have just changed."""
    first = next(Static().rounds(fed, 0))
    changed = torch.zeros(fed.num_clients, dtype=torch.bool)
    changed[list(shifted)] = True
    return replace(first, t=t, cohort=torch.tensor(cohort, dtype=torch.int64), shifted=changed)


def total_cost(
    algorithm: Any, clients: Any, fed: Federation, cohorts: Sequence[Sequence[int]]
) -> int:
    """Models sent in both directions over rounds with these cohorts."""
    state, report = algorithm.init(clients, toy_round(fed, cohorts[0]))
    reports = [report]
    for t, cohort in enumerate(cohorts):
        state, report = algorithm.round(state, clients, toy_round(fed, cohort, t))
        reports.append(report)
    return sum(int(report.models_down + report.models_up) for report in reports)

"""Pools, federations, rounds and results of few numbers, to be judged by eye."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedclust.core.types import Evaluation, Federation, Pool, Round, Served, Split
from fedclust.scenarios.static import Static

Rows = Sequence[Tensor] | Sequence[Sequence[int]]


def pool_of(
    x: Tensor, y: Tensor, classes: int = 2, scale: float = 1.0, shift: float = 0.0, **more: Any
) -> Pool:
    """Rows [n, …] and their labels [n]."""
    scaled = {"scale": torch.tensor([scale]), "shift": torch.tensor([shift])}
    return Pool(x=x, y=y, num_classes=classes, **scaled, **more)


def blank(rows: int = 4) -> Pool:
    """Examples of one input that is 0, all of class 0 of two."""
    return pool_of(torch.zeros(rows, 1), torch.zeros(rows, dtype=torch.int64))


def split_of(rows: Rows) -> Split:
    """The rows of every client."""
    return Split.of([torch.as_tensor(own, dtype=torch.int64) for own in rows])


def federation_of(
    pool: Pool, train: Rows, test: Rows | None = None, group: Tensor | None = None
) -> Federation:
    """Clients with these rows, which they are tested on too if no others are given; no groups."""
    trained = split_of(train)
    tested = trained if test is None else split_of(test)
    groups = torch.zeros(len(train), dtype=torch.int64) if group is None else group
    return Federation(pool=pool, train=trained, test=tested, group=groups)


def round_of(fed: Federation, t: int = 0, seed: int = 0) -> Round:
    """A round in which everybody takes part."""
    return replace(next(Static().rounds(fed, seed)), t=t)


def evaluation_of(
    label: Tensor, correct: Tensor, count: Tensor, loss: Tensor | float = 0.0, models: int = 1
) -> Evaluation:
    """What every client [M] gets right of its test examples, and the sum of its losses."""
    return Evaluation(
        served=Served(models=torch.zeros(models, 2), label=label),
        loss_sum=torch.zeros(len(count), dtype=torch.float64) + loss,
        sums=correct[:, None].double(),
        count=count,
    )

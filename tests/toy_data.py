"""Small pools and federations of given numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedclust.core.task import Classification, Task
from fedclust.core.types import Federation, Pool, Split


def pool_of(x: Tensor, y: Tensor, num_classes: int, task: Task | None = None) -> Pool:
    """Inputs as they are, and their targets."""
    one, judge = torch.ones(1), task or Classification()
    return Pool(x=x, y=y, scale=one, shift=0 * one, num_classes=num_classes, task=judge)


def federation_of(
    pool: Pool,
    rows: Sequence[Tensor],
    group: Tensor | None = None,
    test: Sequence[Tensor] | None = None,
) -> Federation:
    """Clients with these rows of a pool, for tests too if none are given; all in one group."""
    train, own = Split.of(list(rows)), torch.zeros(len(rows), dtype=torch.int64)
    tests = train if test is None else Split.of(list(test))
    return Federation(pool=pool, train=train, test=tests, group=own if group is None else group)

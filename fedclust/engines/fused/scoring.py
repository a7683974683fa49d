"""Losses and scores of models on examples, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedclust.core.calls import Shards, TestResult
from fedclust.core.pool import Pool
from fedclust.engines.fused.heads import head_of
from fedclust.engines.fused.layers import StackedModels
from fedclust.engines.fused.training import targets
from fedclust.helpers.meter import meter

_AT_ONCE = 1024  # examples converted at once, which stay in the cache
_JUDGED = 1 << 20  # sums of examples judged at once, so that what a task writes stays small


def _owners(shards: Shards) -> tuple[Tensor, Tensor]:
    """Of all real examples, row after row: row [T] and column [T] in the index, both int64."""
    position = torch.arange(shards.index.shape[1], device=shards.count.device)
    owner, column = (position < shards.count.unsqueeze(1)).nonzero().unbind(1)
    return owner, column


@dataclass(frozen=True, kw_only=True)
class AllPairs:
    """All models look at all examples, some at a time.

    Attributes:
        owner, column: [T] int64 row and column of every example in the call's index.
        index: [T] int64 its pool row.
    """

    pool: Pool
    owner: Tensor
    column: Tensor
    index: Tensor

    @classmethod
    def of(cls, shards: Shards, pool: Pool) -> AllPairs:
        """The examples of some rows."""
        owner, column = _owners(shards)
        return cls(pool=pool, owner=owner, column=column, index=shards.index[owner, column])

    def blocks(
        self, models: StackedModels, count: int, block: int
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """`block` examples at a time: which, targets [R, b, 1 or T], `count` models' outputs."""
        head = head_of(self.pool.task)
        firsts = range(0, len(self.index), block)
        meter.steps = len(firsts)
        for meter.step, first in enumerate(firsts):
            part = slice(first, first + block)
            index = self.index[part]
            x = (
                self.pool.inputs(index)
                .unsqueeze(0)
                .expand(count, -1, *(-1 for _ in self.pool.shape))
            )
            label = targets(self.pool, index.unsqueeze(0)).expand(count, -1, -1)
            yield part, label, head.look(models.layers.frame(count, len(index)), x)


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Examples sorted by the model that looks at them, so that rows with one model form one
    product.

    Attributes:
        start: [K] int64 first example of every model.
        count: [K] int64 its number of examples, 0 where no row uses it.
        owner, column: [T] int64 row that owns each example, and its column in the call's index.
        index: [T] int64 pool row of each example.
        inputs: [T, *shape] what models see of them, one model at a time; None where they are
            converted when needed.
    """

    pool: Pool
    start: Tensor
    count: Tensor
    owner: Tensor
    column: Tensor
    index: Tensor
    inputs: Tensor | None = None

    @classmethod
    def of(cls, label: Tensor, shards: Shards, num_models: int, pool: Pool) -> Grouped:
        """The examples of `shards` grouped by the label [C] of their row."""
        owner, column = _owners(shards)
        order = label[owner].argsort(stable=True)
        count = torch.zeros(num_models, dtype=torch.int64, device=label.device)
        count.index_add_(0, label, shards.count)
        owner, column = owner[order], column[order]
        return cls(
            pool=pool,
            start=count.cumsum(0) - count,
            count=count,
            owner=owner,
            column=column,
            index=shards.index[owner, column],
        )

    def converted(self) -> Grouped:
        """The same with `inputs`."""
        ids = self.pool.vocabulary is not None
        kind = torch.int64 if ids else torch.float32
        inputs = torch.empty(
            len(self.index), *self.pool.shape, dtype=kind, device=self.index.device
        )
        for first in range(0, len(inputs), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            if self.pool.view is None and not ids:
                self.pool.inputs_into(self.index[part], inputs[part])
            else:
                inputs[part] = self.pool.inputs(self.index[part])
        return replace(self, inputs=inputs)

    def padded(self, rows: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """Examples of models `rows` [R]: which [R, longest] int64, 0 in padding; if real."""
        position = torch.arange(longest, device=rows.device)
        inside = position < self.count[rows].unsqueeze(1)
        return (self.start[rows].unsqueeze(1) + position).masked_fill(~inside, 0), inside

    def seen(self, example: Tensor) -> Tensor:
        """What models see of examples [R, B] int64, [R, B, *shape]; see `inputs`."""
        if self.inputs is None:
            return self.pool.inputs(self.index[example])
        first = int(example[0, 0])
        return self.inputs[first : first + example.shape[1]].unsqueeze(0)


def looked(
    models: StackedModels, grouped: Grouped, rows: Tensor, counts: list[int], room: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The examples of the models `rows` [R], which have `counts` of them, descending; of all models
    together `room` at a time: which [R, B], 0 in padding; where that which is found of them goes
    [R, B], T in padding; and what models give, in shared memory.
    """
    head = head_of(grouped.pool.task)
    start, count = grouped.start[rows].unsqueeze(1), grouped.count[rows].unsqueeze(1)
    first = 0
    while first < counts[0]:
        active = sum(c > first for c in counts)
        width = min(max(room // active, 1), counts[0] - first)
        position = torch.arange(first, first + width, device=rows.device)
        inside = position < count[:active]
        example = start[:active] + position
        known = example.masked_fill(~inside, 0)
        given = head.look(models.layers.frame(active, width), grouped.seen(known))
        # padding is written too, since the host would have to wait to hear which examples are real
        yield known, example.masked_fill(~inside, len(grouped.index)), given
        first += width


def judged(outputs: Tensor, shards: Shards, pool: Pool) -> TestResult:
    """Test results of every row from the outputs [T, Y] of all real examples, row after row."""
    owner, column = _owners(shards)
    index = shards.index[owner, column]
    loss = torch.zeros(len(shards), dtype=torch.float64, device=outputs.device)
    sums = loss.new_zeros(len(shards), pool.num_sums)
    block = max(1, _JUDGED // pool.num_sums)
    for first in range(0, len(owner), block):
        part = slice(first, first + block)
        given, y = outputs[part], pool.y[index[part]]
        loss.index_add_(0, owner[part], pool.task.loss(given, y).double())
        sums.index_add_(0, owner[part], pool.task.sums(given, y).double())
    return TestResult(loss_sum=loss, sums=sums)


def summed(owner: Tensor, loss: Tensor, sums: Tensor, rows: int) -> TestResult:
    """Losses [T] and sums [T, S] of examples, added up for the row [T] that owns each."""
    total = torch.zeros(rows, dtype=torch.float64, device=loss.device)
    return TestResult(
        loss_sum=total.index_add(0, owner, loss.double()),
        sums=total.new_zeros(rows, sums.shape[1]).index_add_(0, owner, sums.double()),
    )

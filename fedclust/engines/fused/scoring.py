"""Losses and hits of models on examples, without gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.calls import Shards
from fedclust.engines.fused.network import Stack
from fedclust.types import Pool


def _log_probabilities(stack: Stack, x: Tensor) -> Tensor:
    """log softmax of the logits of x [R, B, *shape] under the first R models, [Y, R, B], in shared
    memory.
    """
    return stack.frame(x.shape[0], x.shape[1]).log_probabilities(x)


def owners(shards: Shards) -> tuple[Tensor, Tensor]:
    """All real examples, row after row: the row [T] that owns each, and its pool row [T], both
    int64.
    """
    position = torch.arange(shards.index.shape[1], device=shards.count.device)
    owner, place = (position < shards.count.unsqueeze(1)).nonzero().unbind(1)
    return owner, shards.index[owner, place]


def loss_block(
    stack: Stack, pool: Pool, owner: Tensor, index: Tensor, block: int, out: Tensor
) -> None:
    """Add to out [R, C] float64 the losses of R models, summed over the examples of every row.

    Args:
        stack: R models; each looks at all examples.
        pool: all examples.
        owner: [T] int64 row in [0, C) of every example.
        index: [T] int64 its pool row.
        block: examples taken at once.
        out: sums, changed in place.
    """
    models = len(out)
    for first in range(0, len(index), block):
        here = index[first : first + block]
        x = pool.inputs(here).unsqueeze(0).expand(models, -1, *(-1 for _ in pool.shape))
        logp = _log_probabilities(stack, x)
        label = pool.y[here].expand(1, models, -1)
        loss = logp.gather(0, label).squeeze(0).to(torch.float64).neg_()  # [R, b]
        out.scatter_add_(1, owner[first : first + block].expand(models, -1), loss)


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Examples sorted by the model that looks at them, so that rows with one model form one
    product.

    Attributes:
        start: [K] int64 first example of every model.
        count: [K] int64 its number of examples, 0 where no row uses it.
        owner: [T] int64 row that owns each example.
        index: [T] int64 pool row of each example.
    """

    start: Tensor
    count: Tensor
    owner: Tensor
    index: Tensor

    @classmethod
    def of(cls, label: Tensor, shards: Shards, num_models: int) -> Grouped:
        """The examples of `shards` grouped by the label [C] of their row."""
        owner, index = owners(shards)
        order = label[owner].argsort(stable=True)
        count = torch.zeros(num_models, dtype=torch.int64, device=label.device)
        count.index_add_(0, label, shards.count)
        return cls(
            start=count.cumsum(0) - count,
            count=count,
            owner=owner[order],
            index=index[order],
        )


def score_chunk(
    stack: Stack,
    pool: Pool,
    grouped: Grouped,
    rows: Tensor,
    counts: list[int],
    room: int,
    out: tuple[Tensor, Tensor],
) -> None:
    """Write losses and hits of the examples of some models.

    Args:
        stack: the models `rows`, in this order.
        pool: all examples.
        grouped: who looks at what.
        rows: [R] int64 models.
        counts: examples of each, descending.
        room: examples of all models together taken at once.
        out: loss [T + 1] float64 and hit [T + 1] int64 of every example, written in place; last, of
            padding.
    """
    start, count = grouped.start[rows].unsqueeze(1), grouped.count[rows].unsqueeze(1)
    first = 0
    while first < counts[0]:
        active = sum(c > first for c in counts)
        width = min(max(room // active, 1), counts[0] - first)
        position = torch.arange(first, first + width, device=rows.device)
        inside = position < count[:active]
        example = start[:active] + position
        index = grouped.index[example.masked_fill(~inside, 0)]
        logp = _log_probabilities(stack, pool.inputs(index))
        label = pool.y[index]
        # padding has a place, since the host would have to wait to hear which examples are real
        place = example.masked_fill(~inside, len(grouped.index))
        out[0][place] = -logp.gather(0, label.unsqueeze(0)).squeeze(0).to(torch.float64)
        out[1][place] = (logp.argmax(0) == label).to(torch.int64)
        first += width

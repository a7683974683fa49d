"""The rows of a call shared out among ranks; all get the results of all, or their sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from fedclust.core.calls import Call, GradSumCall, SumCall, on_rows, tensors_of
from fedclust.core.verbs import Engine
from fedclust.engines.base import InFront
from fedclust.engines.located import at_rows
from fedclust.engines.sums import by_blocks, gradients_by_blocks
from fedclust.helpers.distributed import Ranks

R = TypeVar("R")

_BLOCK = 16 << 20  # bytes that a rank sends at once: what is copied beside the result stays small
# sums that an engine of equal bits adds in the order of the rows
_IN_ORDER: Mapping[type[Call[Any]], Callable[[Engine, Any], Any]] = {
    SumCall: by_blocks,
    GradSumCall: gradients_by_blocks,
}
_SAMPLE = 1 << 16  # numbers of a tensor that ranks compare


def sharded(engine: Engine, ranks: Ranks) -> Engine:
    """The engine over all ranks; itself where there is one."""
    return engine if ranks.size == 1 else Sharded(engine, ranks)


class Sharded(InFront):
    """An `Engine` whose rows are computed on several ranks, all of which make the same calls.

    By the engine law a row does not depend on the company, so the results are those of one rank:
    the same bits with `loop`, equal up to rounding where products are computed in batches. Of sums
    each rank adds up its own rows, and ranks exchange K models; `loop` adds in the order of the
    rows, so its ranks exchange them, a block at a time.

    Args:
        engine: what computes the rows of this rank.
    """

    def __init__(self, engine: Engine, ranks: Ranks) -> None:
        super().__init__(engine)
        self._ranks = ranks

    def answer(self, call: Call[R]) -> R:
        """All rows of the result, of which this rank computes its own."""
        if self.exact and (by_rows := _IN_ORDER.get(type(call))):
            return cast(R, by_rows(self, call))
        rows = deal(call.work, self._ranks.size)
        mine = rows[self._ranks.rank]
        with at_rows(mine):
            part = self._engine.answer(call.take(mine))
        self._ranks.meet(type(call).__name__, fingerprint(*tensors_of(call)))
        return on_rows(partial(self._join, rows=rows), part, self._add)

    def _join(self, part: Tensor, rows: list[Tensor]) -> Tensor:
        """All rows [C, ...] of a result, of which this rank has computed `part`, rows[rank]."""
        whole = part.new_empty(sum(len(r) for r in rows), *part.shape[1:])
        most = max(len(r) for r in rows)
        each = max(1, _BLOCK // max(1, part[:1].numel() * part.element_size()))
        for first in range(0, most, each):
            block = part.new_empty(min(each, most - first), *part.shape[1:])
            mine = part[first : first + each]
            block[: len(mine)] = mine  # the rest is never read
            for theirs, values in zip(rows, self._ranks.gather(block), strict=True):
                where = theirs[first : first + each]
                whole[where] = values[: len(where)]
        return whole

    def _add(self, part: Tensor) -> Tensor:
        """The sum [K, P] over all ranks, of which this one has computed `part`."""
        whole = torch.empty_like(part)
        each = max(1, _BLOCK // max(1, part[:1].numel() * part.element_size()))
        for first in range(0, len(part), each):
            models = slice(first, first + each)
            whole[models] = self._ranks.gather(part[models]).sum(0)
        return whole


def deal(work: Tensor, ranks: int) -> list[Tensor]:
    """The rows of every rank: about equal numbers of rows and about equal work.

    Args:
        work: [C] int64 of every row.
        ranks: how many share; with fewer rows than ranks some get none.

    Returns:
        Per rank its rows, int64, most work first; together every row once.
    """
    order = work.argsort(descending=True, stable=True)
    place = torch.arange(len(order), device=order.device)
    turn, seat = place // ranks, place % ranks
    rank = torch.where(turn % 2 == 0, seat, ranks - 1 - seat)  # back and forth
    return [order[rank == r] for r in range(ranks)]


def fingerprint(*tensors: Tensor | None) -> int:
    """A number that differs, almost surely, with the tensors; large ones are sampled."""
    total = 0
    for tensor in tensors:
        value = -1
        if tensor is not None:
            flat = tensor.detach().flatten()
            flat = flat[:: 1 + len(flat) // _SAMPLE].contiguous()
            whole = {torch.float32: torch.int32, torch.float64: torch.int64}.get(flat.dtype)
            bits = flat.to(torch.int64) if whole is None else flat.view(whole)
            odd = 2 * torch.arange(len(bits), device=bits.device) + 1
            value = int((bits.to(torch.int64) * odd).sum()) + tensor.shape[0]
        total = (31 * total + value) % (1 << 62)
    return total

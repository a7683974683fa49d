"""The rows of a call shared out among ranks: each computes its own, and all get the results of
all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.distributed import Ranks
from fedclust.engines.schedule import num_steps
from fedclust.rng import Stream
from fedclust.solver import Solver
from fedclust.types import LocalResult, Shards
from fedclust.verbs import Engine

_BLOCK = 16 << 20  # bytes that a rank sends at once: what is copied beside the result stays small
_SAMPLE = 1 << 16  # numbers of a tensor that ranks compare


def sharded(engine: Engine, ranks: Ranks) -> Engine:
    """The backend over all ranks; itself where there is one."""
    return engine if ranks.size == 1 else Sharded(engine, ranks)


class Sharded:
    """A `Engine` whose rows are computed on several ranks; every rank calls it with the same
    arguments.

    By the engine law a row does not depend on the company, so the results are those of one rank:
    the same bits with `loop`, equal up to rounding where products are computed in batches.

    Args:
        engine: what computes the rows of this rank.
        ranks: who shares.
    """

    def __init__(self, engine: Engine, ranks: Ranks) -> None:
        self._engine, self._ranks = engine, ranks

    @property
    def name(self) -> str:
        """The engine's name."""
        return self._engine.name

    @property
    def num_params(self) -> int:
        """P."""
        return self._engine.num_params

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]; every rank draws them."""
        return self._engine.init(stream)

    def train(
        self,
        models: Tensor,
        label: Tensor,
        shards: Shards,
        solver: Solver,
        lr: float,
        slots: Tensor | None = None,
        anchor: Tensor | None = None,
    ) -> LocalResult:
        """See `Engine.train`."""
        batch = (
            shards.count if solver.batch_size is None else shards.count.clamp(max=solver.batch_size)
        )
        rows = deal(num_steps(shards, solver) * batch, self._ranks.size)
        own = rows[self._ranks.rank]
        pull = None if anchor is None else anchor[own]
        part = self._engine.train(models, label[own], _take(shards, own), solver, lr, slots, pull)
        self._meet("train", models, label, shards, slots, anchor)
        return LocalResult(
            params=self._join(part.params, rows),
            slots=None if part.slots is None else self._join(part.slots, rows),
            loss=self._join(part.loss, rows),
            steps=self._join(part.steps, rows),
        )

    def loss(self, models: Tensor, shards: Shards) -> Tensor:
        """See `Engine.loss`."""
        rows = deal(shards.count, self._ranks.size)
        part = self._engine.loss(models, _take(shards, rows[self._ranks.rank]))
        self._meet("loss", models, None, shards)
        return self._join(part, rows)

    def grad(self, models: Tensor, label: Tensor, shards: Shards) -> Tensor:
        """See `Engine.grad`."""
        rows = deal(shards.count, self._ranks.size)
        own = rows[self._ranks.rank]
        part = self._engine.grad(models, label[own], _take(shards, own))
        self._meet("grad", models, label, shards)
        return self._join(part, rows)

    def evaluate(self, models: Tensor, label: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
        """See `Engine.evaluate`."""
        rows = deal(shards.count, self._ranks.size)
        own = rows[self._ranks.rank]
        loss_sum, correct = self._engine.evaluate(models, label[own], _take(shards, own))
        self._meet("test", models, label, shards)
        return self._join(loss_sum, rows), self._join(correct, rows)

    def _meet(
        self,
        verb: str,
        models: Tensor,
        label: Tensor | None,
        shards: Shards,
        slots: Tensor | None = None,
        anchor: Tensor | None = None,
    ) -> None:
        """Make sure that all ranks were asked for the same."""
        asked = (models, label, shards.count, shards.key, shards.work, slots, anchor)
        self._ranks.meet(verb, fingerprint(*asked))

    def _join(self, part: Tensor, rows: list[Tensor]) -> Tensor:
        """All rows [C, ...] of a result, of which this rank has computed `part` [c, ...].

        Args:
            part: the rows rows[rank], in that order.
            rows: the rows of every rank.
        """
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
    """A number that differs, almost surely, where one of the tensors does; of large ones a sample
    is read.
    """
    total = 0
    for tensor in tensors:
        value = -1
        if tensor is not None:
            flat = tensor.detach().flatten()
            flat = flat[:: 1 + len(flat) // _SAMPLE].contiguous()
            bits = flat.view(torch.int32) if flat.dtype == torch.float32 else flat.to(torch.int64)
            odd = 2 * torch.arange(len(bits), device=bits.device) + 1
            value = int((bits.to(torch.int64) * odd).sum()) + tensor.shape[0]
        total = (31 * total + value) % (1 << 62)
    return total


def _take(shards: Shards, rows: Tensor) -> Shards:
    """The shards of some rows."""
    work = None if shards.work is None else shards.work[rows]
    return Shards(
        index=shards.index[rows], count=shards.count[rows], key=shards.key[rows], work=work
    )

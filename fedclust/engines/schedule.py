"""Which examples every client meets in every local step: one definition, read by all engines.

The learning rate of a step is `fedclust.core.solver.Solver.step_rate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedclust.core.calls import Shards
from fedclust.core.solver import Solver
from fedclust.helpers.errors import require
from fedclust.helpers.ops import on_host
from fedclust.helpers.rng import fold, permutations


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The local steps of C rows.

    Attributes:
        shards, solver: the rows, and what a step is.
        size: [C, S] int64 real examples of each batch, 0 after the row's last step; real ones come
            first.
        steps: [C] int64 steps of each row; S is the largest.
        passes: over a row's examples that the steps need at most.
        known_size, known_steps: `size` and `steps` in the host's memory.
    """

    shards: Shards
    solver: Solver
    size: Tensor
    steps: Tensor
    passes: int
    known_size: Tensor
    known_steps: Tensor

    @property
    def ordered(self) -> bool:
        """Whether every batch is the whole client in file order: `position` needs no gathering."""
        return self.solver.batch_size is None

    @cached_property
    def position(self) -> Tensor:
        """Own examples (0 … count - 1) of a batch, [C, S, B] int64, 0 in padding."""
        solver, count, size = self.solver, self.shards.count, self.size
        longest = self.shards.index.shape[1]
        if solver.batch_size is None:
            within = torch.arange(longest, device=size.device)
            return torch.where(within < size.unsqueeze(2), within, 0)
        width = min(solver.batch_size, longest)
        batch = count.clamp(max=width).unsqueeze(1)  # [C, 1] examples of a full batch
        nonzero = count.clamp(min=1).unsqueeze(1)
        step = torch.arange(size.shape[1], device=size.device)
        if solver.epochs is not None:
            per_pass = _per_pass(count, solver)
            # within its pass a batch begins behind the whole ones before it
            begin = (step // per_pass) * nonzero + (step % per_pass) * batch
        else:
            begin = step * batch
        # one permutation per (row, pass), laid end to end without the padding between passes
        key = fold(self.shards.key.unsqueeze(1), torch.arange(self.passes, device=size.device))
        order = permutations(key, count.unsqueeze(1).expand(-1, self.passes), longest)  # [C, E, n]
        within = torch.arange(width, device=size.device)
        draw = begin.unsqueeze(2) + within  # [C, S, B] number in the row's endless sequence
        column = draw // nonzero.unsqueeze(2) * longest + draw % nonzero.unsqueeze(2)
        real = within < size.unsqueeze(2)
        taken = order.flatten(1).gather(1, column.masked_fill(~real, 0).flatten(1))
        return taken.view_as(column).masked_fill(~real, 0)

    def check_batches(self, *, lone: bool) -> None:
        """ConfigError for batches of one example, unless the model takes a `lone` one."""
        single = not lone and bool((self.known_size == 1).any())
        require(
            not single,
            "solver.batch_size",
            self.solver.batch_size,
            "one that leaves no client a batch of one example, which the model's normalisation "
            "cannot take in training, or solver.drop_last=true",
        )

    def first_epoch(self) -> Tensor:
        """What every step's batch weighs in a mean over the first local epoch, [C, S] float32."""
        solver, count = self.solver, self.shards.count
        batches = torch.ones_like(count) if solver.batch_size is None else solver.batches(count)
        step = torch.arange(self.size.shape[1], device=count.device)
        met = torch.where(step < batches.unsqueeze(1), self.size, 0)
        return met / met.sum(1, keepdim=True).clamp(min=1)


def _sizes(count: Tensor, steps: Tensor, solver: Solver) -> Tensor:
    """Examples of every batch, [C, S] int64, of `count` [C] examples and `steps` [C] steps."""
    step = torch.arange(int(steps.max()) if len(steps) else 0)
    batch = count if solver.batch_size is None else count.clamp(max=solver.batch_size)
    size = batch.unsqueeze(1)
    # the last batch of a pass may be short
    if solver.batch_size is not None and solver.epochs is not None:
        size = torch.minimum(size, count.unsqueeze(1) - step % _per_pass(count, solver) * size)
    return torch.where(step < steps.unsqueeze(1), size, 0)


def _per_pass(count: Tensor, solver: Solver) -> Tensor:
    """Batches of a pass over `count` [C] examples, [C, 1], at least 1."""
    return solver.batches(count).clamp(min=1).unsqueeze(1)


def schedule(shards: Shards, solver: Solver, known: Shards | None = None) -> Schedule:
    """The batches of every row, each row's from its own key alone.

    With `epochs`, every pass is a fresh permutation cut into batches, the last one short. With
    `steps`, the passes are joined end to end and cut into batches of min(batch_size, count), so
    that none is short. A row that does part of the work takes the first of these steps.
    """
    if known is None:
        known = in_host_memory(shards)
    known_steps = known.num_steps(solver)
    known_size = _sizes(known.count, known_steps, solver)
    device = shards.count.device
    steps, size = (x.to(device, non_blocking=True) for x in (known_steps, known_size))
    return Schedule(
        shards=shards,
        solver=solver,
        size=size,
        steps=steps,
        passes=_passes(known.count, known_size.shape[1], solver),
        known_size=known_size,
        known_steps=known_steps,
    )


def _passes(count: Tensor, steps: int, solver: Solver) -> int:
    """Passes over `count` [C] examples, on the host, that up to `steps` steps need."""
    if solver.epochs is not None:
        return math.ceil(solver.epochs)
    if solver.batch_size is None or not steps:
        return 0
    drawn = steps * count.clamp(max=solver.batch_size)  # by a row that takes all steps
    return int(((drawn - 1) // count.clamp(min=1)).max()) + 1


def in_host_memory(shards: Shards) -> Shards:
    """The rows with `count` and `work` in the host's memory, which waits for them once."""
    if shards.work is None:
        return replace(shards, count=shards.count.cpu())
    count, work = on_host(shards.count, shards.work)
    return replace(shards, count=count, work=work)

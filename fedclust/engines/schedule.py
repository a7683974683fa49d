"""Which examples every client meets in every local step: one definition, read by all engines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.rng import fold, permutations
from fedclust.solver import Solver
from fedclust.types import Shards


@dataclass(frozen=True)
class Schedule:
    """The local steps of C rows.

    Attributes:
        position: [C, S, B] int64, which of the row's own examples (0 … count - 1) a batch holds.
        size: [C, S] int64 real examples of each batch, 0 after the row's last step; real ones come first.
        steps: [C] int64 steps of each row; S is the largest.
        ordered: every batch is the whole client in file order, so `position` need not be gathered.
    """

    position: Tensor
    size: Tensor
    steps: Tensor
    ordered: bool


def num_steps(shards: Shards, solver: Solver) -> Tensor:
    """Local steps of every row, [C] int64: ceil(work * all its steps); a row without examples takes none."""
    steps = _all_steps(shards.count, solver)
    # in float32 a product such as 0.2 * 10 rounds to 2; in float64, float32's 0.2 would make it 2.00000003
    return steps if shards.work is None else (shards.work * steps).ceil().to(torch.int64)


def _all_steps(count: Tensor, solver: Solver) -> Tensor:
    """Local steps of clients with `count` [C] examples that do all their work, [C] int64."""
    if solver.epochs is None:
        assert solver.steps is not None
        return torch.where(count > 0, solver.steps, 0)
    if solver.batch_size is None:
        return torch.where(count > 0, solver.epochs, 0)
    return (count + solver.batch_size - 1) // solver.batch_size * solver.epochs


def schedule(shards: Shards, solver: Solver, most: int | None = None) -> Schedule:
    """The batches of every row, each row's from its own key alone.

    With `epochs`, every pass is a fresh permutation cut into batches, the last one short. With `steps`, the
    passes are joined end to end and cut into batches of min(batch_size, count), so that none is short.
    A row that does part of the work takes the first of these steps.

    Args:
        shards: the rows.
        solver: says what a step is.
        most: steps of the row with most of them, where the caller knows it.
    """
    count, device = shards.count, shards.count.device
    longest = shards.index.shape[1]
    steps = num_steps(shards, solver)
    if most is None:
        most = int(steps.max()) if len(steps) else 0
    step = torch.arange(most, device=device)
    running = step < steps.unsqueeze(1)  # [C, S]
    if solver.batch_size is None:
        size = torch.where(running, count.unsqueeze(1), 0)
        within = torch.arange(longest, device=device)
        position = torch.where(within < size.unsqueeze(2), within, 0)
        return Schedule(position, size, steps, ordered=True)

    width = min(solver.batch_size, longest)
    batch = count.clamp(max=width).unsqueeze(1)  # [C, 1] examples of a full batch
    nonzero = count.clamp(min=1).unsqueeze(1)
    if solver.epochs is not None:
        per_epoch = (_all_steps(count, solver) // solver.epochs).clamp(min=1).unsqueeze(1)
        first = (step % per_epoch) * batch  # [C, S] where the batch begins within its pass
        size = torch.where(running, torch.minimum(batch, count.unsqueeze(1) - first), 0)
        begin = (step // per_epoch) * nonzero + first
        passes = solver.epochs
    else:
        size = torch.where(running, batch, 0)
        begin = step * batch
        passes = int(((begin + batch).amax(1, keepdim=True).sub(1) // nonzero).max()) + 1 if most else 0
    # one permutation per (row, pass), laid end to end without the padding between passes
    key = fold(shards.key.unsqueeze(1), torch.arange(passes, device=device))  # [C, E]
    order = permutations(key, count.unsqueeze(1).expand(-1, passes), longest)  # [C, E, n]
    within = torch.arange(width, device=device)
    draw = begin.unsqueeze(2) + within  # [C, S, B] place in the row's endless sequence
    place = draw // nonzero.unsqueeze(2) * longest + draw % nonzero.unsqueeze(2)
    real = within < size.unsqueeze(2)
    position = order.flatten(1).gather(1, place.masked_fill(~real, 0).flatten(1)).view_as(place)
    return Schedule(position.masked_fill(~real, 0), size, steps, ordered=False)

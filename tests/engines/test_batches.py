"""Batches laid out by compiled code are those that the schedule defines, number by number."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import toy_pool
from torch import Tensor

from fedclust.core.calls import Shards
from fedclust.engines.fused.native import batches
from fedclust.engines.fused.native.compiled import library
from fedclust.engines.schedule import Schedule, in_host_memory, schedule
from fedclust.solver import Solver

POOL = toy_pool((3,), num_examples=5000)
SOLVERS = {
    "epochs": Solver(lr=0.1, batch_size=10, epochs=3),
    "one by one": Solver(lr=0.1, batch_size=1, epochs=2),
    "larger than a client": Solver(lr=0.1, batch_size=64, epochs=2),
    "larger than all": Solver(lr=0.1, batch_size=10**6, epochs=2),
    "steps": Solver(lr=0.1, batch_size=7, epochs=None, steps=23),
    "one step": Solver(lr=0.1, batch_size=7, epochs=None, steps=1),
    "all of it, many times": Solver(lr=0.1, batch_size=64, epochs=None, steps=9),
}
COUNTS = {
    "ragged": [40, 0, 7, 1, 3, 2, 10, 64, 63, 65, 8],
    "one large": [3000, 12, 30],
    "alone": [17],
    "a single example": [1],
    "without data": [0, 0],
}


def rows_of(counts: list[int]) -> Shards:
    """Rows with `counts` random examples of the pool each."""
    torch.manual_seed(0)
    index = torch.randint(len(POOL.y), (len(counts), max(counts)))
    count = torch.tensor(counts)
    inside = torch.arange(max(counts)) < count.unsqueeze(1)
    key = torch.randint(-(2**62), 2**62, (len(counts),))
    return Shards(index=index * inside, count=count, key=key)


def defined(plan: Schedule, shards: Shards) -> tuple[Tensor, Tensor, Tensor]:
    """Examples, classes and shares by the definition, [S, R, B]."""
    position, size = plan.position.transpose(0, 1), plan.size.T.unsqueeze(2)
    label = POOL.y[shards.index.gather(1, plan.position.flatten(1))].view_as(plan.position)
    inside = torch.arange(position.shape[2]) < size
    first = torch.arange(len(shards)).unsqueeze(1) * shards.index.shape[1]
    return position + first, label.transpose(0, 1), inside / size.clamp(min=1)


@pytest.mark.thinned
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("work", [None, 0.3])
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("name", SOLVERS)
def test_as_the_schedule_defines(name: str, counts: str, work: float | None, threads: int) -> None:
    if batches.compiled() is None:  # then the definition is what runs
        assert library("softmax") is None
        return
    shards = rows_of(COUNTS[counts])
    if work is not None:
        shards = replace(shards, work=torch.full((len(shards),), work))
    plan, before = schedule(shards, SOLVERS[name], in_host_memory(shards)), torch.get_num_threads()
    assert batches.lays_out(plan)
    torch.set_num_threads(threads)
    try:
        found = batches.lay_out(plan, POOL.y)
    finally:
        torch.set_num_threads(before)
    for own, right in zip(found, defined(plan, shards), strict=True):
        assert own.dtype == right.dtype
        assert torch.equal(own, right)


def test_whole_clients_in_file_order_have_nothing_to_lay_out() -> None:
    assert not batches.lays_out(schedule(rows_of([3, 5]), Solver(lr=0.1, batch_size=None)))

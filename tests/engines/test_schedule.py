"""Batches: every pass a permutation, short batches only where promised, rows by their keys."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
import torch
from engine_toys import RAGGED, SOLVERS, ragged_shards, row_of

from fedclust.core.calls import Shards
from fedclust.engines.schedule import Schedule, schedule
from fedclust.solver import Solver


def visits(plan: Schedule, row: int) -> list[list[int]]:
    """The batches of one row, as the row's own example numbers."""
    steps = int(plan.steps[row])
    return [plan.position[row, s, : int(plan.size[row, s])].tolist() for s in range(steps)]


def test_every_epoch_is_a_permutation_cut_into_batches() -> None:
    plan = schedule(ragged_shards(), Solver(lr=0.1, batch_size=5, epochs=3))
    for row, count in enumerate(RAGGED):
        batches = visits(plan, row)
        per_epoch = -(-count // 5)
        assert len(batches) == 3 * per_epoch
        for epoch in range(3 if count else 0):
            own = batches[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert [len(batch) for batch in own[:-1]] == [5] * (per_epoch - 1)
            assert sorted(chain(*own)) == list(range(count))


def test_epochs_have_different_orders_and_clients_too() -> None:
    plan = schedule(ragged_shards((40, 40)), Solver(lr=0.1, batch_size=40, epochs=2))
    (first, second), (other, _) = visits(plan, 0), visits(plan, 1)
    assert first != second
    assert first != other


def test_steps_cycle_through_the_data_without_short_batches() -> None:
    plan = schedule(ragged_shards(), Solver(lr=0.1, batch_size=5, epochs=None, steps=7))
    for row, count in enumerate(RAGGED):
        batches = visits(plan, row)
        assert len(batches) == (7 if count else 0)
        assert {len(batch) for batch in batches} <= {min(5, count)}
        stream = list(chain(*batches))
        for start in range(0, len(stream) - count + 1, max(count, 1)):
            assert sorted(stream[start : start + count]) == list(range(count))


def test_full_batch_is_the_whole_client_in_order() -> None:
    for solver in (
        Solver(lr=0.1, batch_size=None, epochs=2),
        Solver(lr=0.1, batch_size=None, epochs=None, steps=2),
    ):
        plan = schedule(ragged_shards(), solver)
        assert plan.ordered
        for row, count in enumerate(RAGGED):
            assert visits(plan, row) == ([list(range(count))] * 2 if count else [])


def test_a_row_alone_has_the_batches_it_has_in_company() -> None:
    shards = ragged_shards()
    for solver in (
        Solver(lr=0.1, batch_size=5, epochs=3),
        Solver(lr=0.1, batch_size=5, epochs=None, steps=9),
    ):
        together = schedule(shards, solver)
        for row, count in enumerate(RAGGED):
            if count:
                assert visits(schedule(row_of(shards, row), solver), 0) == visits(together, row)


def test_a_shorter_run_is_the_beginning_of_a_longer_one() -> None:
    shards = ragged_shards()
    short = schedule(shards, Solver(lr=0.1, batch_size=5, epochs=None, steps=3))
    long = schedule(shards, Solver(lr=0.1, batch_size=5, epochs=None, steps=11))
    for row in range(len(RAGGED)):
        assert visits(long, row)[:3] == visits(short, row)


def test_padding_is_zero_and_after_the_real_examples() -> None:
    plan = schedule(ragged_shards(), Solver(lr=0.1, batch_size=5, epochs=2))
    padding = torch.arange(plan.position.shape[2]) >= plan.size.unsqueeze(2)
    assert not plan.position[padding].any()
    assert not plan.size[torch.arange(plan.size.shape[1]) >= plan.steps.unsqueeze(1)].any()


def test_every_example_comes_first_equally_often() -> None:
    rows = 4000
    shards = Shards(
        index=torch.arange(5).repeat(rows, 1),
        count=torch.full((rows,), 5),
        key=ragged_shards((1,) * rows).key,
    )
    plan = schedule(shards, Solver(lr=0.1, batch_size=1, epochs=1))
    often = torch.bincount(plan.position[:, 0, 0], minlength=5)
    assert (often - rows / 5).abs().max() < 5 * (
        rows * 0.2 * 0.8
    ) ** 0.5  # five standard deviations


def test_step_counts() -> None:
    shards = ragged_shards((0, 1, 10, 11))
    assert shards.num_steps(Solver(lr=0.1, batch_size=10, epochs=3)).tolist() == [0, 3, 3, 6]
    assert shards.num_steps(Solver(lr=0.1, batch_size=None, epochs=3)).tolist() == [0, 3, 3, 3]
    assert shards.num_steps(Solver(lr=0.1, batch_size=10, epochs=None, steps=4)).tolist() == [
        0,
        4,
        4,
        4,
    ]


@pytest.mark.parametrize(
    ("work", "steps"),
    [(0.25, [0, 3, 3, 5]), (0.3, [0, 3, 3, 6]), (1e-6, [0, 1, 1, 1]), (1.0, [0, 10, 10, 20])],
)
def test_part_of_the_work_is_rounded_up_to_steps(work: float, steps: list[int]) -> None:
    shards = replace(ragged_shards((0, 1, 10, 11)), work=torch.full((4,), work))
    assert shards.num_steps(Solver(lr=0.1, batch_size=10, epochs=10)).tolist() == steps


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_who_does_part_of_the_work_meets_the_same_batches_first(name: str) -> None:
    shards, solver = ragged_shards(), SOLVERS[name]
    whole = schedule(shards, solver)
    work = torch.tensor([1.0, 0.5, 0.5, 0.7, 0.4])
    part = schedule(replace(shards, work=work), solver)
    assert torch.equal(part.steps, (work * whole.steps).ceil().long())
    for row, steps in enumerate(part.steps.tolist()):
        assert torch.equal(part.size[row, :steps], whole.size[row, :steps])
        assert torch.equal(part.position[row, :steps], whole.position[row, :steps])
        assert not part.size[row, steps:].any()

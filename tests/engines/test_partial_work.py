"""Stragglers: a row that does part of its work takes the first of its steps, on every engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, row_of, shape_of, shipped, starts, toy_pool

from fedclust.core.calls import Shards, TrainCall
from fedclust.core.types import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.models.sequence import Model
from fedclust.solver import Solver

ENGINES: dict[str, Callable[[Model, Pool], Engine]] = {
    "loop": LoopEngine,
    "vmap": VmapEngine,
    "fused": FusedEngine,
}
WORK = torch.tensor([1.0, 0.3, 1.0, 0.5, 0.1])  # the longest row does the least
NAMES = ["linear", "flex_mnist_cnn"]


def made(kind: str, name: str) -> Engine:
    return ENGINES[kind](shipped(name), toy_pool(shape_of(name)))


def straggling() -> Shards:
    return replace(ragged_shards(), work=WORK)


@pytest.mark.thinned
@pytest.mark.parametrize("engine", ["vmap", "fused"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", NAMES)
def test_partial_work_equals_the_loop(engine: str, name: str, solver: str) -> None:
    loop, fast = made("loop", name), made(engine, name)
    how, shards = SOLVERS[solver], straggling()
    models, label = starts(loop), labels(len(shards))
    want, got = (b.answer(TrainCall(models, label, shards, how, how.lr)) for b in (loop, fast))
    assert torch.equal(got.steps, want.steps)
    torch.testing.assert_close(got.params, want.params, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_steps_are_the_work_rounded_up(engine: str, solver: str) -> None:
    some, how = made(engine, "linear"), SOLVERS[solver]
    models, label = starts(some), labels(5)
    whole = some.answer(TrainCall(models, label, ragged_shards(), how, how.lr))
    part = some.answer(TrainCall(models, label, straggling(), how, how.lr))
    assert torch.equal(part.steps, (WORK * whole.steps).ceil().long())
    assert int(part.steps.sum()) < int(whole.steps.sum())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_half_of_four_epochs_is_two_epochs(engine: str, momentum: float) -> None:
    some, shards = made(engine, "linear"), ragged_shards()
    models, label = starts(some), labels(5)
    four, two = (
        Solver(lr=0.05, batch_size=5, epochs=epochs, momentum=momentum) for epochs in (4, 2)
    )
    part = some.answer(
        TrainCall(models, label, replace(shards, work=torch.full((5,), 0.5)), four, four.lr)
    )
    want = some.answer(TrainCall(models, label, shards, two, two.lr))
    assert torch.equal(part.steps, want.steps)
    torch.testing.assert_close(part.params, want.params, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(part.loss, want.loss, rtol=1e-6, atol=1e-6)


@pytest.mark.thinned
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_all_of_the_work_is_no_straggling(engine: str, solver: str) -> None:
    some, how = made(engine, "linear"), SOLVERS[solver]
    models, label = starts(some), labels(5)
    plain = some.answer(TrainCall(models, label, ragged_shards(), how, how.lr))
    whole = some.answer(
        TrainCall(models, label, replace(ragged_shards(), work=torch.ones(5)), how, how.lr)
    )
    assert torch.equal(whole.params, plain.params)
    assert torch.equal(whole.loss, plain.loss)
    assert torch.equal(whole.steps, plain.steps)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_straggler_is_the_same_alone_and_in_company(engine: str) -> None:
    some, how, shards = made(engine, "linear"), SOLVERS["momentum"], straggling()
    models, label = starts(some), labels(5)
    together = some.answer(TrainCall(models, label, shards, how, how.lr))
    for row in (0, 1, 3, 4):
        own = replace(row_of(shards, row), work=WORK[row : row + 1])
        alone = some.answer(TrainCall(models, label[row : row + 1], own, how, how.lr))
        torch.testing.assert_close(together.params[row], alone.params[0], rtol=1e-6, atol=1e-6)

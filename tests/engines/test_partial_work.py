"""Stragglers: a row that does part of its work takes the first of its steps, on every engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import ENGINES, SOLVERS, made, ragged_shards, training

from fedclust.core.calls import Shards
from fedclust.solver import Solver

WORK = torch.tensor([1.0, 0.3, 1.0, 0.5, 0.1])  # the longest row does the least


def straggling() -> Shards:
    return replace(ragged_shards(), work=WORK)


@pytest.mark.thinned
@pytest.mark.parametrize("engine", ["vmap", "fused"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["linear", "flex_mnist_cnn"])
def test_partial_work_equals_the_loop(engine: str, name: str, solver: str) -> None:
    loop, fast = made("loop", name), made(engine, name)
    call = training(loop, straggling(), SOLVERS[solver])
    want, got = (one.answer(call) for one in (loop, fast))
    assert torch.equal(got.steps, want.steps)
    torch.testing.assert_close(got.params, want.params, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_steps_are_the_work_rounded_up(engine: str, solver: str) -> None:
    """Whoever does all of it is computed to the same bits as where nobody straggles."""
    some, how = made(engine, "linear"), SOLVERS[solver]
    everything = replace(straggling(), work=torch.ones(5))
    whole, part, same = (
        some.answer(training(some, shards, how))
        for shards in (ragged_shards(), straggling(), everything)
    )
    assert torch.equal(part.steps, (WORK * whole.steps).ceil().long())
    assert int(part.steps.sum()) < int(whole.steps.sum())
    for name in ("params", "loss", "steps"):
        assert torch.equal(getattr(same, name), getattr(whole, name))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_half_of_four_epochs_is_two_epochs(engine: str, momentum: float) -> None:
    some, shards = made(engine, "linear"), ragged_shards()
    half = replace(shards, work=torch.full((5,), 0.5))
    how = Solver(lr=0.05, batch_size=5, epochs=2, momentum=momentum)
    want = some.answer(training(some, shards, how))
    part = some.answer(training(some, half, replace(how, epochs=4)))
    assert torch.equal(part.steps, want.steps)
    torch.testing.assert_close(part.params, want.params, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(part.loss, want.loss, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_straggler_is_the_same_alone_and_in_company(engine: str) -> None:
    some = made(engine, "linear")
    call = training(some, straggling(), SOLVERS["momentum"])
    together = some.answer(call)
    for row in (0, 1, 3, 4):
        alone = some.answer(call.take(torch.tensor([row])))
        torch.testing.assert_close(together.params[row], alone.params[0], rtol=1e-6, atol=1e-6)

"""Every task is the same in all engines, and its slopes are those of autograd."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toys import ENGINES, FAST, SOLVERS, labels, ragged_shards, starts, terms, training
from toy_tasks import FEATURES, TASKS, WIDE, pool_for

from fedclust.core.calls import AlignCall, GradCall, GradSumCall, LossCall, TestCall
from fedclust.core.task import Task
from fedclust.core.verbs import Engine
from fedclust.engines.loop import LoopEngine
from fedclust.models.mlp import mlp


def pair(name: str, engine: str, hidden: int) -> tuple[Engine, Engine]:
    pool = pool_for(TASKS[name])
    model = mlp((FEATURES,), WIDE, hidden=[hidden] if hidden else [])
    return LoopEngine(model, pool), ENGINES[engine](model, pool)


@pytest.mark.parametrize("name", TASKS)
def test_the_slope_is_that_of_autograd(name: str) -> None:
    task, pool = pool_for(TASKS[name]).task, pool_for(TASKS[name])
    outputs = torch.randn(80, WIDE, generator=torch.Generator().manual_seed(1))
    own = task.slope(outputs, pool.y)
    torch.testing.assert_close(own, Task.slope(task, outputs, pool.y))
    each = task.loss(outputs, pool.y)
    assert each.shape == (80,)
    torch.testing.assert_close(task.loss(outputs, pool.y, "mean"), each.mean())
    torch.testing.assert_close(task.loss(outputs, pool.y, "sum"), each.sum())


@pytest.mark.thinned
@pytest.mark.parametrize("hidden", [0, 5])
@pytest.mark.parametrize("solver", ["sgd", "everything"])
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", TASKS)
def test_training_equals_the_loop(name: str, engine: str, solver: str, hidden: int) -> None:
    loop, fast = pair(name, engine, hidden)
    shards = ragged_shards()
    more = terms(loop, shards) if solver == "everything" else {}
    call = training(loop, shards, SOLVERS[solver], each_step=True, **more)
    want, got = loop.answer(call), fast.answer(call)
    assert (want.params - call.models[call.label]).abs().amax(1)[shards.count > 0].min() > 1e-3
    close = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}
    for one in ("params", "loss", "first_loss", "step_loss"):
        torch.testing.assert_close(getattr(got, one), getattr(want, one), **close)
    quick = fast.answer(replace(call, each_step=False))
    torch.testing.assert_close(quick.params, want.params, rtol=1e-4, atol=1e-5)


@pytest.mark.thinned
@pytest.mark.parametrize("hidden", [0, 5])
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", TASKS)
def test_what_reads_equals_the_loop(name: str, engine: str, hidden: int) -> None:
    loop, fast = pair(name, engine, hidden)
    shards = ragged_shards()
    models, label = starts(loop), labels(len(shards))
    weight = torch.rand(5, 3, generator=torch.Generator().manual_seed(2))
    weight /= weight.sum(1, keepdim=True)
    weight[1] = torch.tensor([0.0, 1.0, 0.0])

    def close(call: Any, **tolerance: Any) -> Any:
        got, want = fast.answer(call), loop.answer(call)
        torch.testing.assert_close(got, want, rtol=1e-4, **tolerance)
        return got

    gradients, test = GradCall(models, label, shards), TestCall(models, label, shards)
    for call in (LossCall(models, shards), LossCall(models, shards, per_example=True), gradients):
        close(call, atol=1e-5)
    got, want = (one.answer(GradSumCall(gradients, None)).total.float() for one in (fast, loop))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    close(AlignCall(models, torch.ones_like(models), shards, None), atol=1e-4, check_dtype=False)
    for one in (test, replace(test, weight=weight)):
        tested = close(one, atol=1e-5)
        assert tested.sums.dtype == torch.float64
        assert not tested.sums[shards.count == 0].any()
    # a mixture of one model says what the model says
    alone, mixed = (loop.answer(one) for one in (test, replace(test, weight=torch.eye(3)[label])))
    torch.testing.assert_close(mixed.loss_sum, alone.loss_sum, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mixed.sums, alone.sums, rtol=1e-5, atol=1e-5)

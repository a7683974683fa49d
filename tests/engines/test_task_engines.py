"""Every task is the same in all engines, and its slopes are those of autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, starts, terms
from toy_tasks import FEATURES, TASKS, WIDE, pool_for

from fedclust.core.calls import AlignCall, GradCall, GradSumCall, LossCall, TestCall, TrainCall
from fedclust.core.task import Task
from fedclust.core.types import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model

ENGINES: dict[str, Callable[[Model, Pool], Engine]] = {"vmap": VmapEngine, "fused": FusedEngine}


def pair(name: str, engine: str, hidden: int) -> tuple[LoopEngine, Engine]:
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
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", TASKS)
def test_training_equals_the_loop(name: str, engine: str, solver: str, hidden: int) -> None:
    loop, fast = pair(name, engine, hidden)
    shards, how = ragged_shards(), SOLVERS[solver]
    models, label = starts(loop), labels(len(shards))
    call = TrainCall(models, label, shards, how, how.lr, each_step=True)
    if solver == "everything":
        call = replace(call, **terms(loop, shards))
    want, got = loop.answer(call), fast.answer(call)
    assert (want.params - models[label]).abs().amax(1)[shards.count > 0].min() > 1e-3
    for one in ("params", "loss", "first_loss", "step_loss"):
        torch.testing.assert_close(
            getattr(got, one), getattr(want, one), rtol=1e-4, atol=1e-5, equal_nan=True
        )
    quick = fast.answer(replace(call, each_step=False))
    torch.testing.assert_close(quick.params, want.params, rtol=1e-4, atol=1e-5)


@pytest.mark.thinned
@pytest.mark.parametrize("hidden", [0, 5])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", TASKS)
def test_what_reads_equals_the_loop(name: str, engine: str, hidden: int) -> None:
    loop, fast = pair(name, engine, hidden)
    shards = ragged_shards()
    models, label = starts(loop), labels(len(shards))
    weight = torch.rand(5, 3, generator=torch.Generator().manual_seed(2))
    weight /= weight.sum(1, keepdim=True)
    weight[1] = torch.tensor([0.0, 1.0, 0.0])
    calls = [
        LossCall(models, shards),
        LossCall(models, shards, per_example=True),
        GradCall(models, label, shards),
    ]
    for call in calls:
        torch.testing.assert_close(fast.answer(call), loop.answer(call), rtol=1e-4, atol=1e-5)
    sums = GradSumCall(GradCall(models, label, shards), None)
    torch.testing.assert_close(
        fast.answer(sums).total.float(), loop.answer(sums).total.float(), rtol=1e-4, atol=1e-5
    )
    aligned = AlignCall(models, torch.ones_like(models), shards, None)
    for got, want in zip(fast.answer(aligned), loop.answer(aligned), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, check_dtype=False)
    for test in (TestCall(models, label, shards), TestCall(models, label, shards, weight)):
        want_test, got_test = loop.answer(test), fast.answer(test)
        torch.testing.assert_close(got_test.loss_sum, want_test.loss_sum, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got_test.sums, want_test.sums, rtol=1e-4, atol=1e-4)
        assert got_test.sums.dtype == torch.float64
        assert not got_test.sums[shards.count == 0].any()
    # a mixture of one model says what the model says
    alone = loop.answer(TestCall(models, label, shards))
    mixed = loop.answer(TestCall(models, label, shards, torch.eye(3)[label]))
    torch.testing.assert_close(mixed.loss_sum, alone.loss_sum, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mixed.sums, alone.sums, rtol=1e-5, atol=1e-5)

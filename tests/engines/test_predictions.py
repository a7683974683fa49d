"""What models say of examples: the same in every engine, and what a test counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import ENGINES, labels, ragged_shards, row_of, shape_of, shipped, starts, toy_pool
from torch import Tensor
from torch.nn import functional as F

from fedclust.core.calls import PredictCall, TestCall, split
from fedclust.core.task import Classification
from fedclust.core.types import Pool
from fedclust.core.verbs import Engine
from fedclust.tasks.multilabel import Multilabel
from fedclust.tasks.regression import Regression

MODELS = ["linear", "mlp128", "flex_mnist_cnn"]


TASKS = {"classes": Classification(), "flags": Multilabel(), "numbers": Regression()}


def pool_of(name: str, task: str = "classes") -> Pool:
    """Toy examples whose targets are their class as it is, as ten flags, or as ten numbers."""
    pool = toy_pool(shape_of(name))
    if task == "classes":
        return pool
    flags = F.one_hot(pool.y, 10)
    noise = torch.rand(60, 10, generator=torch.Generator().manual_seed(1))
    return replace(pool, task=TASKS[task], y=flags.byte() if task == "flags" else flags - noise)


def made(kind: str, name: str, task: str = "classes") -> Engine:
    return ENGINES[kind](shipped(name), pool_of(name, task))


def shares(rows: int) -> Tensor:
    weight = torch.rand(rows, 3, generator=torch.Generator().manual_seed(2))
    return weight / weight.sum(1, keepdim=True)


@pytest.mark.thinned
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(
    ("name", "task"),
    [*((name, "classes") for name in MODELS), ("mlp128", "flags"), ("mlp128", "numbers")],
)
@pytest.mark.parametrize("kind", ENGINES)
def test_outputs_have_the_losses_and_sums_of_a_test(
    kind: str, name: str, task: str, mixed: bool
) -> None:
    engine, shards = made(kind, name, task), ragged_shards()
    rows, judge = len(shards), TASKS[task]
    given = starts(engine), labels(rows), shards, shares(rows) if mixed else None
    said, tested = engine.answer(PredictCall(*given)), engine.answer(TestCall(*given))
    assert said.shape == (rows, 12, 10)
    assert said.dtype == torch.float32
    y = pool_of(name, task).y
    for row, count in enumerate(shards.count.tolist()):
        own, mine = said[row, :count], y[shards.index[row, :count]]
        loss = judge.loss(own.double(), mine, "sum")
        torch.testing.assert_close(loss, tested.loss_sum[row], rtol=1e-5, atol=1e-5)
        sums = judge.sums(own, mine).double().sum(0)
        torch.testing.assert_close(sums, tested.sums[row], rtol=1e-5, atol=1e-5)
        assert not said[row, count:].any()


@pytest.mark.thinned
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["vmap", "fused"])
def test_engines_say_the_same(kind: str, name: str, mixed: bool) -> None:
    loop, fast, shards = made("loop", name), made(kind, name), ragged_shards()
    given = starts(loop), labels(len(shards)), shards, shares(len(shards)) if mixed else None
    want, got = (one.answer(PredictCall(*given)).log_softmax(2) for one in (loop, fast))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ENGINES)
def test_a_row_alone_says_what_it_says_in_company(kind: str) -> None:
    engine, shards = made(kind, "mlp128"), ragged_shards()
    models, label = starts(engine), labels(len(shards))
    calls = [PredictCall(models, label, shards), PredictCall(models, label[:1], row_of(shards, 0))]
    assert calls[0].kind == calls[1].kind is not None
    whole, first = split(engine.answer(PredictCall.merge(calls)), calls)
    torch.testing.assert_close(whole, engine.answer(calls[0]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(first[0, :3], whole[0, :3], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ENGINES)
def test_nobody_says_nothing(kind: str) -> None:
    engine, shards = made(kind, "mlp128"), ragged_shards(())
    none = torch.zeros(0, dtype=torch.int64)
    assert engine.answer(PredictCall(starts(engine), none, shards)).shape == (0, 0, 10)

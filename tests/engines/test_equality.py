"""Every fast engine computes what the loop engine computes, for every shipped model and solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from engine_toys import (
    DIFFERENT_KINDS,
    MODELS,
    SOLVERS,
    labels,
    ragged_shards,
    row_of,
    shape_of,
    shipped,
    starts,
    toy_pool,
)
from torch import Tensor

from fedclust.core.calls import GradCall, LossCall, TestCall, TrainCall
from fedclust.core.types import Pool
from fedclust.core.verbs import Engine
from fedclust.datasets.view import ImageToInput
from fedclust.engines.fused import FusedEngine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.models.params import Layout, unflatten
from fedclust.models.sequence import Model

ENGINES: dict[str, Callable[[Model, Pool], Engine]] = {"vmap": VmapEngine, "fused": FusedEngine}


def pair(engine: str, name: str) -> tuple[LoopEngine, Engine]:
    model, pool = shipped(name), toy_pool(shape_of(name))
    return LoopEngine(model, pool), ENGINES[engine](model, pool)


def assert_equal_but_for_kinks(got: Tensor, want: Tensor, where: Layout) -> None:
    """Equal to rounding [C, P], but for a few weights of every tensor, which may differ by 1e-3.

    A unit whose input is zero to rounding falls on either side of its ReLU (or wins or loses its
    pooling window) as the order of summation will have it, and takes its own weights with it.
    """
    for name, value in unflatten(got, where).items():
        expected = unflatten(want, where)[name]
        far = ~torch.isclose(value, expected, rtol=1e-4, atol=1e-5)
        assert far.double().mean() < 0.1, name
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-3)


# vmap has no code of its own for a layer, so models of different kinds tell of all solvers
TRAINED = [
    (engine, name, solver)
    for engine in ENGINES
    for name in MODELS
    for solver in SOLVERS
    if engine == "fused" or name in DIFFERENT_KINDS or solver == "everything"
]


@pytest.mark.thinned
@pytest.mark.parametrize(("engine", "name", "solver"), TRAINED)
def test_training_equals_the_loop(engine: str, name: str, solver: str) -> None:
    loop, fast = pair(engine, name)
    how, shards = SOLVERS[solver], ragged_shards()
    models, label = starts(loop), labels(len(shards))
    slots = 0.01 * starts(loop, 4)[1:] if how.momentum else None
    expected = loop.answer(TrainCall(models, label, shards, how, how.lr, slots=slots))
    got = fast.answer(TrainCall(models, label, shards, how, how.lr, slots=slots))
    assert (expected.params - models[label]).abs().amax(1)[
        shards.count > 0
    ].min() > 1e-3  # it did train
    assert_equal_but_for_kinks(
        got.params - models[label], expected.params - models[label], loop.layout
    )
    torch.testing.assert_close(got.loss, expected.loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.steps, expected.steps)
    assert (got.slots is None) == (expected.slots is None) == (how.momentum == 0)
    if expected.slots is not None:
        assert_equal_but_for_kinks(got.slots, expected.slots, loop.layout)


@pytest.mark.thinned
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_reading_verbs_equal_the_loop(engine: str, name: str) -> None:
    loop, fast = pair(engine, name)
    shards = ragged_shards()
    models, label = starts(loop), labels(len(shards))
    torch.testing.assert_close(
        fast.answer(LossCall(models, shards)),
        loop.answer(LossCall(models, shards)),
        rtol=1e-5,
        atol=1e-5,
    )
    gradient = loop.answer(GradCall(models, label, shards))
    assert_equal_but_for_kinks(fast.answer(GradCall(models, label, shards)), gradient, loop.layout)
    for got, want in zip(
        fast.answer(TestCall(models, label, shards)),
        loop.answer(TestCall(models, label, shards)),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_init_is_the_same_in_every_engine(engine: str) -> None:
    loop, fast = pair(engine, "mlp128")
    assert fast.layout.num_params == loop.layout.num_params
    assert torch.equal(starts(fast), starts(loop))


@pytest.mark.thinned
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", DIFFERENT_KINDS)
@pytest.mark.parametrize("solver", ["everything", "full_batch", "sgd"])
def test_a_row_alone_equals_the_row_in_company(engine: str, name: str, solver: str) -> None:
    _, fast = pair(engine, name)
    how, shards = SOLVERS[solver], ragged_shards()
    models, label = starts(fast), labels(len(shards))
    together = fast.answer(TrainCall(models, label, shards, how, how.lr))
    table, gradient = (
        fast.answer(LossCall(models, shards)),
        fast.answer(GradCall(models, label, shards)),
    )
    loss_sum, correct = fast.answer(TestCall(models, label, shards))
    for row in range(len(shards)):
        own, alone = label[row : row + 1], row_of(shards, row)
        got = fast.answer(TrainCall(models, own, alone, how, how.lr))
        torch.testing.assert_close(got.params[0], together.params[row], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(got.loss[0], together.loss[row], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            fast.answer(LossCall(models, alone))[0], table[row], rtol=1e-6, atol=1e-6
        )
        torch.testing.assert_close(
            fast.answer(GradCall(models, own, alone))[0], gradient[row], rtol=1e-6, atol=1e-6
        )
        one_loss, one_correct = fast.answer(TestCall(models, own, alone))
        torch.testing.assert_close(one_loss[0], loss_sum[row], rtol=1e-6, atol=1e-6)
        assert one_correct[0] == correct[row]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("solver", ["sgd", "everything"])
def test_inputs_are_left_as_they_were(engine: str, solver: str) -> None:
    _, fast = pair(engine, "mlp128")
    how, shards = SOLVERS[solver], ragged_shards()
    models, label = starts(fast), labels(len(shards))
    slots = torch.ones_like(models)
    before = models.clone(), label.clone(), slots.clone(), shards.index.clone()
    fast.answer(TrainCall(models, label, shards, how, how.lr, slots=slots))
    fast.answer(LossCall(models, shards))
    fast.answer(GradCall(models, label, shards))
    fast.answer(TestCall(models, label, shards))
    for now, then in zip((models, label, slots, shards.index), before, strict=True):
        assert torch.equal(now, then)


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_has_no_effect(engine: str) -> None:
    """What the index table holds past a row's count, and how far it reaches, changes nothing."""
    _, fast = pair(engine, "cnn_femnist_tiny")
    how, shards = SOLVERS["everything"], ragged_shards()
    models, label = starts(fast), labels(len(shards))
    inside = torch.arange(shards.index.shape[1]) < shards.count.unsqueeze(1)
    garbage = torch.where(inside, shards.index, 59)
    wider = torch.cat([garbage, torch.full((len(shards), 3), 58)], 1)
    padded = type(shards)(index=wider, count=shards.count, key=shards.key)
    got, want = (
        fast.answer(TrainCall(models, label, which, how, how.lr)) for which in (padded, shards)
    )
    torch.testing.assert_close(got.params, want.params, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        fast.answer(LossCall(models, padded)),
        fast.answer(LossCall(models, shards)),
        rtol=1e-6,
        atol=1e-6,
    )
    torch.testing.assert_close(
        fast.answer(GradCall(models, label, padded)),
        fast.answer(GradCall(models, label, shards)),
        rtol=1e-6,
        atol=1e-6,
    )
    for a, b in zip(
        fast.answer(TestCall(models, label, padded)),
        fast.answer(TestCall(models, label, shards)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("engine", ["loop", *ENGINES])
def test_rows_without_examples_return_their_start(engine: str) -> None:
    model, pool = shipped("mlp128"), toy_pool((1, 8, 8))
    engine = LoopEngine(model, pool) if engine == "loop" else ENGINES[engine](model, pool)
    how, models = SOLVERS["everything"], starts(engine)
    slots = torch.ones_like(models)
    for shards, empty in ((ragged_shards(), [2]), (ragged_shards((0, 0)), [0, 1])):
        label = labels(len(shards))
        result = engine.answer(TrainCall(models, label, shards, how, how.lr, slots=slots))
        assert result.slots is not None
        assert torch.equal(result.params[empty], models[label][empty])
        assert torch.equal(result.slots[empty], slots[label][empty])
        assert not result.loss[empty].any()
        assert not result.steps[empty].any()
        assert not engine.answer(LossCall(models, shards))[empty].any()
        assert not engine.answer(GradCall(models, label, shards))[empty].any()
        loss_sum, sums = engine.answer(TestCall(models, label, shards))
        assert not loss_sum[empty].any()
        assert not sums[empty].any()


@pytest.mark.parametrize("engine", ["loop", *ENGINES])
def test_a_call_without_rows_returns_no_rows(engine: str) -> None:
    model, pool = shipped("linear"), toy_pool((1, 8, 8))
    engine = LoopEngine(model, pool) if engine == "loop" else ENGINES[engine](model, pool)
    models, none = starts(engine), torch.empty(0, dtype=torch.int64)
    shards = ragged_shards(())
    result = engine.answer(TrainCall(models, none, shards, SOLVERS["sgd"], 0.1))
    assert result.params.shape == (0, engine.layout.num_params)
    assert result.loss.shape == (0,)
    assert engine.answer(LossCall(models, shards)).shape == (0, 3)
    assert engine.answer(GradCall(models, none, shards)).shape == (0, engine.layout.num_params)
    assert [len(part) for part in engine.answer(TestCall(models, none, shards))] == [0, 0]


@pytest.mark.parametrize("engine", ["loop", *ENGINES])
def test_dtypes(engine: str) -> None:
    model, pool = shipped("linear"), toy_pool((1, 8, 8))
    engine = LoopEngine(model, pool) if engine == "loop" else ENGINES[engine](model, pool)
    shards = ragged_shards()
    models, label = starts(engine), labels(len(shards))
    result = engine.answer(TrainCall(models, label, shards, SOLVERS["momentum"], 0.1))
    assert result.slots is not None
    loss_sum, sums = engine.answer(TestCall(models, label, shards))
    floats = result.params, result.slots, result.loss, engine.answer(LossCall(models, shards))
    assert {value.dtype for value in floats} == {torch.float32}
    assert (result.steps.dtype, loss_sum.dtype, sums.dtype) == (
        torch.int64,
        torch.float64,
        torch.float64,
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["mlp", "cnn_cifar_small"])
def test_random_crops_are_the_same_in_every_engine(engine: str, name: str) -> None:
    view = ImageToInput(crop=16, standardise=True, augment="crop_flip_contrast")
    pool = replace(toy_pool((3, 19, 19)), view=view)
    model, how, shards = shipped(name, pool.shape), SOLVERS["momentum"], ragged_shards()
    loop, fast = LoopEngine(model, pool), ENGINES[engine](model, pool)
    still = ENGINES[engine](model, replace(pool, view=replace(view, augment="none")))
    models, label = starts(loop), labels(len(shards))
    expected, got = (b.answer(TrainCall(models, label, shards, how, how.lr)) for b in (loop, fast))
    assert_equal_but_for_kinks(got.params, expected.params, loop.layout)
    torch.testing.assert_close(got.loss, expected.loss, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(
        still.answer(TrainCall(models, label, shards, how, how.lr)).loss, got.loss, rtol=1e-3
    )
    # without training all see the middle
    for one, other in zip(
        loop.answer(TestCall(models, label, shards)),
        still.answer(TestCall(models, label, shards)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)

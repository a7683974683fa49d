"""Every fast engine computes what the loop engine computes, for every shipped model and solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toys import (
    DIFFERENT_KINDS,
    ENGINES,
    FAST,
    MODELS,
    SOLVERS,
    labels,
    made,
    ragged_shards,
    reading,
    shipped,
    starts,
    toy_pool,
    training,
)
from torch import Tensor

from fedclust.core.calls import TestCall
from fedclust.datasets.view import ImageToInput
from fedclust.models.params import Layout, unflatten


def close(got: Any, want: Any, tolerance: float) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


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
    for engine in FAST
    for name in MODELS
    for solver in SOLVERS
    if engine == "fused" or name in DIFFERENT_KINDS or solver == "everything"
]


@pytest.mark.thinned
@pytest.mark.parametrize(("engine", "name", "solver"), TRAINED)
def test_training_equals_the_loop(engine: str, name: str, solver: str) -> None:
    loop, fast, how = made("loop", name), made(engine, name), SOLVERS[solver]
    slots = 0.01 * starts(loop, 4)[1:] if how.momentum else None
    call = training(loop, ragged_shards(), how, slots=slots)
    start, expected, got = call.models[call.label], loop.answer(call), fast.answer(call)
    moved = (expected.params - start).abs().amax(1)
    assert moved[call.shards.count > 0].min() > 1e-3  # it did train
    assert_equal_but_for_kinks(got.params - start, expected.params - start, loop.layout)
    torch.testing.assert_close(got.loss, expected.loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.steps, expected.steps)
    assert (got.slots is None) == (expected.slots is None) == (how.momentum == 0)
    if expected.slots is not None:
        assert_equal_but_for_kinks(got.slots, expected.slots, loop.layout)


@pytest.mark.thinned
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", MODELS)
def test_reading_verbs_equal_the_loop(engine: str, name: str) -> None:
    loop, fast, shards = made("loop", name), made(engine, name), ragged_shards()
    losses, gradient, test = reading(starts(loop), labels(len(shards)), shards)
    for call in (losses, test):
        close(fast.answer(call), loop.answer(call), 1e-5)
    assert_equal_but_for_kinks(fast.answer(gradient), loop.answer(gradient), loop.layout)


@pytest.mark.parametrize("engine", FAST)
def test_init_is_the_same_in_every_engine(engine: str) -> None:
    loop, fast = made("loop", "mlp128"), made(engine, "mlp128")
    assert fast.layout.num_params == loop.layout.num_params
    assert torch.equal(starts(fast), starts(loop))


@pytest.mark.thinned
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", DIFFERENT_KINDS)
@pytest.mark.parametrize("solver", ["everything", "full_batch", "sgd"])
def test_a_row_alone_equals_the_row_in_company(engine: str, name: str, solver: str) -> None:
    fast = made(engine, name)
    train = training(fast, ragged_shards(), SOLVERS[solver])
    calls = reading(train.models, train.label, train.shards)
    together, read = fast.answer(train), [fast.answer(call) for call in calls]
    for row in torch.arange(len(train.shards)).unsqueeze(1):
        got = fast.answer(train.take(row))
        close([got.params, got.loss], [together.params[row], together.loss[row]], 1e-6)
        table, gradient, (loss_sum, correct) = (fast.answer(call.take(row)) for call in calls)
        close([table, gradient, loss_sum], [read[0][row], read[1][row], read[2][0][row]], 1e-6)
        assert torch.equal(correct, read[2][1][row])


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("solver", ["sgd", "everything"])
def test_inputs_are_left_as_they_were(engine: str, solver: str) -> None:
    fast = made(engine, "mlp128")
    slots = torch.ones_like(starts(fast))
    call = training(fast, ragged_shards(), SOLVERS[solver], slots=slots)
    given = call.models, call.label, slots, call.shards.index
    before = [one.clone() for one in given]
    for one in (call, *reading(call.models, call.label, call.shards)):
        fast.answer(one)
    assert all(torch.equal(now, then) for now, then in zip(given, before, strict=True))


@pytest.mark.parametrize("engine", FAST)
def test_padding_has_no_effect(engine: str) -> None:
    """What the index table holds past a row's count, and how far it reaches, changes nothing."""
    fast, shards = made(engine, "cnn_femnist_tiny"), ragged_shards()
    inside = torch.arange(shards.index.shape[1]) < shards.count.unsqueeze(1)
    garbage = torch.where(inside, shards.index, 59)
    wider = torch.cat([garbage, torch.full((len(shards), 3), 58)], 1)
    call = training(fast, shards, SOLVERS["everything"])
    for one in (call, *reading(call.models, call.label, shards)):
        got, want = fast.answer(replace(one, shards=replace(shards, index=wider))), fast.answer(one)
        got, want = (x.params if one is call else x for x in (got, want))
        close(got, want, 1e-6)


@pytest.mark.parametrize("kind", ENGINES)
def test_rows_without_examples_return_their_start(kind: str) -> None:
    engine = made(kind, "mlp128")
    slots = torch.ones_like(starts(engine))
    for shards, empty in ((ragged_shards(), [2]), (ragged_shards((0, 0)), [0, 1])):
        call = training(engine, shards, SOLVERS["everything"], slots=slots)
        result = engine.answer(call)
        assert torch.equal(result.params[empty], call.models[call.label][empty])
        assert torch.equal(result.slots[empty], slots[call.label][empty])
        read = [engine.answer(one) for one in reading(call.models, call.label, shards)]
        for values in (result.loss, result.steps, *read[:2], *read[2]):
            assert not values[empty].any()


@pytest.mark.parametrize("kind", ENGINES)
def test_a_call_without_rows_returns_no_rows(kind: str) -> None:
    engine, none, shards = made(kind, "linear"), torch.empty(0).long(), ragged_shards(())
    result = engine.answer(training(engine, shards, SOLVERS["sgd"]))
    read = [engine.answer(one) for one in reading(starts(engine), none, shards)]
    rows = (0, engine.layout.num_params)
    assert (result.params.shape, result.loss.shape) == (rows, (0,))
    assert (read[0].shape, read[1].shape) == ((0, 3), rows)
    assert [len(part) for part in read[2]] == [0, 0]


@pytest.mark.parametrize("kind", ENGINES)
def test_dtypes(kind: str) -> None:
    engine, shards = made(kind, "linear"), ragged_shards()
    call = training(engine, shards, SOLVERS["momentum"])
    result = engine.answer(call)
    read = [engine.answer(one) for one in reading(call.models, call.label, shards)]
    floats = result.params, result.slots, result.loss, read[0]
    assert {value.dtype for value in floats} == {torch.float32}
    assert (result.steps.dtype, *(part.dtype for part in read[2])) == (
        *(torch.int64, torch.float64, torch.float64),
    )


@pytest.mark.full
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("name", ["mlp", "cnn_cifar_small"])
def test_random_crops_are_the_same_in_every_engine(engine: str, name: str) -> None:
    view = ImageToInput(crop=16, standardise=True, augment="crop_flip_contrast")
    pool = replace(toy_pool((3, 19, 19)), view=view)
    model = shipped(name, pool.shape)
    loop, fast = (ENGINES[kind](model, pool) for kind in ("loop", engine))
    still = ENGINES[engine](model, replace(pool, view=replace(view, augment="none")))
    call = training(loop, ragged_shards(), SOLVERS["momentum"])
    expected, got = loop.answer(call), fast.answer(call)
    assert_equal_but_for_kinks(got.params, expected.params, loop.layout)
    torch.testing.assert_close(got.loss, expected.loss, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(still.answer(call).loss, got.loss, rtol=1e-3)
    # without training all see the middle
    test = TestCall(call.models, call.label, call.shards)
    close(loop.answer(test), still.answer(test), 1e-5)

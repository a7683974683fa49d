"""What a call may give besides: the same in every engine, row by row, and by definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toys import (
    ENGINES,
    FAST,
    SOLVERS,
    labels,
    made,
    ragged_shards,
    starts,
    toy_pool,
    training,
)
from torch import Tensor
from torch.nn import functional as F

from fedclust.core.calls import LocalResult, LossCall, Shards, TestCall, TrainCall
from fedclust.core.verbs import Engine
from fedclust.solver import Solver

MODELS = ["linear", "mlp128", "cnn_femnist_tiny", "flex_mnist_cnn"]
FIELDS = ["linear", "example_weight", "frozen", "all"]
WITHOUT: dict[str, Any] = {"linear": None, "example_weight": None, "frozen": None}


def given(engine: Engine, field: str, rows: int, width: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(4)
    values = {
        "linear": 0.1 * torch.randn(rows, engine.layout.num_params, generator=draw),
        "example_weight": 2 * torch.rand(rows, width, generator=draw),
        "frozen": engine.layout.mask(engine.layout.last_layers()),
    }
    return values if field == "all" else {field: values[field]}


def call(engine: Engine, field: str, solver: str) -> TrainCall:
    shards, how = ragged_shards(), SOLVERS[solver]
    slots = 0.01 * starts(engine, 3).flip(0) if how.momentum else None
    return training(engine, shards, how, slots=slots, **given(engine, field, *shards.index.shape))


def assert_near(got: LocalResult, want: LocalResult) -> None:
    """Equal to rounding, but for a few units that a ReLU or a window turns."""
    torch.testing.assert_close(got.params, want.params, rtol=1e-4, atol=1e-3)
    assert float((got.params - want.params).abs().double().mean()) < 1e-6
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.first_loss, want.first_loss, rtol=1e-4, atol=1e-5)


@pytest.mark.thinned
@pytest.mark.parametrize("solver", ["sgd", "full_batch", "everything"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", FAST)
def test_training_equals_the_loop(kind: str, name: str, field: str, solver: str) -> None:
    loop, fast = made("loop", name), made(kind, name)
    asked = call(loop, field, solver)
    want, got = (engine.answer(asked) for engine in (loop, fast))
    plain = loop.answer(replace(asked, **WITHOUT))
    assert (want.params - plain.params).abs().max() > 1e-3  # it makes a difference
    assert_near(got, want)
    if want.slots is not None:
        torch.testing.assert_close(got.slots, want.slots, rtol=1e-4, atol=2e-3)


@pytest.mark.thinned
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", ENGINES)
def test_a_row_alone_equals_the_row_in_company(kind: str, field: str) -> None:
    engine = made(kind, "mlp128")
    asked = call(engine, field, "everything")
    together = engine.answer(asked)
    for row in range(len(asked.shards)):
        alone = engine.answer(asked.take(torch.tensor([row])))
        torch.testing.assert_close(alone.params[0], together.params[row], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(alone.loss[0], together.loss[row], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ENGINES)
def test_weights_of_one_and_a_term_of_zero_change_nothing(kind: str) -> None:
    engine = made(kind, "mlp128")
    asked: Any = call(engine, "all", "everything")
    idle = {
        "linear": torch.zeros_like(asked.linear),
        "example_weight": torch.ones_like(asked.example_weight),
        "frozen": torch.zeros_like(asked.frozen, dtype=torch.bool),
    }
    same, plain = (engine.answer(replace(asked, **more)).params for more in (idle, WITHOUT))
    torch.testing.assert_close(same, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.thinned
@pytest.mark.parametrize("part", ["body", "head"])
@pytest.mark.parametrize("name", ["mlp128", "flex_mnist_cnn"])
@pytest.mark.parametrize("kind", ENGINES)
def test_what_is_frozen_stays_to_the_bit(kind: str, name: str, part: str) -> None:
    """Value and momentum; what is not moves as in the reference, which freezes number by number."""
    engine, loop = made(kind, name), made("loop", name)
    head = engine.layout.mask(engine.layout.last_layers())
    frozen = head if part == "head" else ~head
    asked: Any = replace(call(engine, "linear", "everything"), frozen=frozen)
    got, want = engine.answer(asked), loop.answer(asked)
    start = asked.models[asked.label]
    assert torch.equal(got.params[:, frozen], start[:, frozen])
    assert torch.equal(got.slots[:, frozen], asked.slots[asked.label][:, frozen])
    moved = (got.params - start)[:, ~frozen]
    assert (moved[asked.shards.count > 0].abs().amax(1) > 1e-3).all()
    assert_near(got, want)


@pytest.mark.parametrize("kind", ENGINES)
def test_one_full_batch_step_by_hand(kind: str) -> None:
    """w - lr * (mean of weight * gradient + linear), and what is frozen stays to the bit."""
    engine, pool, row = made(kind, "linear"), toy_pool((1, 8, 8)), 1
    asked: Any = call(engine, "all", "full_batch")
    asked = replace(asked, solver=replace(asked.solver, epochs=1))
    got = engine.answer(asked)
    index = asked.shards.index[row, : int(asked.shards.count[row])]
    start = asked.models[asked.label[row]]
    w = start[engine.layout["1.weight"]].view(10, 64).clone().requires_grad_()
    b = start[engine.layout["1.bias"]].clone().requires_grad_()
    logits = pool.inputs(index).flatten(1) @ w.T + b
    weight = asked.example_weight[row, : len(index)]
    loss = (weight * F.cross_entropy(logits, pool.y[index], reduction="none")).mean()
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, [w, b])])
    expected = start - 0.05 * (gradient + asked.linear[row])
    free = engine.answer(replace(asked, frozen=None)).params[row]
    torch.testing.assert_close(free, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.first_loss[row], loss.detach(), rtol=1e-5, atol=1e-5)
    assert torch.equal(got.params[row], start)  # softmax regression is all head


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ENGINES)
def test_losses_of_examples_have_the_losses_of_rows_as_their_mean(kind: str, name: str) -> None:
    engine, shards = made(kind, name), ragged_shards()
    asked = LossCall(starts(engine), shards, per_example=True)
    each = engine.answer(asked)
    assert each.shape == (*shards.index.shape, 3)
    past = torch.arange(shards.index.shape[1]) >= shards.count.unsqueeze(1)
    assert not each[past].any()
    means = each.sum(1) / shards.count.clamp(min=1).unsqueeze(1)
    rows = engine.answer(replace(asked, per_example=False))
    torch.testing.assert_close(means, rows, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(each, made("loop", name).answer(asked), rtol=1e-4, atol=1e-4)


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ENGINES)
def test_mixtures_average_probabilities(kind: str, name: str) -> None:
    engine, shards = made(kind, name), ragged_shards()
    single = TestCall(starts(engine), labels(len(shards)), shards)
    weight = torch.rand(len(shards), 3, generator=torch.Generator().manual_seed(2))
    weight = weight / weight.sum(1, keepdim=True)
    got = engine.answer(replace(single, weight=weight)).loss_sum
    each = made("loop", name).answer(LossCall(single.models, shards, per_example=True))
    inside = torch.arange(shards.index.shape[1]) < shards.count.unsqueeze(1)
    mixed = -((-each.double()).exp() * weight.unsqueeze(1)).sum(2).log()
    torch.testing.assert_close(got, mixed.masked_fill(~inside, 0).sum(1), rtol=1e-4, atol=1e-4)
    assert torch.equal(assert_certain(engine, single), engine.answer(single).sums)


def assert_certain(engine: Engine, single: TestCall) -> Tensor:
    """A mixture of one model alone has its losses; the sums that it counts."""
    weight = F.one_hot(single.label, 3).float()
    found = engine.answer(replace(single, weight=weight))
    torch.testing.assert_close(found.loss_sum, engine.answer(single).loss_sum, rtol=1e-4, atol=1e-4)
    return found.sums


@pytest.mark.parametrize("kind", ENGINES)
def test_a_mixture_of_one_model_has_its_loss_however_large(kind: str) -> None:
    """A class of probability exp(-150) is 0 in float32; its loss is 150 nats all the same."""
    engine, shards = made(kind, "linear"), ragged_shards()
    single = TestCall(300 * starts(engine), labels(len(shards)), shards)
    assert (engine.answer(single).loss_sum / shards.count.clamp(min=1)).max() > 150
    assert_certain(engine, single)


@pytest.mark.thinned
@pytest.mark.parametrize("solver", ["sgd", "full_batch", "everything"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ENGINES)
def test_losses_of_steps(kind: str, name: str, solver: str) -> None:
    """Their mean is the loss, the first full one is that of the start, and nothing else changes."""
    engine, loop = made(kind, name), made("loop", name)
    plain = call(loop, "linear", solver)
    asked = replace(plain, each_step=True)
    got, want, without = engine.answer(asked), loop.answer(asked), engine.answer(plain)
    assert without.step_loss is None
    assert got.step_loss is not None
    steps = int(plain.solver.all_steps(torch.tensor(plain.shards.index.shape[1])))
    assert got.step_loss.shape == (len(plain.shards), steps)
    taken = torch.arange(steps) < got.steps.unsqueeze(1)
    assert torch.equal(got.step_loss.isfinite(), taken)
    torch.testing.assert_close(got.step_loss, want.step_loss, rtol=1e-4, atol=1e-4, equal_nan=True)
    trained = got.steps > 0
    torch.testing.assert_close(got.step_loss.nanmean(1)[trained], got.loss[trained])
    torch.testing.assert_close(got.params, without.params, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(got.loss, without.loss, rtol=1e-4, atol=1e-5)
    if solver == "full_batch" and name != "flex_mnist_cnn":  # which drops units in training
        start = engine.answer(LossCall(asked.models, asked.shards)).gather(
            1, asked.label.view(-1, 1)
        )
        first = got.step_loss[:, :1]
        torch.testing.assert_close(first[trained], start[trained], rtol=1e-4, atol=1e-5)


def test_losses_of_steps_in_company_and_alone() -> None:
    """Merged with rows of more steps they are as wide as those; a row alone has the same."""
    engine = made("fused", "mlp128")
    asked = replace(call(engine, "linear", "sgd"), each_step=True)
    short = asked.take(torch.tensor([0, 1]))
    short = replace(short, shards=short.shards.take(torch.tensor([0, 1]), 7))
    alone, both = engine.answer(short), engine.answer(TrainCall.merge([asked, short]))
    assert alone.step_loss is not None
    assert both.step_loss is not None
    assert (alone.step_loss.shape[1], both.step_loss.shape[1]) == (4, 6)
    torch.testing.assert_close(both.step_loss[5:, :4], alone.step_loss, equal_nan=True)
    assert both.step_loss[5:, 4:].isnan().all()
    assert TrainCall.merge([asked, short]).kind != replace(asked, each_step=False).kind


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


@pytest.mark.thinned
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

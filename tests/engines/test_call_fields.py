"""What a call may give besides: the same in every engine, row by row, and by definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, shape_of, shipped, starts, toy_pool
from torch import Tensor
from torch.nn import functional as F

from fedclust.core.calls import LossCall, TestCall, TrainCall
from fedclust.core.types import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.models.sequence import Model

FAST: dict[str, Callable[[Model, Pool], Engine]] = {"vmap": VmapEngine, "fused": FusedEngine}
MODELS = ["linear", "mlp128", "cnn_femnist_tiny", "flex_mnist_cnn"]
FIELDS = ["linear", "example_weight", "frozen", "all"]


def made(kind: str, name: str) -> Engine:
    model, pool = shipped(name), toy_pool(shape_of(name))
    return LoopEngine(model, pool) if kind == "loop" else FAST[kind](model, pool)


def given(engine: Engine, field: str, rows: int, width: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(4)
    num_params = engine.layout.num_params
    values = {
        "linear": 0.1 * torch.randn(rows, num_params, generator=draw),
        "example_weight": 2 * torch.rand(rows, width, generator=draw),
        "frozen": engine.layout.mask(engine.layout.last_layers()),
    }
    return values if field == "all" else {field: values[field]}


def call(engine: Engine, field: str, solver: str) -> TrainCall:
    shards, how = ragged_shards(), SOLVERS[solver]
    rows, width = shards.index.shape
    slots = 0.01 * starts(engine, 3).flip(0) if how.momentum else None
    more = given(engine, field, rows, width)
    return TrainCall(starts(engine), labels(rows), shards, how, how.lr, slots=slots, **more)


@pytest.mark.thinned
@pytest.mark.parametrize("solver", ["sgd", "full_batch", "everything"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", FAST)
def test_training_equals_the_loop(kind: str, name: str, field: str, solver: str) -> None:
    loop, fast = made("loop", name), made(kind, name)
    want, got = (engine.answer(call(loop, field, solver)) for engine in (loop, fast))
    plain = loop.answer(call(loop, field, solver).__class__(**_without(call(loop, field, solver))))
    assert (want.params - plain.params).abs().max() > 1e-3  # it makes a difference
    torch.testing.assert_close(got.params, want.params, rtol=1e-4, atol=1e-3)
    assert float((got.params - want.params).abs().double().mean()) < 1e-6
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.first_loss, want.first_loss, rtol=1e-4, atol=1e-5)
    if want.slots is not None:
        assert got.slots is not None
        torch.testing.assert_close(got.slots, want.slots, rtol=1e-4, atol=2e-3)


def _without(given: TrainCall) -> dict[str, object]:
    names = ("models", "label", "shards", "solver", "lr", "slots")
    return {name: getattr(given, name) for name in names}


@pytest.mark.thinned
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", ["loop", *FAST])
def test_a_row_alone_equals_the_row_in_company(kind: str, field: str) -> None:
    engine = made(kind, "mlp128")
    asked = call(engine, field, "everything")
    together = engine.answer(asked)
    for row in range(len(asked.shards)):
        alone = engine.answer(asked.take(torch.tensor([row])))
        torch.testing.assert_close(alone.params[0], together.params[row], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(alone.loss[0], together.loss[row], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["loop", *FAST])
def test_weights_of_one_and_a_term_of_zero_change_nothing(kind: str) -> None:
    engine = made(kind, "mlp128")
    asked = call(engine, "all", "everything")
    plain = engine.answer(TrainCall(**_without(asked)))  # type: ignore[arg-type]
    assert asked.linear is not None
    assert asked.example_weight is not None
    same = TrainCall(
        **_without(asked),  # type: ignore[arg-type]
        linear=torch.zeros_like(asked.linear),
        example_weight=torch.ones_like(asked.example_weight),
        frozen=torch.zeros_like(asked.frozen, dtype=torch.bool),
    )
    torch.testing.assert_close(engine.answer(same).params, plain.params, rtol=1e-6, atol=1e-6)


@pytest.mark.thinned
@pytest.mark.parametrize("part", ["body", "head"])
@pytest.mark.parametrize("name", ["mlp128", "flex_mnist_cnn"])
@pytest.mark.parametrize("kind", ["loop", *FAST])
def test_what_is_frozen_stays_to_the_bit(kind: str, name: str, part: str) -> None:
    """Value and momentum; what is not moves as in the reference, which freezes number by number."""
    engine, loop = made(kind, name), made("loop", name)
    head = engine.layout.mask(engine.layout.last_layers())
    frozen = head if part == "head" else ~head
    asked = replace(call(engine, "linear", "everything"), frozen=frozen)
    assert asked.slots is not None
    got, want = engine.answer(asked), loop.answer(asked)
    assert got.slots is not None
    assert want.slots is not None
    assert torch.equal(got.params[:, frozen], asked.models[asked.label][:, frozen])
    assert torch.equal(got.slots[:, frozen], asked.slots[asked.label][:, frozen])
    moved = (got.params - asked.models[asked.label])[:, ~frozen]
    assert (moved[asked.shards.count > 0].abs().amax(1) > 1e-3).all()
    torch.testing.assert_close(got.params, want.params, rtol=1e-4, atol=1e-3)
    assert float((got.params - want.params).abs().double().mean()) < 1e-6
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["loop", *FAST])
def test_one_full_batch_step_by_hand(kind: str) -> None:
    """w - lr * (mean of weight * gradient + linear), and what is frozen stays to the bit."""
    engine = made(kind, "linear")
    asked = call(engine, "all", "full_batch")
    one = TrainCall(**{**asked.__dict__, "solver": SOLVERS["full_batch"].__class__(
        lr=0.05, batch_size=None, epochs=1)})  # fmt: skip
    got = engine.answer(one)
    pool, row = toy_pool((1, 8, 8)), 1
    count = int(one.shards.count[row])
    x, y = (
        pool.inputs(one.shards.index[row, :count]).flatten(1),
        pool.y[one.shards.index[row, :count]],
    )
    start = one.models[one.label[row]]
    w = start[engine.layout["1.weight"]].view(10, 64).clone().requires_grad_()
    b = start[engine.layout["1.bias"]].clone().requires_grad_()
    assert one.example_weight is not None
    assert one.linear is not None
    losses = one.example_weight[row, :count] * F.cross_entropy(x @ w.T + b, y, reduction="none")
    losses.mean().backward()
    free = TrainCall(**{**one.__dict__, "frozen": None})
    step = 0.05 * (torch.cat([w.grad.flatten(), b.grad]) + one.linear[row])  # type: ignore[union-attr]
    torch.testing.assert_close(engine.answer(free).params[row], start - step, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.first_loss[row], losses.mean().detach(), rtol=1e-5, atol=1e-5)
    assert torch.equal(got.params[row], start)  # softmax regression is all head


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["loop", *FAST])
def test_losses_of_examples_have_the_losses_of_rows_as_their_mean(kind: str, name: str) -> None:
    engine, shards = made(kind, name), ragged_shards()
    models = starts(engine)
    each = engine.answer(LossCall(models, shards, per_example=True))
    assert each.shape == (*shards.index.shape, 3)
    past = torch.arange(shards.index.shape[1]) >= shards.count.unsqueeze(1)
    assert not each[past].any()
    means = each.sum(1) / shards.count.clamp(min=1).unsqueeze(1)
    torch.testing.assert_close(means, engine.answer(LossCall(models, shards)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        each,
        made("loop", name).answer(LossCall(models, shards, per_example=True)),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["loop", *FAST])
def test_mixtures_average_probabilities(kind: str, name: str) -> None:
    engine, shards = made(kind, name), ragged_shards()
    models, rows = starts(engine), len(shards)
    weight = torch.rand(rows, 3, generator=torch.Generator().manual_seed(2))
    weight = weight / weight.sum(1, keepdim=True)
    got = engine.answer(TestCall(models, labels(rows), shards, weight))
    each = made("loop", name).answer(LossCall(models, shards, per_example=True))
    inside = torch.arange(shards.index.shape[1]) < shards.count.unsqueeze(1)
    mixed = -((-each.double()).exp() * weight.unsqueeze(1)).sum(2).log()
    want = mixed.masked_fill(~inside, 0).sum(1)
    torch.testing.assert_close(got.loss_sum, want, rtol=1e-4, atol=1e-4)
    single = engine.answer(TestCall(models, labels(rows), shards))
    certain = F.one_hot(labels(rows), 3).float()
    same = engine.answer(TestCall(models, labels(rows), shards, certain))
    torch.testing.assert_close(same.loss_sum, single.loss_sum, rtol=1e-4, atol=1e-4)
    assert torch.equal(same.sums, single.sums)


@pytest.mark.parametrize("kind", ["loop", *FAST])
def test_a_mixture_of_one_model_has_its_loss_however_large(kind: str) -> None:
    """A class of probability exp(-150) is 0 in float32; its loss is 150 nats all the same."""
    engine, shards = made(kind, "linear"), ragged_shards()
    models, rows = 300 * starts(engine), len(shards)
    single = engine.answer(TestCall(models, labels(rows), shards))
    assert (single.loss_sum / shards.count.clamp(min=1)).max() > 150
    certain = F.one_hot(labels(rows), 3).float()
    same = engine.answer(TestCall(models, labels(rows), shards, certain))
    torch.testing.assert_close(same.loss_sum, single.loss_sum, rtol=1e-4, atol=1e-4)


@pytest.mark.thinned
@pytest.mark.parametrize("solver", ["sgd", "full_batch", "everything"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["loop", *FAST])
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

"""Batch normalisation in the fused engine: what the loop computes, by each row's own examples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, reading, starts, toy_pool, training
from pasted import ResNet, group_norm
from torch import nn

from fedclust.core.calls import AlignCall, SumCall
from fedclust.engines.fused import FusedEngine, layers
from fedclust.engines.fused.dense import Clock
from fedclust.engines.fused.native import norming
from fedclust.engines.fused.normal import STATISTICS
from fedclust.engines.fused.weights import Weight
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError

SHAPE, COUNTS = (3, 6, 6), (3, 7, 0, 12)
CLOSE = {"rtol": 1e-3, "atol": 5e-4}  # the deviation of two examples can be small


def images(**options: object) -> nn.Module:
    """Behind a convolution, with a ReLU and a maximum, and behind a dense layer."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4, **options),  # type: ignore[arg-type]
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 2, bias=False),
        nn.BatchNorm2d(5, **options),  # type: ignore[arg-type]
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20, 8),
        nn.BatchNorm1d(8, **options),  # type: ignore[arg-type]
        nn.ReLU(),
        nn.Linear(8, 10),
    )


NETWORKS = {
    "plain": images(),
    "cumulative": images(momentum=None),
    "no_affine": images(affine=False, eps=1e-2),
    "residual": ResNet([1, 1], [2, 4]),
    "residual_groups": ResNet([2, 1], [2, 4], group_norm),
    "averages": nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.GroupNorm(2, 4, affine=False),
        nn.AvgPool2d(3, 2, 1),
        nn.Flatten(),
        nn.Linear(16, 10),
    ),
    "groups": nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False),
        nn.GroupNorm(3, 6, eps=1e-3),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3),
        nn.GroupNorm(1, 4),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.Linear(8, 10),
    ),
    "first": nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 3), nn.Flatten(), nn.Linear(48, 10)),
}


@pytest.fixture(params=["compiled", pytest.param("row by row", id="alone")])
def _images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    name = getattr(request.node, "callspec").params.get("name", "")  # noqa: B009
    # convolutions of single pixels with a stride need compiled code
    if request.param != "compiled" and not name.startswith("residual"):
        monkeypatch.setattr(layers, "convolving", lambda *_: request.param)


def both(name: str) -> tuple[LoopEngine, FusedEngine]:
    pool = toy_pool(SHAPE)
    return LoopEngine(NETWORKS[name], pool), FusedEngine(NETWORKS[name], pool)


@pytest.mark.thinned
@pytest.mark.usefixtures("_images")
@pytest.mark.parametrize("solver", ["sgd", "everything"])
@pytest.mark.parametrize("name", NETWORKS)
def test_training_equals_the_loop(name: str, solver: str) -> None:
    loop, fused = both(name)
    models = starts(loop)
    for buffer in loop.layout.buffers[:1]:
        models[:, loop.layout[buffer]] = 0.1
    slots = 0.01 * torch.ones_like(models) if SOLVERS[solver].momentum else None
    call = training(loop, ragged_shards(COUNTS), SOLVERS[solver], models=models, slots=slots)
    want, got = loop.answer(call), fused.answer(call)
    if (inside := loop.layout.trained) is not None:
        moved = (want.params != models[call.label])[[0, 1, 3]]
        assert bool(moved[:, ~inside].any(1).all())
    torch.testing.assert_close(got.params, want.params, **CLOSE)
    torch.testing.assert_close(got.loss, want.loss, **CLOSE)
    assert (got.slots is None) == (want.slots is None)
    if want.slots is not None:
        torch.testing.assert_close(got.slots, want.slots, **CLOSE)
    sums, expected = (engine.answer(SumCall(call, None)) for engine in (fused, loop))
    torch.testing.assert_close(sums.params.float(), expected.params, rtol=1e-3, atol=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("name", NETWORKS)
def test_reading_is_by_the_running_statistics(name: str) -> None:
    loop, fused = both(name)
    shards, models = ragged_shards(COUNTS), starts(loop)
    for buffer in loop.layout.buffers:
        models[:, loop.layout[buffer]] += torch.rand(models[:, loop.layout[buffer]].shape)
    losses, gradients, test = reading(models, labels(len(shards)), shards)
    for call in (losses, gradients):
        torch.testing.assert_close(fused.answer(call), loop.answer(call), **CLOSE)
    directions = torch.randn_like(models)
    directions[:, loop.layout.num_trained :] = 0
    aligned = [engine.answer(AlignCall(models, directions, shards)) for engine in (fused, loop)]
    torch.testing.assert_close(aligned[0].inner, aligned[1].inner, rtol=1e-3, atol=1e-4)
    one, other = (engine.answer(test) for engine in (fused, loop))
    torch.testing.assert_close(one.loss_sum, other.loss_sum, **CLOSE)


def test_what_is_frozen_stays() -> None:
    loop, fused = both("plain")
    statistics = ("module.1.running_var", "module.5.running_mean", "module.5.num_batches_tracked")
    names = (*statistics, "module.9.weight")
    mask = loop.layout.mask(names)
    call = training(loop, ragged_shards(COUNTS), SOLVERS["momentum"], frozen=mask)
    want, got = loop.answer(call), fused.answer(call)
    assert torch.equal(got.params[:, mask], call.models[call.label][:, mask])
    torch.testing.assert_close(got.params, want.params, **CLOSE)


@pytest.mark.full
@pytest.mark.parametrize("name", ["plain", "cumulative", "no_affine", "residual", "groups"])
def test_without_compiled_code_it_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = training(both(name)[0], ragged_shards(COUNTS), SOLVERS["sgd"])
    native = both(name)[1].answer(call)
    monkeypatch.setattr(norming, "compiled", lambda: None)
    torch.testing.assert_close(both(name)[1].answer(call).params, native.params, **CLOSE)


def test_variances_of_large_means_are_exact() -> None:
    """Means a thousand deviations from 0, of more examples than their first."""
    x = torch.randn(1, 7, 3, 5, 4, generator=torch.Generator().manual_seed(1)) + 1000
    x[:, 1:] += 3
    last = x.movedim(2, -1).contiguous().movedim(-1, 2)
    out, back = torch.empty_like(last), torch.empty_like(last)
    mean, variance, batches = torch.zeros(1, 1, 3), torch.ones(1, 1, 3), torch.zeros(1)
    layer = nn.BatchNorm2d(3, eps=0.0, momentum=0.25, affine=False)
    values = zip(STATISTICS, (mean, variance, batches), strict=True)
    weights, clock = {name: Weight(value=value) for name, value in values}, Clock(sizes=[6])
    nothing = frozenset[str]()
    step = norming.CompiledNormStep(layer, weights, nothing, None, clock, 0, out, back, relu=False)
    step.forward(x)
    real = x[0, :6].double().movedim(1, -1).flatten(0, 2)
    want = (real - real.mean(0)) / real.std(0, correction=0)
    got = out[0, :6].double().movedim(1, -1).flatten(0, 2)
    assert (got - want).abs().max() < 5e-4  # of float32 numbers near 1000
    assert not out[0, 6].any()
    torch.testing.assert_close(mean[0, 0].double(), 0.25 * real.mean(0), rtol=1e-6, atol=0)
    renewed = 0.75 + 0.25 * real.var(0)
    torch.testing.assert_close(variance[0, 0].double(), renewed, rtol=1e-5, atol=0)


def test_groups_of_large_means_are_exact() -> None:
    """Every group of an example has its own mean, a thousand deviations from 0; dx as autograd's in
    float64.
    """
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(1, 3, 4, 5, 4, generator=draw)
    x += 1000 * torch.arange(1, 3).repeat_interleave(2).view(1, 1, 4, 1, 1)
    last = x.movedim(2, -1).contiguous().movedim(-1, 2)
    out, back = torch.empty_like(last), torch.empty_like(last)
    layer = nn.GroupNorm(2, 4, eps=0.0)
    scale, shift = torch.rand(2, 1, 1, 4, generator=draw) + 0.5
    weights = {"weight": Weight(value=scale), "bias": Weight(value=shift)}
    clock, nothing = Clock(sizes=[2]), frozenset[str]()
    step = norming.CompiledNormStep(layer, weights, nothing, None, clock, 0, out, back, relu=False)
    step.forward(x)
    real = x[0, :2].double().requires_grad_()
    want = nn.functional.group_norm(real, 2, scale[0, 0].double(), shift[0, 0].double(), 0.0)
    assert (out[0, :2].double() - want).abs().max() < 5e-4  # of float32 numbers near 2000
    assert not out[0, 2].any()
    delta = torch.randn(last.shape, generator=draw)
    step.carry(delta)
    (gradient,) = torch.autograd.grad((want * delta[0, :2].double()).sum(), real)
    assert (back[0, :2].double() - gradient).abs().max() < 5e-4
    assert not back[0, 2].any()
    turned = (delta[0, :2].double() * (want - shift.view(1, 4, 1, 1)) / scale.view(1, 4, 1, 1)).sum(
        (0, 2, 3)
    )
    torch.testing.assert_close(step.change[0, 0, 0].double(), turned, rtol=1e-3, atol=5e-3)
    sums = delta[0, :2].sum((0, 2, 3))
    torch.testing.assert_close(step.change[1, 0, 0], sums, rtol=1e-5, atol=1e-5)


def test_a_row_that_diverges_is_alone() -> None:
    _, fused = both("plain")
    shards = ragged_shards(COUNTS).take(torch.tensor([3, 1]))
    call = training(fused, shards, SOLVERS["sgd"], label=torch.tensor([1, 0]))
    alone = fused.answer(call.take(torch.tensor([1])))
    call.models[1] = torch.nan
    got = fused.answer(call)
    torch.testing.assert_close(got.params[1], alone.params[0], **CLOSE)
    assert bool(got.params[0].isnan().any())


def test_a_batch_of_one_example_is_refused() -> None:
    _, fused = both("plain")
    shards = ragged_shards((6,))  # of which a batch of five leaves one
    call = training(fused, shards, SOLVERS["sgd"])
    with pytest.raises(ConfigError, match=r"^solver\.batch_size=5 is not allowed"):
        fused.answer(call)
    fused.answer(replace(call, solver=replace(SOLVERS["sgd"], batch_size=3)))
    assert not FusedEngine.obstacle(fused.model)

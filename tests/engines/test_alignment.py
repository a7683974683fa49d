"""How gradients lie to directions: the same in every engine, and by definition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import labels, ragged_shards, shape_of, shipped, starts, toy_pool
from torch import Tensor

from fedclust.core.calls import AlignCall, GradCall, LossCall
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine, aligning
from fedclust.engines.fused.layers import StackedModels
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine

ENGINES = {"loop": LoopEngine, "vmap": VmapEngine, "fused": FusedEngine}
MODELS = ["linear", "mlp128", "mlp200", "cnn_femnist_tiny"]


def made(kind: str, name: str) -> Engine:
    engine: Engine = ENGINES[kind](shipped(name), toy_pool(shape_of(name)))
    return engine


def directions(models: Tensor) -> Tensor:
    return torch.randn(models.shape, generator=torch.Generator().manual_seed(5))


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ENGINES)
def test_products_and_norms_are_those_of_the_gradients(kind: str, name: str) -> None:
    engine, shards = made(kind, name), ragged_shards()
    models = starts(engine)
    along = directions(models)
    found = engine.answer(AlignCall(models, along, shards))
    assert found.inner.shape == found.square.shape == (len(shards), len(models))
    for k in range(len(models)):
        label = torch.full_like(labels(len(shards)), k)
        gradient = made("loop", name).answer(GradCall(models, label, shards)).double()
        inner, square = gradient @ along[k].double(), gradient.square().sum(1)
        size = square.sqrt() * along[k].double().norm()
        assert float(((found.inner[:, k] - inner).abs() / size.clamp(min=1e-9)).max()) < 1e-5
        torch.testing.assert_close(found.square[:, k], square, rtol=2e-5, atol=1e-12)
    loss = made("loop", name).answer(LossCall(models, shards))
    torch.testing.assert_close(found.loss, loss, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ENGINES)
def test_a_row_does_not_depend_on_its_company(kind: str) -> None:
    engine, shards = made(kind, "mlp128"), ragged_shards()
    models = starts(engine)
    asked = AlignCall(models, directions(models), shards)
    together = engine.answer(asked)
    for row in range(len(shards)):
        alone = engine.answer(asked.take(torch.tensor([row])))
        torch.testing.assert_close(alone.inner[0], together.inner[row], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(alone.square[0], together.square[row], rtol=1e-5, atol=1e-9)


def apart(loss: Tensor, decided: Tensor) -> Tensor:
    """[C] margins by which the losses [C, K] of the rows `decided` [C] bool decide."""
    least, second = loss.topk(2, largest=False).values.unbind(1)
    return (second - least) * torch.where(decided, 0.5, 2.0)


# of rows; the fused engine leaves a block's undecided rows for later where they are few
PATTERNS = {
    "none": lambda row: row < 0,
    "one": lambda row: row == 2,
    "every third": lambda row: row % 3 == 0,
    "all but one": lambda row: row != 1,
    "all": lambda row: row >= 0,
}


@pytest.mark.thinned
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", ["mlp128", "cnn_femnist_tiny"])
@pytest.mark.parametrize("kind", ENGINES)
def test_losses_that_decide_spare_the_gradients(kind: str, name: str, pattern: str) -> None:
    engine, shards = made(kind, name), ragged_shards()
    models = starts(engine)
    asked = AlignCall(models, directions(models), shards)
    whole = engine.answer(asked)
    decided = PATTERNS[pattern](torch.arange(len(shards)))
    found = engine.answer(replace(asked, margin=apart(whole.loss, decided)))
    assert (found.inner[decided] == 0).all()
    assert (found.square[decided] == 0).all()
    real = shards.count > 0
    assert (found.square[~decided & real] > 0).all()
    torch.testing.assert_close(found.inner[~decided], whole.inner[~decided], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.square[~decided], whole.square[~decided], rtol=1e-5, atol=0)
    torch.testing.assert_close(found.loss, whole.loss, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_blocks_of_clients_do_not_change_what_is_spared(pattern: str) -> None:
    engine, shards = FusedEngine(shipped("mlp128"), toy_pool(shape_of("mlp128"))), ragged_shards()
    models = starts(engine)
    asked = AlignCall(models, directions(models), shards)
    whole = engine.answer(asked)
    decided = PATTERNS[pattern](torch.arange(len(shards)))
    asked = replace(asked, margin=apart(whole.loss, decided))
    rule = aligning.AlignRule()
    stacked = StackedModels(engine.network, len(models), models.device, engine.products, rule)
    stacked.parameters.load(models, torch.arange(len(models)), anchor=asked.directions)
    longest = shards.index.shape[1]
    for together in (1, 2, 3, len(shards)):
        found = aligning.align(stacked, rule, engine.pool, asked, together * longest)
        torch.testing.assert_close(found.loss, whole.loss, rtol=1e-6, atol=1e-7)
        open_ = ~decided
        torch.testing.assert_close(found.inner[open_], whole.inner[open_], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.square[open_], whole.square[open_], rtol=1e-5, atol=0)


def test_losses_of_some_models_decide_nothing() -> None:
    """Models in chunks of one: a chunk does not know the other models' losses."""
    shards, pool = ragged_shards(), toy_pool(shape_of("mlp128"))
    whole, chunked = (FusedEngine(shipped("mlp128"), pool, max_rows=most) for most in (None, 1))
    models = starts(whole)
    asked = AlignCall(models, directions(models), shards)
    decided = torch.arange(len(shards)) % 2 == 0
    asked = replace(asked, margin=apart(whole.answer(asked).loss, decided))
    one, many = whole.answer(asked), chunked.answer(asked)
    assert (many.inner[decided] == 0).all()
    assert (many.square[~decided & (shards.count > 0)] > 0).all()
    torch.testing.assert_close(many.inner, one.inner, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(many.square, one.square, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_losses_that_are_not_finite_decide_nothing(bad: float) -> None:
    shards = ragged_shards((2, 2))
    zeros = torch.zeros(2, 3)
    asked = AlignCall(zeros, zeros, shards, margin=torch.full((2,), 0.5))
    loss = torch.tensor([[bad, bad, bad], [1.0, 3.0, bad]])
    assert asked.undecided(loss).tolist() == [True, False]
    assert asked.undecided(loss[:, :1]).tolist() == [False, False]  # nothing to choose
    assert replace(asked, margin=None).undecided(loss).all()


def test_large_clients_and_images_take_the_gradients_themselves() -> None:
    dense, images = (FusedEngine(shipped(n), toy_pool(shape_of(n))) for n in ("mlp128", MODELS[3]))
    assert aligning.pays(dense.network, 64)
    assert not aligning.pays(dense.network, 1000)
    assert not aligning.pays(images.network, 64)

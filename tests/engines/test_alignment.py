"""How gradients lie to directions: the same in every engine, and by definition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import ENGINES, labels, made, ragged_shards, starts
from torch import Tensor

from fedclust.core.calls import AlignCall, Alignment, GradCall, LossCall, Shards
from fedclust.core.verbs import Engine
from fedclust.engines.fused import aligning
from fedclust.engines.fused.layers import StackedModels

MODELS = ["linear", "mlp128", "mlp200", "cnn_femnist_tiny"]


def asking(engine: Engine, shards: Shards | None = None) -> AlignCall:
    """How the gradients of three models lie to random directions."""
    models = starts(engine)
    along = torch.randn(models.shape, generator=torch.Generator().manual_seed(5))
    return AlignCall(models, along, ragged_shards() if shards is None else shards)


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ENGINES)
def test_products_and_norms_are_those_of_the_gradients(kind: str, name: str) -> None:
    engine, loop = made(kind, name), made("loop", name)
    asked = asking(engine)
    models, shards, found = asked.models, asked.shards, engine.answer(asked)
    assert found.inner.shape == found.square.shape == (len(shards), len(models))
    for k, along in enumerate(asked.directions.double()):
        label = torch.full_like(labels(len(shards)), k)
        gradient = loop.answer(GradCall(models, label, shards)).double()
        inner, square = gradient @ along, gradient.square().sum(1)
        size = square.sqrt() * along.norm()
        assert float(((found.inner[:, k] - inner).abs() / size.clamp(min=1e-9)).max()) < 1e-5
        torch.testing.assert_close(found.square[:, k], square, rtol=2e-5, atol=1e-12)
    torch.testing.assert_close(
        found.loss, loop.answer(LossCall(models, shards)), rtol=1e-5, atol=1e-6
    )


def decided_by(loss: Tensor, decided: Tensor) -> Tensor:
    """[C] margins by which the losses [C, K] of the rows `decided` [C] bool decide."""
    least, second = loss.topk(2, largest=False).values.unbind(1)
    return (second - least) * torch.where(decided, 0.5, 2.0)


def assert_same(found: Alignment, whole: Alignment, rows: Tensor) -> None:
    """Equal to rounding in these rows, and in all losses."""
    torch.testing.assert_close(found.inner[rows], whole.inner[rows], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.square[rows], whole.square[rows], rtol=1e-5, atol=0)
    torch.testing.assert_close(found.loss, whole.loss, rtol=1e-6, atol=1e-7)


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
    engine = made(kind, name)
    asked = asking(engine)
    whole, decided = engine.answer(asked), PATTERNS[pattern](torch.arange(len(asked.shards)))
    found = engine.answer(replace(asked, margin=decided_by(whole.loss, decided)))
    assert (found.inner[decided] == 0).all()
    assert (found.square[decided] == 0).all()
    assert (found.square[~decided & (asked.shards.count > 0)] > 0).all()
    assert_same(found, whole, ~decided)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_blocks_of_clients_do_not_change_what_is_spared(pattern: str) -> None:
    engine = made("fused", "mlp128")
    asked, rule = asking(engine), aligning.AlignRule()
    models, count = asked.models, len(asked.shards)
    whole, decided = engine.answer(asked), PATTERNS[pattern](torch.arange(count))
    asked = replace(asked, margin=decided_by(whole.loss, decided))
    stacked = StackedModels(engine.network, len(models), models.device, engine.products, rule)
    stacked.parameters.load(models, torch.arange(len(models)), anchor=asked.directions)
    longest = asked.shards.index.shape[1]
    for together in (1, 2, 3, count):
        found = aligning.align(stacked, rule, engine.pool, asked, together * longest)
        assert_same(found, whole, ~decided)


def test_losses_of_some_models_decide_nothing() -> None:
    """Models in chunks of one: a chunk does not know the other models' losses."""
    whole, chunked = (made("fused", "mlp128", max_rows=most) for most in (None, 1))
    asked = asking(whole)
    decided = torch.arange(len(asked.shards)) % 2 == 0
    asked = replace(asked, margin=decided_by(whole.answer(asked).loss, decided))
    one, many = whole.answer(asked), chunked.answer(asked)
    assert (many.inner[decided] == 0).all()
    assert (many.square[~decided & (asked.shards.count > 0)] > 0).all()
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
    dense, images = made("fused", "mlp128"), made("fused", MODELS[3])
    assert aligning.pays(dense.network, 64)
    assert not aligning.pays(dense.network, 1000)
    assert not aligning.pays(images.network, 64)

"""What is particular to the vmap engine: chunks, blocks and where rows stop."""

from __future__ import annotations

import logging

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, shape_of, shipped, starts, toy_pool
from torch import Tensor

from fedclust.core.calls import GradCall, LossCall, TestCall, TrainCall
from fedclust.engines import vmap
from fedclust.engines.vmap import VmapEngine


def made(name: str, max_rows: int | None = None) -> VmapEngine:
    return VmapEngine(shipped(name), toy_pool(shape_of(name)), max_rows=max_rows)


def everything(engine: VmapEngine) -> list[Tensor]:
    """All that the verbs return on the ragged rows."""
    shards, how = ragged_shards(), SOLVERS["everything"]
    models, label = starts(engine), labels(len(shards))
    result = engine.answer(TrainCall(models, label, shards, how, how.lr))
    assert result.slots is not None
    read = engine.answer(LossCall(models, shards)), engine.answer(GradCall(models, label, shards))
    return [
        result.params,
        result.slots,
        result.loss,
        *read,
        *engine.answer(TestCall(models, label, shards)),
    ]


@pytest.mark.parametrize("name", ["mlp128", "flex_mnist_cnn"])
@pytest.mark.parametrize("max_rows", [1, 2, 3, 100])
def test_chunk_size_is_irrelevant(name: str, max_rows: int) -> None:
    for got, want in zip(everything(made(name, max_rows)), everything(made(name)), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_long_shards_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = everything(made("mlp128"))
    monkeypatch.setattr(vmap, "_WIDTH", 5)
    monkeypatch.setattr(vmap, "_EXAMPLES", 5)
    widest = 0
    losses = VmapEngine._losses

    def watched(
        self: VmapEngine, params: dict[str, Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor]:
        nonlocal widest
        widest = max(widest, len(x))
        return losses(self, params, x, y)

    engine = made("mlp128")
    shards, models, label = ragged_shards(), starts(engine), labels(len(ragged_shards()))
    monkeypatch.setattr(VmapEngine, "_losses", watched)
    read = [engine.answer(LossCall(models, shards)), engine.answer(GradCall(models, label, shards))]
    read += engine.answer(TestCall(models, label, shards))
    assert widest == 5
    for got, want in zip(read, whole[3:], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_out_of_memory_gives_the_same_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A device with room for two rows: the chunk is halved after it had begun, and done again."""
    expected, engine = everything(made("mlp128")), made("mlp128", max_rows=4)
    train = VmapEngine._train_rows

    def crowded(self: VmapEngine, flat: Tensor, *rest: object) -> Tensor:
        if len(flat) > 2:
            flat.fill_(float("nan"))
            raise torch.OutOfMemoryError
        return train(self, flat, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(VmapEngine, "_train_rows", crowded)
    with caplog.at_level(logging.WARNING):
        got = everything(engine)
    assert "going on with 2" in caplog.text
    for value, want in zip(got, expected, strict=True):
        torch.testing.assert_close(value, want, rtol=1e-6, atol=1e-6)


def test_the_loss_table_makes_one_pass_for_many_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 models, 16 at a time, meet all rows together: three forward passes."""
    engine, shards = made("linear", max_rows=16), ragged_shards()
    passes = 0
    forward = type(engine.model).forward

    def counted(self: torch.nn.Module, *args: object) -> Tensor:
        nonlocal passes
        passes += 1
        return forward(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(engine.model), "forward", counted)
    engine.answer(LossCall(starts(engine, 40), shards))
    assert passes == 3

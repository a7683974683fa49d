"""What is particular to the vmap engine: chunks, blocks and where rows stop."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from engine_toys import SOLVERS, labels, made, ragged_shards, reading, starts, training
from torch import Tensor

from fedclust.core.calls import LossCall, Shards
from fedclust.engines import vmap
from fedclust.engines.vmap import VmapEngine


def test_long_shards_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, shards = made("vmap", "mlp128"), ragged_shards()
    calls = reading(starts(engine), labels(len(shards)), shards)
    whole = [engine.answer(call) for call in calls]
    monkeypatch.setattr(vmap, "_WIDTH", 5)
    monkeypatch.setattr(vmap, "_EXAMPLES", 5)
    widest, losses = list[int](), VmapEngine._losses

    def watched(self: VmapEngine, params: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        widest.append(len(x))
        return losses(self, params, x, y)

    engine = made("vmap", "mlp128")
    monkeypatch.setattr(VmapEngine, "_losses", watched)
    read = [engine.answer(call) for call in calls]
    assert max(widest) == 5
    torch.testing.assert_close(read, whole, rtol=1e-6, atol=1e-6)


def test_out_of_memory_gives_the_same_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A device with room for two rows: the chunk is halved after it had begun, and done again."""
    engine = made("vmap", "mlp128", max_rows=4)
    call = training(engine, ragged_shards(), SOLVERS["everything"])
    expected, train = made("vmap", "mlp128").answer(call), VmapEngine._train_rows

    def crowded(self: VmapEngine, flat: Tensor, *rest: object) -> Tensor:
        if len(flat) > 2:
            flat.fill_(float("nan"))
            raise torch.OutOfMemoryError
        return train(self, flat, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(VmapEngine, "_train_rows", crowded)
    with caplog.at_level(logging.WARNING):
        got = engine.answer(call)
    assert "going on with 2" in caplog.text
    for name in ("params", "slots", "loss"):
        torch.testing.assert_close(
            getattr(got, name), getattr(expected, name), rtol=1e-6, atol=1e-6
        )


def test_what_was_read_before_memory_ran_out_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made("vmap", "mlp128")
    calls = reading(starts(engine), labels(len(ragged_shards())), ragged_shards())
    expected, blocks = [engine.answer(call) for call in calls], VmapEngine._blocks

    def crowded(self: VmapEngine, shards: Shards, rows: Tensor, width: int) -> Iterator[object]:
        yield from blocks(self, shards, rows, width)
        if len(rows) > 2:
            raise torch.OutOfMemoryError

    monkeypatch.setattr(VmapEngine, "_blocks", crowded)
    read = [made("vmap", "mlp128").answer(call) for call in calls]
    torch.testing.assert_close(read, expected, rtol=1e-6, atol=1e-6)


def test_the_loss_table_makes_one_pass_for_many_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 models, 16 at a time, meet all rows together: three forward passes."""
    engine, shards = made("vmap", "linear", max_rows=16), ragged_shards()
    passes = 0
    forward = type(engine.model).forward

    def counted(self: torch.nn.Module, *args: object) -> Tensor:
        nonlocal passes
        passes += 1
        return forward(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(engine.model), "forward", counted)
    engine.answer(LossCall(starts(engine, 40), shards))
    assert passes == 3

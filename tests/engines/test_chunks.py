"""Chunks: every row once, sorted, halved when the device is full."""

from __future__ import annotations

import logging

import pytest
import torch
from engine_toys import toy_pool
from torch import Tensor

from fedclust.engines.chunks import auto_rows, cpu_cache, each_chunk
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.row_plan import RowPlan
from fedclust.models.mlp import mlp


def test_every_row_comes_once_sorted_by_size() -> None:
    size, seen = torch.tensor([3, 9, 9, 1, 5]), []
    each_chunk(size, 2, lambda rows: seen.append(rows.tolist()))
    assert seen == [[1, 2], [4, 0], [3]]


def test_no_rows_no_call() -> None:
    seen: list[Tensor] = []
    each_chunk(torch.empty(0), 4, seen.append)
    assert seen == []


def test_out_of_memory_halves_the_chunk_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    tried: list[int] = []

    def work(rows: Tensor) -> None:
        tried.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError
        done.extend(rows.tolist())

    with caplog.at_level(logging.WARNING):
        each_chunk(torch.arange(10), 8, work)
    assert done == list(range(9, -1, -1))
    assert tried == [8, 4, 2, 2, 2, 2, 2]
    assert len(caplog.records) == 2


def test_one_row_that_does_not_fit_is_an_error() -> None:
    def work(rows: Tensor) -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        each_chunk(torch.arange(4), 4, work)


def test_rows_on_a_cpu_fit_its_cache() -> None:
    cpu = torch.device("cpu")
    assert auto_rows(1, cpu) == 64
    assert auto_rows(1 << 50, cpu) == 1
    assert auto_rows(cpu_cache() // 8, cpu) == 8


def test_blocks_of_examples_suit_the_products_of_a_processor() -> None:
    """48 models of 784 features: 64 MiB hold 445.8 examples of each."""
    pool = toy_pool((1, 28, 28))
    plan = RowPlan(Network.of(mlp((1, 28, 28), 10, hidden=[200])), pool, None)
    assert [plan.block(models) for models in (1, 48, 100, 9999)] == [1024, 448, 256, 128]

"""Examples gathered by compiled code have the bits of PyTorch's operations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedclust.core.pool import Pool
from fedclust.engines.fused.native import gather
from fedclust.engines.fused.native.compiled import library


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(
    ("shape", "numbers"),
    [((60,), ()), ((1,), (1,)), ((3, 32, 32), (3, 1, 1)), ((2, 5, 7), (5, 1)), ((5000,), (5000,))],
)
def test_the_same_bits(
    shape: tuple[int, ...], numbers: tuple[int, ...], dtype: torch.dtype, threads: int
) -> None:
    if gather.compiled() is None:  # then PyTorch's operations are what runs
        assert library("softmax") is None
        return
    torch.manual_seed(0)
    x = torch.randint(0, 256, (9, *shape), dtype=torch.uint8)
    x = x if dtype == torch.uint8 else torch.randn(9, *shape)
    slow = Pool(
        x=x,
        y=torch.zeros(12, dtype=torch.int64),
        scale=torch.randn(numbers),
        shift=torch.randn(numbers),
        num_classes=2,
        image=torch.randint(0, 9, (12,)),
    )
    fast, before = replace(slow, gather=gather.rows_into), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for index in (torch.randint(0, 12, (4, 5)), torch.arange(12).flip(0)[::2], torch.empty(0)):
            index = index.long()
            assert torch.equal(fast.inputs(index), slow.inputs(index))
    finally:
        torch.set_num_threads(before)

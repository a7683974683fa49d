"""Examples gathered by compiled code, and images cut once: the bits of PyTorch's operations."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedclust.core.pool import Pool
from fedclust.datasets.view import ImageToInput
from fedclust.engines import make_engine
from fedclust.engines.fused.native import gather
from fedclust.engines.fused.native.compiled import library
from fedclust.models.cnn import cnn


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


@pytest.mark.parametrize("name", ["fused", "vmap", "loop"])
def test_images_of_which_all_see_the_same_part_are_cut_once(name: str) -> None:
    view = ImageToInput(crop=12, standardise=False, augment="none")
    torch.manual_seed(0)
    whole = Pool(
        x=torch.randint(0, 256, (9, 3, 17, 15), dtype=torch.uint8),
        y=torch.arange(9) % 2,
        scale=torch.randn(3, 1, 1),
        shift=torch.randn(3, 1, 1),
        num_classes=2,
        view=view,
    )
    model = cnn(whole.shape, 2, channels=[2], kernel=3, padding=0, hidden=[4])
    cut = make_engine(name, model, whole, None).pool  # type: ignore[attr-defined]
    index = torch.tensor([[8, 0, 3], [1, 1, 2]])
    assert (cut.x.shape, cut.view) == ((9, 3, 12, 12), None)
    assert torch.equal(cut.inputs(index), whole.inputs(index))
    for other in (replace(view, standardise=True), replace(view, augment="crop_flip")):
        kept = make_engine(name, model, replace(whole, view=other), None).pool  # type: ignore[attr-defined]
        assert (kept.x.shape, kept.view) == (whole.x.shape, other)

"""Compiled code that gathers examples, draws masks and lays out batches, against definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from engine_toys import toy_pool
from torch import Tensor

from fedclust.core.calls import Shards
from fedclust.core.pool import Pool
from fedclust.datasets.view import ImageToInput
from fedclust.engines import make_engine
from fedclust.engines.fused.native import batches, gather, masks
from fedclust.engines.fused.native.compiled import library
from fedclust.engines.schedule import Schedule, in_host_memory, schedule
from fedclust.helpers.rng import Stream
from fedclust.models import dropout
from fedclust.models.cnn import cnn
from fedclust.solver import Solver


@pytest.mark.thinned
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


KEYS = Stream.of(3, "train", 7).keys(torch.arange(5))


@pytest.mark.thinned
@pytest.mark.parametrize("p", [0.0, 0.1, 0.25, 0.3, 0.5, 1 / 3, 0.999])
@pytest.mark.parametrize("features", [(), (1,), (17,), (3, 5, 7), (4096,)])
def test_bits(features: tuple[int, ...], p: float) -> None:
    for step, layer, batch in ((0, 2, 10), (5, 4, 1)):
        drawn = masks.keep(KEYS, step, layer, batch, features, p)
        assert torch.equal(drawn, dropout.keep(KEYS, step, layer, batch, features, p))


def test_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other row, which do not lie beside each other; and without a compiler."""
    want = dropout.keep(KEYS[::2], 1, 1, 3, (9,), 0.4)
    assert torch.equal(masks.keep(KEYS[::2], 1, 1, 3, (9,), 0.4), want)
    monkeypatch.setattr(masks, "compiled", lambda: None)
    assert torch.equal(masks.keep(KEYS[::2], 1, 1, 3, (9,), 0.4), want)


POOL = toy_pool((3,), num_examples=5000)
SOLVERS = {
    "epochs": Solver(lr=0.1, batch_size=10, epochs=3),
    "one by one": Solver(lr=0.1, batch_size=1, epochs=2),
    "larger than a client": Solver(lr=0.1, batch_size=64, epochs=2),
    "larger than all": Solver(lr=0.1, batch_size=10**6, epochs=2),
    "steps": Solver(lr=0.1, batch_size=7, epochs=None, steps=23),
    "one step": Solver(lr=0.1, batch_size=7, epochs=None, steps=1),
    "all of it, many times": Solver(lr=0.1, batch_size=64, epochs=None, steps=9),
}
COUNTS = {
    "ragged": [40, 0, 7, 1, 3, 2, 10, 64, 63, 65, 8],
    "one large": [3000, 12, 30],
    "alone": [17],
    "a single example": [1],
    "without data": [0, 0],
}


def rows_of(counts: list[int]) -> Shards:
    """Rows with `counts` random examples of the pool each."""
    torch.manual_seed(0)
    index = torch.randint(len(POOL.y), (len(counts), max(counts)))
    count = torch.tensor(counts)
    inside = torch.arange(max(counts)) < count.unsqueeze(1)
    key = torch.randint(-(2**62), 2**62, (len(counts),))
    return Shards(index=index * inside, count=count, key=key)


def defined(plan: Schedule, shards: Shards) -> tuple[Tensor, Tensor, Tensor]:
    """Examples, classes and shares by the definition, [S, R, B]."""
    position, size = plan.position.transpose(0, 1), plan.size.T.unsqueeze(2)
    label = POOL.y[shards.index.gather(1, plan.position.flatten(1))].view_as(plan.position)
    inside = torch.arange(position.shape[2]) < size
    first = torch.arange(len(shards)).unsqueeze(1) * shards.index.shape[1]
    return position + first, label.transpose(0, 1), inside / size.clamp(min=1)


@pytest.mark.thinned
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("work", [None, 0.3])
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("name", SOLVERS)
def test_as_the_schedule_defines(name: str, counts: str, work: float | None, threads: int) -> None:
    if batches.compiled() is None:  # then the definition is what runs
        assert library("softmax") is None
        return
    shards = rows_of(COUNTS[counts])
    if work is not None:
        shards = replace(shards, work=torch.full((len(shards),), work))
    plan, before = schedule(shards, SOLVERS[name], in_host_memory(shards)), torch.get_num_threads()
    assert batches.lays_out(plan)
    torch.set_num_threads(threads)
    try:
        found = batches.lay_out(plan, POOL.y)
    finally:
        torch.set_num_threads(before)
    for own, right in zip(found, defined(plan, shards), strict=True):
        assert own.dtype == right.dtype
        assert torch.equal(own, right)


def test_whole_clients_in_file_order_have_nothing_to_lay_out() -> None:
    assert not batches.lays_out(schedule(rows_of([3, 5]), Solver(lr=0.1, batch_size=None)))

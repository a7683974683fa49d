"""Blocks of convolutions in compiled code: gradients by definition, threads, narrower vectors."""

from __future__ import annotations

import ctypes
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toys import (
    SOLVERS,
    labels,
    ragged_shards,
    shape_of,
    shipped,
    starts,
    toy_pool,
    training,
)
from torch import Tensor, nn
from torch.nn import Conv2d, MaxPool2d, ReLU, ZeroPad2d, functional

from fedclust.core.calls import GradCall, Shards
from fedclust.core.types import Pool
from fedclust.engines.fused import FusedEngine, layers
from fedclust.engines.fused.native import compiled, convolution
from fedclust.engines.fused.native.geometry import Block
from fedclust.engines.fused.network import Network
from fedclust.models.sequence import Model

# more channels than vectors hold, fewer, and neither; windows that overlap, leave pixels over or
# reach out
NETWORKS: dict[str, tuple[Any, ...]] = {
    "many channels": ((3, 9, 9), Conv2d(3, 70, 3), ReLU(), MaxPool2d(2), Conv2d(70, 33, 2)),
    "half full tiles": (
        *((20, 9, 8), Conv2d(20, 17, 3, padding=1), ReLU(), MaxPool2d(2)),
        Conv2d(17, 40, 2),
    ),
    # by squares, of four and of two; some reach past the edges, more than are worked on at once
    "squares": (
        *((1, 23, 10), Conv2d(1, 17, 1), Conv2d(17, 21, 3, padding=1), ReLU()),
        Conv2d(21, 16, 5),
    ),
    "squares between zeros": (
        *((16, 9, 34), ZeroPad2d((2, 1, 0, 4)), Conv2d(16, 18, 5, padding=(2, 1), bias=False)),
        *(MaxPool2d(3, 2), Conv2d(18, 33, 3, padding=2), ReLU()),
    ),
    # so many that few pieces of a batch have gradients of their own, all of whose images go at once
    "squares of all images": (
        *((1, 5, 6), Conv2d(1, 88, 1), Conv2d(88, 89, 3, padding=1), ReLU(), MaxPool2d(2)),
    ),
    # by squares whose kernels' values are made anew, and by PyTorch's own convolutions, row by row
    "large kernels": (
        *((1, 5, 6), Conv2d(1, 170, 1), ZeroPad2d((1, 0, 0, 2))),
        *(Conv2d(170, 180, 3, padding=1, bias=False), ReLU(), MaxPool2d(2)),
        Conv2d(180, 176, 3, stride=2, padding=1),
    ),
    "few channels": ((1, 7, 12), Conv2d(1, 2, (2, 5), padding=(1, 0)), ReLU(), Conv2d(2, 1, 3)),
    "rest of windows": ((2, 11, 8), Conv2d(2, 17, 2), MaxPool2d((3, 2)), ReLU()),
    "overlapping windows": (
        *((2, 12, 12), Conv2d(2, 16, 3, padding=1), ReLU(), MaxPool2d(3, 2, ceil_mode=True)),
        Conv2d(16, 5, 3),
    ),
    "strides": (
        *((2, 13, 12), Conv2d(2, 6, 3), ReLU(), Conv2d(6, 20, 5, stride=(2, 3), padding=2)),
        ReLU(),
    ),
    "stride beyond the kernel": (
        *((1, 10, 10), Conv2d(1, 4, 1), Conv2d(4, 3, 2, stride=3), ReLU(), Conv2d(3, 2, 1)),
    ),
    "dilation": (
        *((2, 12, 11), Conv2d(2, 4, 1), Conv2d(4, 8, 3, stride=2, padding=3, dilation=(2, 3))),
        ReLU(),
    ),
    "zeros beyond the kernel": (*((1, 4, 4), Conv2d(1, 3, 1), Conv2d(3, 5, 2, padding=3), ReLU()),),
    "zeros on one side": (
        *((2, 8, 8), Conv2d(2, 4, 3), ReLU(), ZeroPad2d((1, 2, 0, 1)), Conv2d(4, 9, 3, stride=2)),
    ),
}


def network_of(name: str) -> Model:
    """A network of `NETWORKS` with five classes."""
    shape, *layers = NETWORKS[name]
    return with_classes(shape, *layers)


def with_classes(shape: tuple[int, ...], *layers: nn.Module) -> Model:
    """These layers and a dense one of five classes."""
    x, shapes = torch.zeros(1, *shape), [shape]
    for layer in (*layers, nn.Flatten()):
        x = layer(x)
        shapes.append(tuple(x.shape[1:]))
    return Model([*layers, nn.Flatten(), nn.Linear(x.shape[1], 5)], [*shapes, (5,)], [], {})


def engine_of(name: str, precision: str = "highest") -> tuple[FusedEngine, Tensor]:
    """The fused engine of a network, and three models."""
    model = network_of(name)
    pool = toy_pool(model.shapes[0])
    pool.y.remainder_(5)
    engine = FusedEngine(model, pool, precision=precision)
    return engine, torch.stack([drawn(model, seed) for seed in range(3)])


def drawn(model: Model, seed: int) -> Tensor:
    """Parameters, flat, by which outputs are about as large as inputs."""
    generator = torch.Generator().manual_seed(seed)
    some = []
    for _, value in model.named_parameters():
        scale = (2 / value[0].numel()) ** 0.5 if value.ndim > 1 else 0.2
        some.append(scale * torch.randn(value.numel(), generator=generator))
    return torch.cat(some)


def exact_gradient(model: Model, flat: Tensor, pool: Pool, rows: Tensor) -> Tensor:
    """The gradient of the mean loss on some examples, float64."""
    own = {}
    offset = 0
    for name, value in model.named_parameters():
        part = flat[offset : offset + value.numel()]
        own[name], offset = part.double().view(value.shape).requires_grad_(), offset + value.numel()
    logits = torch.func.functional_call(model, own, pool.inputs(rows).double())
    loss = functional.cross_entropy(logits, pool.y[rows])
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(own.values()))])


@pytest.mark.thinned
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_the_definition(name: str) -> None:
    (engine, models), shards = engine_of(name), ragged_shards()
    got = engine.answer(GradCall(models, labels(len(shards)), shards))
    for row, (which, count) in enumerate(
        zip(labels(len(shards)).tolist(), shards.count.tolist(), strict=True)
    ):
        if count == 0:
            assert not got[row].any()
            continue
        want = exact_gradient(
            network_of(name), models[which], engine.pool, shards.index[row, :count]
        )
        assert (got[row] - want).norm() < 2e-5 * want.norm()


@pytest.mark.parametrize("name", ["squares", "squares between zeros"])
def test_values_of_kernels_made_anew_give_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """For every lot of squares, of which there are several, as of large kernels."""
    (engine, models), shards = engine_of(name), ragged_shards((20, 7))
    monkeypatch.setattr(convolution, "_LARGE", 1)
    got = engine.answer(GradCall(models, torch.tensor([2, 0]), shards))
    for row, which in enumerate((2, 0)):
        seen = shards.index[row, : shards.count[row]]
        want = exact_gradient(engine.model, models[which], engine.pool, seen)
        assert (got[row] - want).norm() < 2e-5 * want.norm()


def test_rooms_are_those_of_the_whole_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums with a bias and nothing behind it need room that those without do not: one step was
    given less, and wrote beyond it.
    """
    shape, biased = (16, 8, 8), Conv2d(16, 16, 3, padding=1)
    model = with_classes(shape, biased, Conv2d(16, 16, 3, padding=1, bias=False))
    pool, made, begin = toy_pool(shape), [], convolution.BlockStep.__init__
    pool.y.remainder_(5)

    def kept(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(convolution.BlockStep, "__init__", kept)
    shards = ragged_shards((5,))
    FusedEngine(model, pool).answer(GradCall(drawn(model, 0)[None], torch.tensor([0]), shards))
    assert len(made) >= 2
    for step in made:
        size = convolution._Rooms()
        step.code.rooms(ctypes.byref(step.job), ctypes.byref(size))
        for name in ("scratch", "turned", "partial"):
            assert step.tensors[name].shape[-1] == getattr(size, name), name


def test_large_kernels_of_several_rows_are_those_of_each() -> None:
    (engine, models), shards = engine_of("large kernels"), ragged_shards((5, 3, 4))
    call = GradCall(models, torch.tensor([2, 0, 1]), shards)
    together, alone = (
        FusedEngine(engine.model, engine.pool, max_rows=rows).answer(call) for rows in (3, 1)
    )
    assert together.any()
    assert (together - alone).norm() < 1e-6 * alone.norm()
    want = exact_gradient(engine.model, models[2], engine.pool, shards.index[0, :5])
    assert (together[0] - want).norm() < 2e-5 * want.norm()


@pytest.mark.thinned
@pytest.mark.parametrize("name", NETWORKS)
def test_rounded_factors_give_what_pytorch_makes_of_them(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (engine, models), shards = engine_of(name, "bf16"), ragged_shards()
    got = engine.answer(GradCall(models, labels(len(shards)), shards))
    exact = engine_of(name)[0].grad(GradCall(models, labels(len(shards)), shards))
    monkeypatch.setattr(layers, "convolving", lambda *_: "row by row")
    want = engine.answer(GradCall(models, labels(len(shards)), shards))
    # sums in another order round some of the next block's factors the other way
    assert (got - want).norm() < min(1e-3 * want.norm(), 0.1 * (exact - want).norm())


@pytest.mark.parametrize("kernel", [3, 5])
def test_squares_cost_little_accuracy(monkeypatch: pytest.MonkeyPatch, kernel: int) -> None:
    """The root mean square error is at most five times that of PyTorch's convolutions."""
    first, second = nn.Conv2d(16, 32, 1), nn.Conv2d(32, 64, kernel, padding=kernel // 2)
    model = with_classes((16, 14, 14), first, nn.ReLU(), second)
    pool, shards = toy_pool((16, 14, 14)), ragged_shards((20,))
    pool.y.remainder_(5)
    engine, own = FusedEngine(model, pool), drawn(model, 5)
    exact = exact_gradient(model, own, pool, shards.index[0])

    def error() -> float:
        got = engine.answer(GradCall(own.unsqueeze(0), torch.zeros(1, dtype=torch.int64), shards))
        return float((got[0] - exact).norm() / exact.norm())

    by_squares = error()
    monkeypatch.setattr(layers, "convolving", lambda *_: "row by row")
    assert by_squares < 5 * error() < 1e-5


@pytest.mark.parametrize("kernel", [3, 5])
def test_a_black_rim_without_biases_passes_no_gradient(kernel: int) -> None:
    """Sums over nothing but zeros are 0, not noise, or ReLUs would let half of it pass."""
    convs = [nn.Conv2d(1, 16, kernel, padding=1), nn.Conv2d(16, 17, kernel, padding=kernel // 2)]
    layers = [layer for conv in convs for layer in (conv, nn.ReLU(), nn.MaxPool2d(2))]
    model = with_classes((1, 28, 28), *layers)
    rim = torch.zeros(60, 1, 28, 28, dtype=torch.uint8)
    rim[..., 9:20, 8:19] = toy_pool((1, 11, 11)).x
    pool = replace(toy_pool((1, 11, 11)), x=rim, shift=torch.tensor(0.0))
    pool.y.remainder_(5)
    own, offset = drawn(model, 3), 0
    spans = {}
    for name, value in model.named_parameters():
        spans[name] = slice(offset, offset + value.numel())
        offset += value.numel()
        if name.endswith("bias"):
            own[spans[name]] = 0
    shards = ragged_shards((20,))
    exact = exact_gradient(model, own, pool, shards.index[0])
    call = GradCall(own.unsqueeze(0), torch.zeros(1, dtype=torch.int64), shards)
    got = FusedEngine(model, pool).answer(call)[0]
    for part in spans.values():
        assert (got[part] - exact[part]).norm() < 1e-5 * exact[part].norm()


def test_blocks_take_what_belongs_together() -> None:
    def blocks(layers: list[nn.Module]) -> list[tuple[int, int, int, bool, bool]]:
        found, place = [], 0
        while place < len(layers):
            block = Block.at(layers, place)
            if block is not None:
                found.append((place, block.layer, block.end, block.relu, block.pool is not None))
            place = place + 1 if block is None else block.end
        return found

    conv, relu, pool, pad = (
        nn.Conv2d(1, 1, 1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ZeroPad2d((1, 0, 2, 0)),
    )
    norm, flat = nn.LocalResponseNorm(3), nn.Flatten()
    assert blocks([conv, relu, pool, flat]) == [(0, 0, 3, True, True)]
    assert blocks([pad, conv, pool, relu]) == [(0, 1, 3, False, True)]
    assert blocks([conv, conv, norm, relu, pool]) == [
        (0, 0, 1, False, False),
        (1, 1, 2, False, False),
    ]
    assert blocks([pool, pad, relu, flat]) == []
    assert blocks([conv, relu, nn.MaxPool2d(3, padding=1), pad]) == [(0, 0, 2, True, False)]
    assert blocks([conv, nn.MaxPool2d(2, dilation=2), pad]) == [(0, 0, 1, False, False)]
    assert blocks([conv, nn.MaxPool2d(16)]) == [(0, 0, 1, False, False)]
    assert blocks([nn.ZeroPad2d(-1), conv]) == [(1, 1, 2, False, False)]


def test_the_compiled_way_is_taken_on_a_cpu() -> None:
    images, mlp = (Network.of(shipped(name)).layers for name in ("jgl_cnn", "mlp"))
    assert convolution.computes(images, torch.device("cpu")) == (convolution.compiled() is not None)
    assert not convolution.computes(images, torch.device("cuda"))
    assert not convolution.computes(mlp, torch.device("cpu"))


def test_what_is_not_a_number_stays_so() -> None:
    """A maximum or a ReLU must not hide it: training that diverges has to be seen."""
    model, pool = shipped("jgl_cnn"), toy_pool(shape_of("jgl_cnn"))
    engine = FusedEngine(model, pool)
    models = starts(engine)
    models[1, 7] = float("nan")
    result = engine.answer(training(engine, ragged_shards(), SOLVERS["sgd"], models=models))
    for row, which in enumerate(labels(5).tolist()):
        spoiled = which == 1 and ragged_shards().count[row] > 0
        assert result.loss[row].isnan() == spoiled


@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_sums_do_not_depend_on_threads(rows: int) -> None:
    model, pool = shipped("jgl_cnn"), toy_pool(shape_of("jgl_cnn"))
    shards = ragged_shards((6,) * rows)

    def gradient(threads: int) -> Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            engine = FusedEngine(model, pool, max_rows=rows)
            found = engine.answer(GradCall(starts(engine), labels(rows), shards))
        finally:
            torch.set_num_threads(before)
        convolutions = sum(layer.weight.numel() for layer in model if isinstance(layer, nn.Conv2d))
        return found[:, :convolutions]

    if convolution.compiled() is None:  # PyTorch's convolutions do not promise it
        torch.testing.assert_close(gradient(1), gradient(3))
    else:
        assert torch.equal(gradient(1), gradient(3))


@pytest.mark.full
@pytest.mark.parametrize("option", ["-mno-avx512f", "-mno-avx"])
def test_narrower_vectors(fresh: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """What processors without the widest registers compute; without a compiler the same as ever."""
    compiler = compiled._compiler()
    monkeypatch.setenv("CC", shlex.join([*(compiler or [os.devnull]), option]))
    assert not fresh.exists()
    for name in ("many channels", "squares"):  # compiled once, which takes most of the time
        (engine, models), shards = engine_of(name), ragged_shards()
        narrow = engine.answer(GradCall(models, labels(len(shards)), shards))
        found = convolution.compiled()
        assert found is None or found.lanes() < 16
        with monkeypatch.context() as patch:
            patch.setattr(layers, "convolving", lambda *_: "row by row")
            want = engine.answer(GradCall(models, labels(len(shards)), shards))
        assert (narrow - want).norm() < 1e-5 * want.norm()


def test_a_part_of_a_chunk_and_smaller_batches_share_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that end earlier and smaller last batches use the same memory as the others."""
    model, pool = shipped("flex_fmnist_cnn", (1, 12, 12)), toy_pool((1, 12, 12))
    shards: Shards = ragged_shards((17, 3, 11, 1))
    engine = FusedEngine(model, pool, max_rows=4)
    call = training(engine, shards, SOLVERS["everything"])
    got = engine.answer(call)
    monkeypatch.setattr(layers, "convolving", lambda *_: "row by row")
    torch.testing.assert_close(got.params, engine.answer(call).params, rtol=1e-5, atol=1e-6)

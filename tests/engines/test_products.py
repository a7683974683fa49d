"""Products of either library are the same, and the permission to round ends with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, shape_of, shipped, starts, toy_pool
from torch import Tensor

from fedclust.core.calls import TrainCall
from fedclust.engines.fused import FusedEngine, layers, products
from fedclust.engines.fused.products import Products, onednn_pays

SHAPES = [(1, 2, 3, 4), (5, 10, 60, 10), (4, 20, 200, 200), (2, 64, 784, 50), (3, 1, 40_000, 2)]


@pytest.fixture(params=[False, True], ids=["as it is", "with oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both ways, on whatever processor; but oneDNN never where it rounds."""
    if request.param and products._exact():
        monkeypatch.setattr(products, "onednn_pays", lambda: True)
    yield
    onednn_pays.cache_clear()


def stacks(rows: int, m: int, k: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random a, b and c in float64; b as a transposed view, as weights are."""
    generator = torch.Generator().manual_seed(m)
    a = torch.randn(rows, m, k, generator=generator, dtype=torch.float64)
    b = torch.randn(rows, n, k, generator=generator, dtype=torch.float64).mT
    return a, b, torch.randn(rows, m, n, generator=generator, dtype=torch.float64)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_float32(shape: tuple[int, int, int, int]) -> None:
    a, b, c = stacks(*shape)
    size = torch.bmm(a.abs(), b.abs())  # what rounding is relative to
    found = Products().bmm(a.float(), b.float(), torch.empty(c.shape))
    assert ((found - a @ b).abs() <= 1e-6 * size).all()
    out = c.float()
    same = Products().baddbmm(out, a.float(), b.float(), out, beta=0.5, alpha=-0.3)
    assert same.data_ptr() == out.data_ptr()
    assert ((out - (0.5 * c - 0.3 * a @ b)).abs() <= 1e-6 * (size + c.abs())).all()


@pytest.mark.usefixtures("library")
def test_the_permission_ends_with_the_product() -> None:
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = setting.fp32_precision
    Products().bmm(torch.ones(2, 64, 64), torch.ones(2, 64, 64), torch.empty(2, 64, 64))
    assert setting.fp32_precision == before
    with pytest.raises(RuntimeError):
        Products().bmm(torch.ones(2, 64, 64), torch.ones(3, 64, 64), torch.empty(2, 64, 64))
    assert setting.fp32_precision == before


@pytest.mark.parametrize(
    ("processor", "exact", "pays"),
    [
        ("vendor_id : AuthenticAMD\nflags : avx2 avx512f", True, True),
        ("vendor_id : AuthenticAMD\nflags : avx2 avx512f", False, False),
        ("vendor_id : AuthenticAMD\nflags : avx2", True, False),
        ("vendor_id : GenuineIntel\nflags : avx2 avx512f", True, False),
        (None, True, False),
    ],
)
def test_onednn_is_taken_where_it_is_faster_and_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processor: str | None, exact: bool, pays: bool
) -> None:
    file = tmp_path / "cpuinfo"
    if processor is not None:
        file.write_text(processor)
    monkeypatch.setattr(products, "_CPU", file)
    monkeypatch.setattr(products, "_exact", lambda: exact)
    onednn_pays.cache_clear()
    assert onednn_pays() is (pays and torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    onednn_pays.cache_clear()


ROUNDED = Products("bf16")


def nearest(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).to(torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_factors_are_rounded_and_sums_are_not(shape: tuple[int, int, int, int]) -> None:
    a, b, c = stacks(*shape)
    exact, size = nearest(a) @ nearest(b), torch.bmm(a.abs(), b.abs())
    found = ROUNDED.bmm(a.float(), b.float(), torch.empty(c.shape))
    assert ((found.double() - exact).abs() <= 1e-6 * size).all()
    if shape[2] > 10:
        assert ((found.double() - a @ b).abs() > 1e-5 * size).any()
    held = c.float()
    ROUNDED.baddbmm(held, a.float(), b.float(), held, beta=0.5, alpha=-2.0)
    assert ((held.double() - (0.5 * c - 2 * exact)).abs() <= 2e-6 * (size + c.abs())).all()


def laid_out(x: Tensor, order: str) -> Tensor:
    """x [R, m, n], elsewhere in memory."""
    if order == "turned":
        return x.mT.clone(memory_format=torch.contiguous_format).mT
    rows, m, n = x.shape
    if order == "part":
        return torch.full((rows, m + 3, n + 5), torch.nan)[:, 1 : m + 1, 2 : n + 2].copy_(x)
    if order == "strided":
        return torch.full((rows, 2 * m, 3 * n), torch.nan)[:, ::2, ::3].copy_(x)
    return x.clone()


@pytest.mark.parametrize("order", ["whole", "turned", "part", "strided"])
@pytest.mark.parametrize("shape", [(3, 1, 1, 1), (2, 33, 70, 17), (5, 16, 32, 50), (1, 40, 0, 40)])
def test_rounded_factors_lie_anywhere_in_memory(
    shape: tuple[int, int, int, int], order: str
) -> None:
    a, b, c = (x.float() for x in stacks(*shape))
    expected = nearest(a) @ nearest(b)
    for left, right in ((order, "whole"), ("whole", order), (order, order)):
        found = ROUNDED.bmm(laid_out(a, left), laid_out(b, right), laid_out(c, order))
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    for bias in (c[:, :1], c[:, :, :1], c[:1]):
        held = laid_out(c, order)
        ROUNDED.baddbmm(bias, laid_out(a, order), b, held, beta=2.0)
        torch.testing.assert_close(held.double(), 2 * bias + expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["highest", "bf16"])
def test_one_factor_for_several_others(precision: str) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(3, 1, 4, 5, generator=generator),
        torch.randn(3, 7, 5, 6, generator=generator),
    )
    some = Products(precision)
    found = some.matmul(a, b), some.matmul(b.mT, a.mT)
    expected = some.rounded(a).double() @ some.rounded(b).double()
    torch.testing.assert_close(found[0].double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1].double(), expected.mT, rtol=1e-5, atol=1e-5)


def test_other_devices_multiply_bfloat16_and_give_float32() -> None:
    """Shapes and types alone, by a device that computes nothing."""
    a, b = torch.empty(3, 4, 5, device="meta"), torch.empty(3, 5, 6, device="meta")
    found = ROUNDED.bmm(a, b, torch.empty(3, 4, 6, device="meta"))
    added = ROUNDED.baddbmm(torch.empty(3, 1, 6, device="meta"), a, b, found)
    several = ROUNDED.matmul(a.unsqueeze(1), b.unsqueeze(1).expand(-1, 2, -1, -1))
    assert (found.shape, found.dtype) == ((3, 4, 6), torch.float32)
    assert (added.shape, added.dtype) == ((3, 4, 6), torch.float32)
    assert (several.shape, several.dtype) == ((3, 2, 4, 6), torch.float32)


@pytest.mark.full
@pytest.mark.parametrize("name", ["linear", "mlp", "cnn_femnist_tiny", "jgl_cnn"])
def test_bfloat16_changes_training_a_little_on_every_path(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Row by row as on a CPU and stacked as on a GPU: near float32, and not it."""

    def train(precision: str, convolving: str) -> Tensor:
        monkeypatch.setattr(layers, "convolving", lambda *_: convolving)
        engine = FusedEngine(shipped(name), toy_pool(shape_of(name)), precision=precision)
        models = starts(engine)
        moved = engine.answer(
            TrainCall(models, labels(5), ragged_shards(), SOLVERS["sgd"], 0.05)
        ).params
        return moved - models[labels(5)]

    exact, rows, stacked = (
        train("highest", "row by row"),
        train("bf16", "row by row"),
        train("bf16", "stacked"),
    )
    size = exact.norm()
    assert 1e-5 * size < (rows - exact).norm() < 0.1 * size
    assert (rows - stacked).norm() < 0.1 * size

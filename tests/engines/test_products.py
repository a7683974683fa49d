"""Products by either library are the same products, and the permission to round does not outlive them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedclust.engines.fused import products
from fedclust.engines.fused.products import baddbmm, bmm, onednn_pays

SHAPES = [(1, 2, 3, 4), (5, 10, 60, 10), (4, 20, 200, 200), (2, 64, 784, 50), (3, 1, 40_000, 2)]


@pytest.fixture(params=[False, True], ids=["as it is", "with oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both ways, on whatever processor; where oneDNN rounds it is never taken, so not here either."""
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
    found = bmm(a.float(), b.float(), torch.empty(c.shape))
    assert ((found - a @ b).abs() <= 1e-6 * size).all()
    out = c.float()
    same = baddbmm(out, a.float(), b.float(), out, beta=0.5, alpha=-0.3)
    assert same.data_ptr() == out.data_ptr()
    assert ((out - (0.5 * c - 0.3 * a @ b)).abs() <= 1e-6 * (size + c.abs())).all()


@pytest.mark.usefixtures("library")
def test_the_permission_ends_with_the_product() -> None:
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = setting.fp32_precision
    bmm(torch.ones(2, 64, 64), torch.ones(2, 64, 64), torch.empty(2, 64, 64))
    assert setting.fp32_precision == before
    with pytest.raises(RuntimeError):
        bmm(torch.ones(2, 64, 64), torch.ones(3, 64, 64), torch.empty(2, 64, 64))
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

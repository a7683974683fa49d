"""Products of stacked matrices, computed by the faster of PyTorch's two libraries.

For float32 PyTorch calls MKL, which on AMD's processors leaves AVX-512 unused. oneDNN uses it, but PyTorch
calls oneDNN only while products may be rounded to bfloat16. It rounds on processors with instructions for
that (AMX); on others the same float32 kernels run with the permission and without it. So the permission is
given for the time of a product, on processors of AMD with AVX-512 where a product that rounding would
change comes out exact.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_LARGE = 30_000  # multiplications of one matrix below which oneDNN's 20 microseconds a call are too many
_CPU = Path("/proc/cpuinfo")


class _Permission:
    """The time in which products may be rounded, as a context."""

    def __enter__(self) -> None:
        self._before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        torch.backends.mkldnn.matmul.fp32_precision = self._before  # type: ignore[attr-defined]


_PERMISSION = _Permission()


def bmm(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a @ b, written to `out`.

    Args:
        a, b: float32 [R, m, k] and [R, k, n].
        out: [R, m, n].
    """
    if _by_onednn(a, b):
        with _PERMISSION:
            return torch.bmm(a, b, out=out)
    return torch.bmm(a, b, out=out)


def baddbmm(c: Tensor, a: Tensor, b: Tensor, out: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * c + alpha * a @ b, written to `out`, which may be c itself.

    Args:
        c: float32 [R, m, n], or a shape that expands to it.
        a, b: float32 [R, m, k] and [R, k, n].
        out: [R, m, n].
        beta, alpha: factors.
    """
    if _by_onednn(a, b):
        with _PERMISSION:
            return torch.baddbmm(c, a, b, beta=beta, alpha=alpha, out=out)
    return torch.baddbmm(c, a, b, beta=beta, alpha=alpha, out=out)


def _by_onednn(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN is the one to take."""
    return a.shape[1] * a.shape[2] * b.shape[2] >= _LARGE and onednn_pays()


@cache
def onednn_pays() -> bool:
    """Whether on this processor oneDNN computes the same as MKL, and faster; the same in every process."""
    there = torch.backends.mkldnn.is_available() and hasattr(torch.backends.mkldnn, "matmul")  # type: ignore[no-untyped-call]
    text = _CPU.read_text() if there and _CPU.is_file() else ""
    return "AuthenticAMD" in text and " avx512f" in text and _exact()


def _exact() -> bool:
    """Whether products are those of float32 in spite of the permission."""
    a, b = torch.full((2, 64, 512), 1 + 2.0**-12), torch.ones(2, 512, 64)
    with _PERMISSION:
        return bool((torch.bmm(a, b) == 512 + 2.0**-3).all())

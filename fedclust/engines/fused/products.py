"""Products of stacked matrices: by the faster of PyTorch's two libraries, or rounded (`precision`).

For float32 PyTorch calls MKL, which leaves AMD's AVX-512 unused, and oneDNN, which uses it, only
while products may be rounded to bfloat16. Without AMX it does not round then. So the permission is
given for a product, on AMD's AVX-512 processors where products come out exact.

With `precision=bf16` the factors are rounded to bfloat16, as a GPU's fastest units want them, and
added up in float32. A CPU simulates that, no faster, so the effect can be studied anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

# multiplications of one matrix below which oneDNN's 20 microseconds a call are too many
_LARGE = 30_000
_CPU = Path("/proc/cpuinfo")


class _Permission:
    """The time in which products may be rounded, as a context."""

    def __enter__(self) -> None:
        self._before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        torch.backends.mkldnn.matmul.fp32_precision = self._before  # type: ignore[attr-defined]


_PERMISSION = _Permission()


@dataclass(frozen=True)
class Products:
    """Products of one precision.

    Attributes:
        precision: highest, high (TF32 on an NVIDIA GPU, if PyTorch is told so too), or bf16.
    """

    precision: str = "highest"

    @property
    def rounds(self) -> bool:
        """Whether factors are rounded to bfloat16."""
        return self.precision == "bf16"

    @property
    def factors_as(self) -> str:
        """How a GPU rounds factors: bf16, tf32, or ieee for not at all."""
        return {"bf16": "bf16", "high": "tf32"}.get(self.precision, "ieee")

    def rounded(self, x: Tensor) -> Tensor:
        """x as a factor: itself, or float32 numbers that are exact in bfloat16."""
        return in_bfloat16(x) if self.rounds else x

    def bmm(self, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        """a @ b of float32 [R, m, k] and [R, k, n], written to `out` [R, m, n]."""
        if self.rounds:
            return out.copy_(_rounded_bmm(a, b))
        if _by_onednn(a, b):
            with _PERMISSION:
                return torch.bmm(a, b, out=out)
        return torch.bmm(a, b, out=out)

    def baddbmm(
        self, c: Tensor, a: Tensor, b: Tensor, out: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        """beta * c + alpha * a @ b, shaped as in `bmm`, written to `out`, which may be c itself."""
        if self.rounds:
            return torch.add(c * beta, _rounded_bmm(a, b), alpha=alpha, out=out)
        if _by_onednn(a, b):
            with _PERMISSION:
                return torch.baddbmm(c, a, b, beta=beta, alpha=alpha, out=out)
        return torch.baddbmm(c, a, b, beta=beta, alpha=alpha, out=out)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b, float32 [R, A, m, n], of [R, A, m, k] and [R, A, k, n]; one A may be 1."""
        if not self.rounds:
            return torch.matmul(a, b)
        each = max(a.shape[1], b.shape[1])
        a, b = a.expand(-1, each, -1, -1), b.expand(-1, each, -1, -1)
        return _rounded_bmm(a.flatten(0, 1), b.flatten(0, 1)).view(-1, each, a.shape[2], b.shape[3])


def in_bfloat16(x: Tensor) -> Tensor:
    """The nearest float32 numbers that are exact in bfloat16."""
    return x.to(torch.bfloat16).to(torch.float32)


def _rounded_bmm(a: Tensor, b: Tensor) -> Tensor:
    """The float32 products of rounded factors."""
    if a.device.type == "cpu":  # has no product of bfloat16 numbers with a float32 result
        return torch.bmm(in_bfloat16(a), in_bfloat16(b))
    return torch.bmm(a.to(torch.bfloat16), b.to(torch.bfloat16), out_dtype=torch.float32)


def _by_onednn(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN is the one to take."""
    return a.is_cpu and a.shape[1] * a.shape[2] * b.shape[2] >= _LARGE and onednn_pays()


@cache
def onednn_pays() -> bool:
    """Whether oneDNN computes the same as MKL here, and faster; the same in every process."""
    there = torch.backends.mkldnn.is_available() and hasattr(torch.backends.mkldnn, "matmul")  # type: ignore[no-untyped-call]
    text = _CPU.read_text(encoding="utf-8") if there and _CPU.is_file() else ""
    return "AuthenticAMD" in text and " avx512f" in text and _exact()


def _exact() -> bool:
    """Whether products are those of float32 in spite of the permission."""
    a, b = torch.full((2, 64, 512), 1 + 2.0**-12), torch.ones(2, 512, 64)
    with _PERMISSION:
        return bool((torch.bmm(a, b) == 512 + 2.0**-3).all())

"""What the machine can do at most: arithmetic, memory, and the size of its last cache."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from fedclust.engines.fused.products import Products

SIDE = 2048
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNKNOWN = 32 << 20
_LENGTH = 1 << 26  # 256 MiB of float32, beyond any cache
TRIAD_BYTES = 3 * 4 * _LENGTH


def product(device: torch.device) -> Callable[[], object]:
    """A product of 2048 x 2048 float32, by the faster library: 2 * SIDE**3 operations."""
    side, out = torch.randn(1, SIDE, SIDE, device=device), torch.empty(1, SIDE, SIDE, device=device)
    return lambda: Products().bmm(side, side, out)


def torch_product(device: torch.device) -> Callable[[], object]:
    """The same product as PyTorch computes it by itself."""
    side = torch.randn(SIDE, SIDE, device=device)
    return lambda: side @ side


def triad(device: torch.device) -> Callable[[], object]:
    """a = b + 2c over 256 MiB each: TRIAD_BYTES, two arrays read and one written.

    A CPU that first reads the lines it is about to write moves a third more than is counted.
    """
    a, b, c = (_zeros(device) for _ in range(3))
    return lambda: torch.add(b, c, alpha=2, out=a)


def _zeros(device: torch.device) -> Tensor:
    """float32 [_LENGTH]; on a CPU mapped, so that it goes back to the system when it is dropped."""
    if device.type != "cpu":
        return torch.zeros(_LENGTH, device=device)
    return torch.frombuffer(mmap.mmap(-1, 4 * _LENGTH), dtype=torch.float32).zero_()


def cache_bytes(device: torch.device) -> int:
    """Size of the last cache: what Linux says of the first CPU, a CUDA device of itself; else 32
    MiB.
    """
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    return largest(path.read_text() for path in _CACHES.glob("index*/size"))


def largest(sizes: Iterable[str]) -> int:
    """The largest of sizes such as 48K or 32M in bytes; 32 MiB when there is none."""
    factor = {"K": 1 << 10, "M": 1 << 20}
    known = [int(size.strip()[:-1]) * factor[size.strip()[-1]] for size in sizes]
    return max(known, default=_UNKNOWN)

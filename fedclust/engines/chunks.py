"""Which rows are computed together: enough to fill the device, few for its cache or memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from fedclust.engines.located import at_rows
from fedclust.helpers.meter import meter

_LOG = logging.getLogger(__name__)
_MOST_ROWS_CPU = 64
_MOST_ROWS_CUDA = 4096
_CACHE_IF_UNKNOWN = 8 << 20


def each_chunk(size: Tensor, max_rows: int, work: Callable[[Tensor], None]) -> None:
    """Calls `work(rows)` on chunks of rows of like size, largest first, each row once.

    When the device runs out of memory the chunk is halved and done again, so `work` must be
    repeatable.

    Args:
        size: [C] work of every row.
        max_rows: largest number of rows of a chunk, at least 1.
        work: called with rows [R] int64, sizes descending, ties in row order.

    Raises:
        torch.OutOfMemoryError: if even one row does not fit.
    """
    order = size.argsort(descending=True, stable=True)
    first = 0
    while first < len(order):
        rows = order[first : first + max_rows]
        if _fits(work, rows):
            first += len(rows)
            meter.add(len(rows))
            continue
        # here no exception holds the failed attempt's tensors any more
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        max_rows = len(rows) // 2
        _LOG.warning("out of memory with %d rows at once, going on with %d", len(rows), max_rows)


def _fits(work: Callable[[Tensor], None], rows: Tensor) -> bool:
    """Whether `work(rows)` was done; a single row that does not fit raises."""
    try:
        with at_rows(rows):
            work(rows)
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
        return False
    return True


def auto_rows(bytes_per_row: int, device: torch.device) -> int:
    """How many rows of so many bytes (parameters, gradients, activations) to compute at once: as
    fit a CPU's cache, or fill a GPU but leave half of its free memory to results.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return max(1, min(_MOST_ROWS_CUDA, (free + reserved) // 2 // bytes_per_row))
    return max(1, min(_MOST_ROWS_CPU, cpu_cache() // bytes_per_row))


@cache
def cpu_cache() -> int:
    """Bytes one core may count on: half of its L2 cache and its share of L3."""
    total = 0
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level = int((entry / "level").read_text(encoding="utf-8"))
        if level < 2:
            continue
        size = int((entry / "size").read_text(encoding="utf-8").strip().removesuffix("K")) << 10
        sharing = (entry / "shared_cpu_list").read_text(encoding="utf-8").strip()
        total += size // 2 if level == 2 else size // _num_cpus(sharing)
    return total or _CACHE_IF_UNKNOWN


def _num_cpus(listed: str) -> int:
    """Number of processors in a kernel's list such as `0-3,8`."""
    ends = [part.split("-") for part in listed.split(",")]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)

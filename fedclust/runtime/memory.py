"""What the process does with memory: what it keeps, what there is, and whether a job fits."""

from __future__ import annotations

import ctypes
import platform
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedclust.helpers.cgroups import memory_left
from fedclust.helpers.errors import MemoryShort
from fedclust.helpers.memory import LESS, readable

if TYPE_CHECKING:  # the command line does without until a job begins
    import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, see malloc.h
_NEVER = -1
_HUGE = 1 << 30  # bytes of blocks that go back to the system after all


def keep_freed_memory() -> None:
    """Let the C library (glibc) keep large freed blocks for the next round.

    Clearing fresh pages was a quarter of the time of local training. Blocks of a gigabyte are given
    back, since smaller ones would cut them up: a process that needs 7 GB grew to 20.
    """
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _HUGE)
        mallopt(_TRIM_THRESHOLD, _NEVER)


def check_fits(needs: Mapping[str, int], device: torch.device, data: int) -> None:
    """Refuse what cannot fit before any work is done.

    Args:
        needs: bytes, at least, by what needs them.
        data: bytes of the examples that are loaded already.

    Raises:
        MemoryShort: naming what needs how much, the largest first, and how much there is.
    """
    there, needed = available(device), sum(needs.values())
    if there is not None and needed > there:
        largest = sorted(needs, key=lambda what: -needs[what])
        each = "; ".join(f"{what}: {readable(needs[what])}" for what in largest if needs[what])
        raise MemoryShort(
            f"the job needs at least {readable(needed)} besides its data of {readable(data)}, and "
            f"{readable(there)} are free ({each}); {LESS}"
        )


def available(device: torch.device) -> int | None:
    """Bytes that this process can still get; None where the system does not say."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    limits = [free for free in (_free_in_system(), memory_left(), _free_address_space()) if free]
    return min(limits, default=None)


def _free_in_system() -> int | None:
    """Of the machine, swap included."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return 1024 * (sizes.get("MemAvailable", 0) + sizes.get("SwapFree", 0)) or None


def _free_address_space() -> int | None:
    """Of what `ulimit -v` allows."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return None
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return None
    return max(1, most - used)

"""What the process does with memory it has freed."""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, see malloc.h
_NEVER = -1
_HUGE = 1 << 30  # bytes of blocks that go back to the system after all


def keep_freed_memory() -> None:
    """Let the C library keep large freed blocks for the next round instead of giving them to the
    system.

    A round's results are hundreds of megabytes, and pages fresh from the system are cleared one by
    one when they are first written: that was a quarter of the time of local training. Blocks of a
    gigabyte are given back, since smaller ones would cut them up: a process that needs 7 GB grew to
    20. Does nothing where the C library is not glibc.
    """
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _HUGE)
        mallopt(_TRIM_THRESHOLD, _NEVER)

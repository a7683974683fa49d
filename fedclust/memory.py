"""What the process does with memory it has freed."""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt, see malloc.h
_NEVER = -1


def keep_freed_memory() -> None:
    """Let the C library keep large freed blocks for the next round instead of giving them to the system.

    A round's results are hundreds of megabytes, and pages fresh from the system are cleared one by one when
    they are first written: that was a quarter of the time of local training. The process stays as large as it
    once was, which a simulation is anyway in its next round. Does nothing where the C library is not glibc.
    """
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, _NEVER)

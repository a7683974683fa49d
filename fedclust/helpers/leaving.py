"""The end of a process: its memory goes back to the system as it is.

Python would look through a million objects, free them one by one and have PyTorch take itself
apart, which costs 0.3 seconds.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_at_once() -> Iterator[None]:
    """The block is the whole program: after it, and what others registered for the end, nothing.

    An error with a traceback takes Python's usual way, and so does a program whose coverage is
    measured: coverage registers first and so is called last.
    """
    status: list[int] = []
    atexit.register(_leave, status)
    try:
        yield
        status.append(0)
    except SystemExit as end:
        status.append(as_status(end.code))
        raise


def as_status(code: object) -> int:
    """The exit status that `sys.exit` makes of its argument."""
    return code if isinstance(code, int) else int(code is not None)


def _leave(status: list[int]) -> None:
    if not status or "coverage" in sys.modules:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):  # nobody reads it, a full disk, closed: Python says so itself
        return
    os._exit(status[0])

"""Python's search for cyclic garbage, which is rare while a command starts and spared at its end.

Imports make half a million objects that stay; to look through them costs 0.2 seconds.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = (50_000, 20, 100)  # new objects until a search; how many until a search of older ones
_usual: list[tuple[int, int, int]] = []


@contextmanager
def searched_rarely() -> Iterator[None]:
    """Search rarely, until the block ends or calls `searched_as_usual`; never as Python exits."""
    atexit.unregister(_spare_what_is_left)  # once, however many commands this process runs
    atexit.register(_spare_what_is_left)
    _usual.append(gc.get_threshold())
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*_usual.pop())


def searched_as_usual() -> None:
    """Search as often as before `searched_rarely`: rounds make arrays, which garbage would keep."""
    if _usual:
        gc.set_threshold(*_usual[-1])


def _spare_what_is_left() -> None:
    """Leave all objects to the process's end, unless nanobind (Triton's) is there: it warns."""
    if not any(kind.__module__ == "nanobind" for kind in type.__subclasses__(type)):
        gc.freeze()

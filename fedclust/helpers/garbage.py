"""Python's search for cyclic garbage, which is rare while a command starts.

Imports make half a million objects that stay; to look through them costs 0.2 seconds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = (50_000, 20, 100)  # new objects until a search; how many until a search of older ones
_usual: list[tuple[int, int, int]] = []


@contextmanager
def searched_rarely() -> Iterator[None]:
    """Search rarely, until the block ends or calls `searched_as_usual`."""
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

"""What is said when memory is short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fedclust.helpers.errors import MemoryShort

_ASKED = re.compile(r"(?i)(?:tried to|unable to) allocate ([\d.]+) (bytes|[KMGTPE]iB)")
# of C++, and of a shared library that does not fit
_TOLD = ("bad_alloc", "failed to map segment", "annot allocate memory")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
LESS = "lower max_rows, seeds, the number of clients or clusters, or the size of the model or data"


def readable(size: float) -> str:
    """A number of bytes, as a person reads it."""
    power = 0
    while size >= 1024 and power < len(_UNITS) - 1:
        size, power = size / 1024, power + 1
    return f"{size:.3g} {_UNITS[power]}" if size < 1000 else f"{size:.0f} {_UNITS[power]}"


@contextmanager
def short_of_memory(doing: str) -> Iterator[None]:
    """Turns any lack of memory into one line, MemoryShort "out of memory while `doing`"."""
    try:
        yield
    except (MemoryError, RuntimeError, ImportError) as error:
        text = str(error)
        asked = _ASKED.search(text)
        known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if not (known or asked or any(words in text for words in _TOLD)):
            raise
        size = ""
        if asked:
            power = [unit.lower() for unit in _UNITS].index(asked[2].lower())
            size = f": {readable(float(asked[1]) * 1024**power)} more were needed"
        raise MemoryShort(f"out of memory while {doing}{size}; {LESS}") from error

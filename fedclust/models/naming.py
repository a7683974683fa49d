"""Names of parameters and layers, and the patterns of a config that meet them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

_SHOWN = 3


def meets(pattern: str, name: str) -> bool:
    """Whether a pattern as `layer[12].*`, or the name of what holds it, means a name."""
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")


def few(names: Iterable[str]) -> str:
    """Some names, for the end of a message."""
    names = list(names)
    return f": there are {', '.join(names[:_SHOWN])}{', …' * (len(names) > _SHOWN)}"

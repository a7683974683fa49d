"""Where a run's numbers go while it runs, besides its own files.

The recorder feeds a tracker; a tracker never feeds anything back, so it cannot change a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from fedclust.errors import ConfigError


class Tracker(Protocol):
    """A sink of numbers."""

    def log(self, seed: int, round: int, values: Mapping[str, float]) -> None:  # noqa: A002 - as in rounds.csv
        """Takes the values of one seed and 0-based round, by metric name."""
        ...

    def close(self) -> None:
        """Everything taken is stored afterwards."""
        ...


def optional(module: str, extra: str) -> Any:
    """The optional module, imported now.

    Args:
        module: its dotted name.
        extra: the extra of fedclust that installs it.

    Raises:
        ConfigError: when it is not installed, with the command that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"tracker={extra} is not allowed here: {module} cannot be imported ({error}), "
            f"pip install 'fedclust[{extra}]' or take tracker=none"
        ) from error


def series(seed: int, metric: str) -> str:
    """The name of one curve, e.g. `seed=0/accuracy`."""
    return f"seed={seed}/{metric}"

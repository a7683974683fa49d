"""No tracker: the files of the run are all there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedclust.core.tracker import About


class NoTracker:
    """Takes numbers and drops them; a tracker of your own overrides what it needs."""

    def begin(self, about: About) -> None:
        """Does nothing."""

    def log(self, round: int, values: Mapping[int, Mapping[str, float]]) -> None:  # noqa: A002
        """Does nothing."""

    def end(self, summary: Mapping[str, float], report: Callable[[], Path]) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

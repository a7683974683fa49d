"""No tracker: the files of the run are all there is."""

from __future__ import annotations

from collections.abc import Mapping


class NoTracker:
    """Takes numbers and drops them."""

    def log(self, seed: int, round: int, values: Mapping[str, float]) -> None:  # noqa: A002
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

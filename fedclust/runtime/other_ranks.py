"""The files of a job in the ranks beside the first, which compute but write nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedclust.runtime.folder import RunFolder
from fedclust.runtime.recorder import Recorder

NO_TRACKER = {"_target_": "fedclust.trackers.none.NoTracker"}


def _nothing(*_args: Any, **_more: Any) -> None:
    """In place of what the first rank does."""


class ReadFolder(RunFolder):
    """Reads checkpoints, and leaves the rest to the first rank."""

    check = check_unused = renew = release = abandon = write_status = finish = save = _nothing

    def acquire(self, versions: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """True, for the first rank decides."""
        return True


class NoRecorder(Recorder):
    """Records nothing."""

    __init__ = start = cost = validate = change = seconds = keep = resume = load = _nothing
    finish = close = _nothing

    def evaluate(self, *_args: Any) -> dict[str, float]:
        """No metrics."""
        return {}

    def latest(self) -> dict[str, float]:
        """No metrics."""
        return {}

    def commit(self) -> dict[str, Any]:
        """No position."""
        return {}

    def state(self) -> dict[int, dict[str, Tensor]]:
        """Nobody's."""
        return {}

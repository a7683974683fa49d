"""The files of a job as ranks see them that compute but write nothing; the first rank writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedclust.runtime.folder import RunFolder
from fedclust.runtime.recorder import Recorder
from fedclust.types import Cost, Evaluation, Round

NO_TRACKER = {"_target_": "fedclust.trackers.none.NoTracker"}


class SeenFolder(RunFolder):
    """Reads checkpoints, and leaves the rest alone."""

    def check(self) -> None:
        """Nothing."""

    def renew(self) -> None:
        """Nothing."""

    def acquire(self, versions: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Nothing; the first rank decides."""
        return True

    def release(self) -> None:
        """Nothing."""

    def abandon(self) -> None:
        """Nothing."""

    def write_status(self, **status: Any) -> None:
        """Nothing."""

    def finish(self, status: Mapping[str, Any]) -> None:
        """Nothing."""

    def save(
        self, t: int, seeds: Mapping[int, Mapping[str, Any]], position: Mapping[str, Any]
    ) -> None:
        """Nothing."""


class NoRecorder(Recorder):
    """Records nothing."""

    def __init__(self) -> None:
        """Nothing."""

    def start(self) -> None:
        """Nothing."""

    def cost(self, seed: int, t: int, report: Cost) -> None:
        """Nothing."""

    def evaluate(self, rnd: Round, evaluation: Evaluation) -> dict[str, float]:  # noqa: ARG002
        """No metrics."""
        return {}

    def validate(self, rnd: Round, validation: Evaluation) -> None:
        """Nothing."""

    def change(self, rnd: Round, untrained: Evaluation) -> None:
        """Nothing."""

    def seconds(self, seed: int, t: int, value: float) -> None:
        """Nothing."""

    def latest(self) -> dict[str, float]:
        """No metrics."""
        return {}

    def commit(self) -> dict[str, Any]:
        """No position."""
        return {}

    def resume(self, position: Mapping[str, Any], state: Mapping[int, Mapping[str, Any]]) -> None:
        """Nothing."""

    def state(self) -> dict[int, dict[str, Tensor]]:
        """Nothing to keep."""
        return {}

    def load(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

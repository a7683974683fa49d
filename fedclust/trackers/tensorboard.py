"""TensorBoard: one event folder per seed, so that seeds are curves of one plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedclust.trackers import optional


class TensorBoardTracker:
    """Event files under `folder/<seed>`.

    Args:
        folder: where the event files go; a run that continues adds files, TensorBoard joins them.
    """

    def __init__(self, folder: str) -> None:
        # torch's SummaryWriter is a thin layer on the package `tensorboard`, whose absence it
        # reports
        self._open = optional("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self._folder = Path(folder)
        self._writers: dict[int, Any] = {}

    def log(self, seed: int, round: int, values: Mapping[str, float]) -> None:  # noqa: A002
        """Adds one point per metric."""
        if seed not in self._writers:
            self._writers[seed] = self._open(str(self._folder / f"seed={seed}"))
        for metric, value in values.items():
            self._writers[seed].add_scalar(metric, value, round)

    def close(self) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            writer.close()

"""Looks at a trial while it runs, and ends it where it has no hope."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from fedclust.config.job import Job
from fedclust.helpers.errors import Enough
from fedclust.runtime.progress import Aside
from fedclust.tuning.record import curve_of
from fedclust.tuning.search import Proposal


class Watching(Aside):
    """Reports every evaluated round to the search.

    Args:
        proposal: the trial.
        metric: what is looked at.
        job: which runs.
        console: where warnings go.
    """

    def __init__(self, proposal: Proposal, metric: str, job: Job, console: Console) -> None:
        super().__init__(f"trial {proposal.number + 1}", console)
        self._proposal, self._metric, self._job = proposal, metric, job

    def start(self, folder: Path, first: int, rounds: int) -> None:  # noqa: ARG002
        """A trial that is continued is judged by all of its rounds."""
        for t, value in curve_of(folder, self._metric).items():
            if t < first:
                self._proposal.is_hopeless(t, value)

    def round(self, t: int, values: Mapping[str, float]) -> None:
        """End the trial where it is hopeless.

        Raises:
            Enough: in that case.
        """
        last = t == self._job.rounds - 1
        if last or not self._job.is_evaluated(t) or self._metric not in values:
            return
        if self._proposal.is_hopeless(t, values[self._metric]):
            raise Enough

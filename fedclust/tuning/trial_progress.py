"""Progress of the trials of a batch: shown as one job's, and a hopeless trial is ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from rich.console import Console

from fedclust.config.job import Job
from fedclust.helpers.errors import Enough
from fedclust.runtime.progress import Aside, Once, Shown, rough
from fedclust.tuning.record import curve_of
from fedclust.tuning.search import Proposal


class BatchProgress:
    """What a person sees of trials that run together: as of one job, whose rounds end with theirs.

    Args:
        first: the first round that some trial runs.
        is_shown: whether rounds are shown; a signal is answered in any case.
        batches: as many of such trials are left of the search, these among them; the first round
            then tells how long that will take. None to tell nothing.
    """

    def __init__(
        self,
        title: str,
        console: Console,
        *,
        folder: Path,
        first: int,
        rounds: int,
        is_shown: bool,
        batches: float | None = None,
    ) -> None:
        self._rounds, self._batches, self._began = rounds, batches, monotonic()
        self._shown, self._is_shown = Shown(title, console), is_shown
        self._done: dict[int, int] = {}
        self._told = first
        if is_shown:
            self._shown.start(folder, first, rounds)

    def join(self, number: int, first: int) -> None:
        """A trial begins, or goes on, with round `first`."""
        self._done[number] = first

    def round(self, number: int, t: int) -> None:
        """A trial has ended round t."""
        self._done[number] = t + 1
        least = min(self._done.values())
        if self._is_shown and least > self._told:
            if self._batches is not None:
                took = (monotonic() - self._began) / (least - self._told)
                all_ = rough(took * self._rounds * self._batches)
                self._shown.tell(f"a round takes {rough(took)}, the whole search at most {all_}")
                self._batches = None
            self._told = least
            self._shown.round(least - 1, {})

    def leave(self, number: int) -> None:
        """A trial has ended."""
        self._done.pop(number, None)

    def finishing(self, t: int, saved: int, left: float | None, signum: int) -> None:
        """See `fedclust.runtime.progress.Progress.finishing`."""
        self._shown.finishing(t, saved, left, signum)

    def stop(self) -> None:
        """All have ended."""
        self._shown.stop()


class TrialProgress(Aside):
    """Reports every evaluated round to the search."""

    def __init__(
        self,
        proposal: Proposal,
        metric: str,
        job: Job,
        console: Console,
        batch: BatchProgress,
        once: Once,
    ) -> None:
        super().__init__(f"trial {proposal.number + 1}", console, once)
        self._proposal, self._metric, self._job = proposal, metric, job
        self._batch = batch

    def start(self, folder: Path, first: int, rounds: int) -> None:  # noqa: ARG002
        """A trial that is continued is judged by all of its rounds."""
        self._batch.join(self._proposal.number, first)
        for t, value in curve_of(folder, self._metric).items():
            if t < first:
                self._proposal.is_hopeless(t, value)

    def round(self, t: int, values: Mapping[str, float]) -> None:
        """End the trial by `Enough` where it is hopeless."""
        self._batch.round(self._proposal.number, t)
        last = t == self._job.rounds - 1
        if last or not self._job.is_evaluated(t) or self._metric not in values:
            return
        if self._proposal.is_hopeless(t, values[self._metric]):
            raise Enough

    def finishing(self, t: int, saved: int, left: float | None, signum: int) -> None:
        """See `fedclust.runtime.progress.Progress.finishing`."""
        self._batch.finishing(t, saved, left, signum)

    def stop(self) -> None:
        """See `fedclust.runtime.progress.Progress.stop`."""
        self._batch.leave(self._proposal.number)

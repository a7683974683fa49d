"""What a person sees while a job runs: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar


class Progress(Protocol):
    """Told what happens; shows it or not."""

    def start(self, folder: Path, first: int, rounds: int) -> None:
        """The job begins, or continues, with round `first` of `rounds`."""
        ...

    def round(self, t: int, values: Mapping[str, float]) -> None:
        """Round t is complete; values are means over seeds by metric name, the newest known."""
        ...

    def warn(self, message: str) -> None:
        """Something a person should know, in one line."""
        ...

    def stop(self) -> None:
        """The job has ended, one way or the other."""
        ...


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _rough(seconds: float) -> str:
    """A time to come, as a person says it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 48 * 3600 else f"{round(seconds / 86400)} d"


def _describe(values: Mapping[str, float]) -> list[str]:
    """The few numbers that tell how a run is doing; none before the first evaluation."""
    shown = [f"accuracy {100 * values['accuracy']:5.1f} %"] if "accuracy" in values else []
    return shown + [f"{name} {values[name]:.2f}" for name in ("purity", "ari") if name in values]


def _warn(console: Console, message: str) -> None:
    console.print(
        f"  warning: {message}", style="yellow", highlight=False, soft_wrap=True, markup=False
    )


class Silent:
    """Shows nothing."""

    def start(self, folder: Path, first: int, rounds: int) -> None:
        """See `Progress.start`."""

    def round(self, t: int, values: Mapping[str, float]) -> None:
        """See `Progress.round`."""

    def warn(self, message: str) -> None:
        """See `Progress.warn`."""

    def stop(self) -> None:
        """See `Progress.stop`."""


class Aside(Silent):
    """Shows warnings only, for `progress=false`.

    Args:
        title: the job in a few words.
        console: where to.
    """

    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console

    def warn(self, message: str) -> None:
        """See `Progress.warn`."""
        _warn(self._console, f"{self._title}: {message}")


@dataclass(frozen=True)
class Sweep:
    """The sweep that a job is part of, where its jobs run one after the other.

    Attributes:
        left: jobs after this one.
        mean_seconds: what a job took so far, None before the first has ended.
    """

    left: int
    mean_seconds: float | None

    def end(self, job_seconds: float, job_left: float) -> str:
        """When all jobs will be done, in words.

        Args:
            job_seconds: what this job will have taken.
            job_left: what it still takes.
        """
        mean = job_seconds if self.mean_seconds is None else self.mean_seconds
        return f"all done in about {_rough(job_left + self.left * mean)}"


class Shown:
    """One live line on a terminal; elsewhere a plain line now and then, about twenty in all.

    Args:
        title: the job in a few words.
        console: where to.
        sweep: the sweep that the job is part of, or None.
    """

    def __init__(self, title: str, console: Console, sweep: Sweep | None = None) -> None:
        self._title, self._console, self._sweep = title, console, sweep
        self._first = self._rounds = 0
        self._began = time.monotonic()
        self._bar: Bar | None = None

    def start(self, folder: Path, first: int, rounds: int) -> None:
        """See `Progress.start`."""
        self._first, self._rounds, self._began = first, rounds, time.monotonic()
        again = f", continued at round {first + 1}" if first else ""
        self._console.print(f"{self._title} → {folder}{again}", highlight=False, soft_wrap=True)
        if self._console.is_terminal:
            self._bar = Bar(
                SpinnerColumn(),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                console=self._console,
                transient=True,
            )
            self._bar.add_task("", total=rounds, completed=first)
            self._bar.start()

    def round(self, t: int, values: Mapping[str, float]) -> None:
        """See `Progress.round`."""
        done, left = t + 1 - self._first, self._rounds - t - 1
        spent = time.monotonic() - self._began
        time_left = spent / done * left
        ends = [f"{_clock(time_left)} left"] if left else []
        if self._sweep is not None and self._sweep.left:
            ends.append(self._sweep.end(spent + time_left, time_left))
        line = " · ".join([*_describe(values), *ends])
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=t + 1, description=line)
        if (self._bar is None and (t + 1) % max(1, self._rounds // 20) == 0) or not left:
            end = f" · in {_clock(spent)}" if not left else ""
            self._console.print(
                f"  round {t + 1}/{self._rounds} · {line}{end}", highlight=False, soft_wrap=True
            )

    def warn(self, message: str) -> None:
        """See `Progress.warn`."""
        _warn(self._console, message)

    def stop(self) -> None:
        """See `Progress.stop`."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

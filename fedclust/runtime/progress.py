"""What a person sees while a job runs: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fedclust.helpers.meter import Meter, meter
from fedclust.helpers.prose import say
from fedclust.metrics import METRICS, headline_of

_REFRESH = 4  # times a second that a live line is drawn
_PATIENCE = 60.0  # seconds without a line after which a log gets one
_ANY_WIDTH = 1000  # of a log
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Progress:
    """Told what happens; what shows it derives from this."""

    def start(self, folder: Path, first: int, rounds: int) -> None:
        """The job begins, or continues, with round `first` of `rounds`."""

    def round(self, t: int, values: Mapping[str, float]) -> None:
        """Round t is complete; values are its means over seeds by metric name."""

    def tell(self, message: str) -> None:
        """What the job computes with, in one line."""

    def warn(self, message: str) -> None:
        """Something a person should know of this job, in one line."""

    def remark(self, message: str, *, of_method: bool) -> None:  # noqa: ARG002
        """What a reader of the results should know, a line shared by jobs of a method or data."""
        self.warn(message)

    def finishing(self, t: int, saved: int, left: float | None, signum: int) -> None:
        """A signal: the job ends after round t, in about `left` s; round `saved` is saved."""

    def stop(self) -> None:
        """The job has ended, one way or the other."""


class Silent(Progress):
    """Shows nothing."""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def rough(seconds: float) -> str:
    """A time to come, as a person says it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 48 * 3600 else f"{round(seconds / 86400)} d"


def _describe(values: Mapping[str, float]) -> list[str]:
    """The few numbers that tell how a run is doing; none of a round that is not evaluated."""
    own, shown = headline_of(values), []
    if own in values:
        percent = METRICS[own].unit == "fraction"
        text = f"{100 * values[own]:5.1f} %" if percent else f"{values[own]:.4g}"
        shown = [f"{own.replace('_', ' ')} {text}"]
    return shown + [f"{name} {values[name]:.2f}" for name in ("purity", "ari") if name in values]


def _warn(console: Console, message: str) -> None:
    say(console, message, head="  warning: ", style="yellow")


def _finishing(t: int, saved: int, left: float | None, signum: int) -> str:
    """At which round a job ends, when, and what would be there if it ended now."""
    when = "" if left is None else f" in about {rough(left)}"
    again = "Ctrl-C again to stop now: " if signum == signal.SIGINT else ""
    kept = f"the last checkpoint is round {saved + 1}" if saved >= 0 else "no checkpoint yet"
    return f"finishing round {t + 1}{when}, {again}{kept}"


class Said:
    """The lines that the jobs of one process have said; see `Once`."""

    def __init__(self) -> None:
        self._lines = set[str]()

    def is_new(self, line: str) -> bool:
        """Whether a line has not been asked for before."""
        before = len(self._lines)
        self._lines.add(line)
        return len(self._lines) > before


@dataclass(frozen=True)
class Once:
    """Of one of several jobs: `is_new` says whether no other one has said a line."""

    method: str
    is_new: Callable[[str], bool]


class Aside(Progress):
    """Shows warnings, and what a signal does, only; for `progress=false`."""

    def __init__(self, title: str, console: Console, once: Once | None = None) -> None:
        self._title, self._console, self._once = title, console, once

    def warn(self, message: str) -> None:
        _warn(self._console, f"{self._title}: {message}")

    def remark(self, message: str, *, of_method: bool) -> None:
        if self._once is None:
            self.warn(message)
            return
        line = f"{self._once.method}: {message}" if of_method else message
        if self._once.is_new(line):
            _warn(self._console, line)

    def finishing(self, t: int, saved: int, left: float | None, signum: int) -> None:
        with suppress(RuntimeError):  # the signal came in the middle of another line
            _warn(self._console, f"{self._title}: {_finishing(t, saved, left, signum)}")


@dataclass(frozen=True)
class SweepProgress:
    """The sweep that a job is part of, where its jobs run one after the other.

    Attributes:
        left: jobs after this one.
        mean_seconds: what a job took so far, None before the first has ended.
    """

    left: int
    mean_seconds: float | None

    def end(self, job_seconds: float, job_left: float) -> str:
        """When all jobs will be done, in words: this one takes `job_seconds`, `job_left` still."""
        mean = job_seconds if self.mean_seconds is None else self.mean_seconds
        return f"all done in about {rough(job_left + self.left * mean)}"


class Shown(Aside):
    """One live line on a terminal; elsewhere about twenty plain lines, one a minute at least."""

    def __init__(
        self,
        title: str,
        console: Console,
        sweep: SweepProgress | None = None,
        *,
        name: str = "",
        live: bool = True,
        once: Once | None = None,
    ) -> None:
        super().__init__(title, console, once)
        self._sweep, self._name = sweep, name
        self._is_live = live and console.is_terminal
        self._first = self._rounds = self._done = 0
        self._values: Sequence[str] = ()  # of the last evaluated round
        self._evaluated = 0  # rounds up to that one
        self._began = self._ended = self._told = time.monotonic()
        self._live: Live | None = None
        self._over = Event()

    def start(self, folder: Path, first: int, rounds: int) -> None:
        self._first = self._done = first
        self._rounds, self._began = rounds, time.monotonic()
        self._ended = self._told = self._began
        again = f", continued at round {first + 1}" if first else ""
        self._print(f"{self._title} → {folder}{again}")
        if self._is_live:
            self._live = Live(
                console=self._console,
                get_renderable=self._renderable,
                refresh_per_second=_REFRESH,
                transient=True,
            )
            self._live.start()
        else:
            Thread(target=self._tell_of_long_rounds, daemon=True).start()

    def round(self, t: int, values: Mapping[str, float]) -> None:
        self._done, self._ended = t + 1, time.monotonic()
        if described := _describe(values):
            self._values, self._evaluated = described, self._done
        last = self._done == self._rounds
        if last or (self._live is None and self._done % max(1, self._rounds // 20) == 0):
            end = [f"in {_clock(self._ended - self._began)}"] if last else self._ends()
            self._tell(end)

    def tell(self, message: str) -> None:
        if self._once is None or self._once.is_new(message):
            self._say(message)

    def warn(self, message: str) -> None:
        _warn(self._console, f"{self._name and self._name + ': '}{message}")

    def finishing(self, t: int, saved: int, left: float | None, signum: int) -> None:
        with suppress(RuntimeError):  # the signal came in the middle of another line
            self._print(f"{self._name and self._name + ': '}{_finishing(t, saved, left, signum)}")

    def stop(self) -> None:
        self._over.set()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, line: str) -> None:
        say(self._console, line)

    def _tell(self, ends: Sequence[str]) -> None:
        """A line that stays, of the newest round; a terminal's is not wider than it."""
        self._told = time.monotonic()
        pieces = [(0, self._name)] if self._name else []
        pieces.append((0, f"round {self._done}/{self._rounds}"))
        pieces += self._described()
        pieces += [(1 + 2 * i, end) for i, end in enumerate(ends)]
        width = self._console.width if self._console.is_terminal else _ANY_WIDTH
        self._say(fitting(pieces, width - 2))

    def _say(self, text: str) -> None:
        """A line about the rounds."""
        self._print(f"  {text}")

    def _renderable(self) -> Text:
        """The live line, as wide as the terminal allows."""
        frame = _FRAMES[int(time.monotonic() * _REFRESH) % len(_FRAMES)]
        line = fitting(self._pieces(), self._console.width - 3)
        return Text(f"{frame} {line}", no_wrap=True, overflow="crop")

    def _pieces(self) -> list[tuple[int, str]]:
        """What there is to say in the middle of a round, each with how soon it may be left out."""
        pieces = [(0, self._name)] if self._name else []
        pieces.append((0, f"round {min(self._done + 1, self._rounds)}/{self._rounds}"))
        pieces += [(2, part) for part in doing(meter)]
        pieces += self._described()
        return pieces + [(1 + 2 * i, end) for i, end in enumerate(self._ends())]

    def _described(self) -> list[tuple[int, str]]:
        """How the run is doing; where the last round was not evaluated, of which round that is."""
        of = "" if self._evaluated == self._done else f" (round {self._evaluated})"
        first = [(3, f"{one}{of}") for one in self._values[:1]]
        return first + [(4 + i, one) for i, one in enumerate(self._values[1:])]

    def _ends(self) -> list[str]:
        """When the job, and the sweep, will be done; how long it runs before a round has ended."""
        now = time.monotonic()
        done = self._done - self._first
        if not done:
            return [f"{_clock(now - self._began)} so far"]
        left = self._rounds - self._done
        whole = (self._ended - self._began) / done * left
        job_left = max(0.0, whole - (now - self._ended))
        ends = [f"{_clock(job_left)} left"] if left else []
        if self._sweep is not None and self._sweep.left:
            ends.append(self._sweep.end(self._ended - self._began + whole, job_left))
        return ends

    def _tell_of_long_rounds(self) -> None:
        """A line for a log in which nothing was said for long; runs beside the rounds."""
        while not self._over.wait(_PATIENCE / 4):
            if time.monotonic() - self._told >= _PATIENCE:
                self._told = time.monotonic()
                self._say(" · ".join(piece for _, piece in self._pieces()))


class Replaced(Shown):
    """One line of a notebook's output, replaced as the rounds go by; see `Shown`."""

    _handle: Any = None  # IPython's, of the line

    def _print(self, line: str) -> None:
        text = {"text/plain": line}
        if self._handle is None:
            display = import_module("IPython.display").display  # where there is a notebook
            self._handle = display(text, raw=True, display_id=True)
        else:
            self._handle.update(text, raw=True)

    def _say(self, text: str) -> None:
        self._print(f"{self._title} · {text}")


def doing(now: Meter) -> list[str]:
    """What an engine does at the moment, in words; [] between two requests."""
    if not now.doing:
        return []
    kind = "step" if now.unit == "clients" else "part"
    step = f", {kind} {now.step}/{now.steps}" if now.steps else ""
    return [f"{now.doing} {min(now.done, now.total)}/{now.total} {now.unit}{step}"]


def fitting(pieces: Sequence[tuple[int, str]], width: int) -> str:
    """The pieces, each with its rank, in `width` characters: high ranks go first, rank 0 never."""
    kept = list(pieces)
    while len(line := " · ".join(text for _, text in kept)) > width:
        least = max(rank for rank, _ in kept)
        if not least:
            return line[:width]
        kept.remove(next(piece for piece in reversed(kept) if piece[0] == least))
    return line

"""What becomes of a job that cannot run: alone it ends the command, a sweep goes on."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.text import Text
from yaml import YAMLError

from fedclust.helpers.distributed import here
from fedclust.helpers.errors import (
    DiskFull,
    DivergedError,
    FolderInUse,
    Interrupted,
    JobLost,
    RankFailed,
    RankLost,
    RunFolderError,
    SweepError,
    UserError,
    counted,
    in_words,
    is_full,
)
from fedclust.helpers.memory import short_of_memory
from fedclust.helpers.prose import say
from fedclust.helpers.signals import by_a_signal
from fedclust.launch.sweep import Notes

T = TypeVar("T")
# what the command line says in one line
TOLD = (
    UserError,
    DivergedError,
    Interrupted,
    JobLost,
    RankFailed,
    RankLost,
    HydraException,
    OmegaConfBaseException,
    YAMLError,
    OSError,
)


_OF_SIGNALS = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # what ends a command from outside


class Stopped(BaseException):
    """Ends a whole sweep for a `reason`; Hydra's launcher goes on after any other exception."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


@contextmanager
def as_raised() -> Iterator[None]:
    """What has stopped a sweep is raised as it was."""
    try:
        yield
    except Stopped as stopped:
        raise stopped.reason from stopped.reason.__cause__


def attempt(work: Callable[[], T], folder: Path) -> T:
    """Do a job's work, as all ranks do; where the file system or memory fails, an error says so."""
    try:
        with here().together(), short_of_memory("the data and the model were loaded"):
            return _not_ended_by(work)
    except OSError as error:
        kind = DiskFull if is_full(error) else RunFolderError
        raise kind(in_words(error, folder)) from error


def _not_ended_by(work: Callable[[], T]) -> T:
    """What the work returns; a user's `sys.exit` is a mistake, whatever status it gives.

    The end that a signal asks for is none: submitit's handler ends a job that SLURM preempts.
    """
    try:
        return work()
    except SystemExit as end:
        if end.code in _OF_SIGNALS or by_a_signal(end):
            raise
        error = RuntimeError(f"sys.exit({end.code if end.code is not None else ''}) was called")
        raise error.with_traceback(end.__traceback__) from None


def attempt_in_sweep(
    work: Callable[[], T],
    folder: Path,
    *,
    console: Console,
    own: Path | None,
    notes: Notes,
    later: bool,
) -> tuple[T | None, str]:
    """Do the work of one of several jobs.

    A job that cannot run, or whose every seed diverges, is told once; the sweep goes on. With
    `later`, whoever calls tries a job again that another process runs.

    Returns:
        What the work returns, None where the job could not run; and the line that says why not.

    Raises:
        Stopped: after an interrupt, or where a rank has gone.
        FolderInUse: where another process runs the job, with `later`.
    """
    try:
        return attempt(work, folder), ""
    except (Interrupted, RankFailed, RankLost) as end:
        raise Stopped(end) from None
    except (DivergedError, UserError) as error:
        if later and isinstance(error, FolderInUse):
            raise
        line = " ".join(f"fedclust: {error}".split())
        if line not in notes.not_run():
            say(console, line, style="red")
        notes.add_not_run(getattr(error, "exit_status", 1), line)
    except Exception as error:  # a mistake of a user's algorithm, or of this program
        line = tell_traceback(error, console, own)
        notes.add_not_run(1, line)
    return None, line


@contextmanager
def mistakes_told(console: Console, folder: Path | None) -> Iterator[None]:
    """A mistake of a user's method, or of this program, is told, and ends with status 1."""
    try:
        yield
    except (SweepError, *TOLD):
        raise
    except Exception as error:
        tell_traceback(error, console, folder)
        sys.exit(1)


def tell_traceback(error: Exception, console: Console, folder: Path | None) -> str:
    """Print an unexpected exception with its calls, a user's file first; returns its one line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = _own(frames, folder)
    line = f"fedclust: {in_a_line(error, folder)}"
    shown = "".join(traceback.format_exception(error))
    if own:
        lines: list[str] = []
        for is_own, some in groupby(frames, key=lambda frame: frame in own):
            calls = list(some)
            folded = [f"  … {counted(len(calls), 'call')} …\n"]
            lines += traceback.format_list(calls) if is_own else folded
        shown = "".join(lines)
    say(console, line, style="red")
    console.print(Text(shown.rstrip(), style="dim"), soft_wrap=True)
    return line


def in_a_line(error: Exception, folder: Path | None) -> str:
    """An exception that nobody expected, with the last line of a user's file that led to it."""
    notes: list[str] = getattr(error, "__notes__", [])  # whose work it was in
    line = " ".join(f"{': '.join([*notes, type(error).__name__])}: {error}".split())
    own = _own(traceback.extract_tb(error.__traceback__), folder)
    return f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}: {line}" if own else line


def _own(frames: traceback.StackSummary, folder: Path | None) -> list[traceback.FrameSummary]:
    """The calls of a user's files."""
    return [f for f in frames if folder and Path(f.filename).is_relative_to(folder)]

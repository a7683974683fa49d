"""What becomes of a job that cannot run: alone it ends the command, in a sweep it is told and
passed over.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from yaml import YAMLError

from fedclust.commands.surroundings import own_folder
from fedclust.commands.sweep import not_run, note_not_run
from fedclust.helpers.distributed import here
from fedclust.helpers.errors import (
    DiskFull,
    DivergedError,
    Interrupted,
    JobLost,
    RankFailed,
    RankLost,
    RunFolderError,
    UserError,
    counted,
    is_full,
)
from fedclust.helpers.memory import short_of_memory

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


class Stopped(BaseException):
    """Carries an error past Hydra, which prints lines of its own about every `Exception`.

    Attributes:
        reason: what happened.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


def attempt(
    work: Callable[[], T],
    folder: Path,
    console: Console,
    *,
    in_sweep: bool,
    on_failure: Callable[[str], None] | None = None,
) -> T | None:
    """Do a job's work.

    A job that cannot run, or whose every seed diverges, ends a single run; a sweep says so once,
    goes on with the other jobs and ends with the exit status of the worst.

    Args:
        work: the job, or what became of it as an exception it raises.
        folder: the job's, named where the file system fails.
        console: where a sweep says it.
        in_sweep: whether other jobs follow.
        on_failure: told why a job of a sweep could not run.

    Returns:
        What the work returns; None where a job of a sweep could not run.

    Raises:
        Stopped: after an interrupt, or where this was the only job; it carries the error.
    """
    try:
        with here().together():
            return _naming_files(work, folder)
    except (Interrupted, RankFailed, RankLost) as end:
        raise Stopped(end) from None
    except (DivergedError, UserError) as error:
        if not in_sweep:
            raise Stopped(error) from None
        line = " ".join(f"fedclust: {error}".split())
        if line not in not_run():
            console.print(line, style="red", highlight=False, soft_wrap=True, markup=False)
        _note(getattr(error, "exit_status", 1), line, on_failure)
    except Exception as error:  # a mistake of a user's algorithm, or of this program
        if not in_sweep:
            raise Stopped(error) from None
        _note(1, tell_traceback(error, console, own_folder()), on_failure)
    return None


def _note(status: int, line: str, on_failure: Callable[[str], None] | None) -> None:
    note_not_run(status, line)
    if on_failure is not None:
        on_failure(line)


def tell_traceback(error: Exception, console: Console, folder: Path | None) -> str:
    """One line about an exception that nobody expected, printed with the calls that led to it.

    Where a user's file is among them, it comes first, and runs of other calls are folded.

    Args:
        error: the exception.
        console: where to.
        folder: the user's files.

    Returns:
        The line.
    """
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
    for text, style in ((line, "red"), (shown.rstrip(), "dim")):
        console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)
    return line


def in_a_line(error: Exception, folder: Path | None) -> str:
    """An exception that nobody expected, with the last line of a user's file that led to it.

    Args:
        error: the exception.
        folder: the user's files.
    """
    said = " ".join(f"{type(error).__name__}: {error}".split())
    own = _own(traceback.extract_tb(error.__traceback__), folder)
    return f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}: {said}" if own else said


def _own(frames: traceback.StackSummary, folder: Path | None) -> list[traceback.FrameSummary]:
    """The calls of a user's files."""
    return [f for f in frames if folder and Path(f.filename).is_relative_to(folder)]


def _naming_files(work: Callable[[], T], folder: Path) -> T:
    try:
        with short_of_memory("the data and the model were loaded"):
            return work()
    except OSError as error:
        where = error.filename or folder
        kind = DiskFull if is_full(error) else RunFolderError
        raise kind(f"{where} cannot be written or read: {error.strerror or error}") from error

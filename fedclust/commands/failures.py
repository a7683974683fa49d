"""What becomes of a job that cannot run: alone it ends the command, in a sweep it is told and
passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from fedclust.commands.sweep import not_run, note_not_run
from fedclust.distributed import here
from fedclust.errors import (
    DivergedError,
    Interrupted,
    RankFailed,
    RankLost,
    RunFolderError,
    UserError,
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
    work: Callable[[], None],
    folder: Path,
    console: Console,
    *,
    in_sweep: bool,
    on_failure: Callable[[str], None] | None = None,
) -> None:
    """Do a job's work.

    A job that cannot run, or whose every seed diverges, ends a single run; a sweep says so once,
    goes on with the other jobs and ends with the exit status of the worst.

    Args:
        work: the job, or what became of it as an exception it raises.
        folder: the job's, named where the file system fails.
        console: where a sweep says it.
        in_sweep: whether other jobs follow.
        on_failure: told why a job of a sweep could not run.

    Raises:
        Stopped: after an interrupt, or where this was the only job.
    """
    try:
        with here().together():
            _naming_files(work, folder)
    except (Interrupted, RankFailed, RankLost) as end:
        raise Stopped(end) from None
    except (DivergedError, UserError) as error:
        if not in_sweep:
            raise Stopped(error) from None
        line = " ".join(f"fedclust: {error}".split())
        if line not in not_run():
            console.print(line, style="red", highlight=False, soft_wrap=True, markup=False)
        note_not_run(2 if isinstance(error, UserError) else 1, line)
        if on_failure is not None:
            on_failure(line)


def _naming_files(work: Callable[[], None], folder: Path) -> None:
    try:
        work()
    except OSError as error:
        where = error.filename or folder
        raise RunFolderError(
            f"{where} cannot be written or read: {error.strerror or error}"
        ) from error

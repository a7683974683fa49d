"""What the jobs of a command tell it and each other, where they may run in other processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread

from fedclust.helpers.scratch import scratch

_PATIENCE = 0.5  # seconds between two looks for jobs that have ended


@dataclass(frozen=True)
class Notes:
    """Small files in a folder, which are there while the command runs.

    A job that outlives the command, or cannot see the folder, goes on without notes.

    Attributes:
        folder: the files'.
    """

    folder: Path

    def add(self, name: str, line: str) -> None:
        """Add a line to a file, where the folder is still there."""
        with (
            suppress(FileNotFoundError),
            (self.folder / name).open("a", encoding="utf-8") as file,
        ):
            file.write(line + "\n")

    def lines(self, name: str) -> list[str]:
        """The lines of a file; none where there is no such file."""
        file = self.folder / name
        return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []

    def is_new(self, line: str) -> bool:
        """Whether no job has asked for the same line before, of those that print where this process
        does: a launcher may give every job a file of its own.
        """
        with suppress(OSError):
            place = os.fstat(sys.stderr.fileno())
            line = f"{place.st_dev} {place.st_ino} {line}"
        try:
            (self.folder / f"said-{sha256(line.encode()).hexdigest()}").touch(exist_ok=False)
        except FileExistsError:
            return False
        except FileNotFoundError:  # the command has ended
            pass
        return True

    def add_not_run(self, status: int, line: str) -> None:
        """Remember what a job said before it gave up, and the exit status that it means."""
        self.add("not_run", f"{status} {line}")

    def not_run(self) -> dict[str, int]:
        """What jobs said before they gave up, with the exit status it means."""
        parted = (line.partition(" ") for line in self.lines("not_run"))
        return {text: int(status) for status, _, text in parted}

    def add_ended(self, number: int, why_not: str = "") -> None:
        """Remember that a job has ended.

        Args:
            number: of the job, from 1.
            why_not: the line in which it said why it could not run; "" where it has run.
        """
        why = why_not.removeprefix("fedclust: ")
        self.add("ended", f"job {number} " + (f"could not run: {why}" if why else "has ended"))

    @contextmanager
    def told_as_jobs_end(self, tell: Callable[[str], None]) -> Iterator[None]:
        """While the block runs, `tell` gets a line of every job that ends in another process."""
        over = Event()

        def watch() -> None:
            seen, last = 0, False
            while not last:
                last = over.wait(_PATIENCE)
                ended = self.lines("ended")
                for line in ended[seen:]:
                    tell(line)
                seen = len(ended)

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


@contextmanager
def notes(beside: Path | None = None) -> Iterator[Notes]:
    """While a command runs, a folder for what its jobs note.

    Args:
        beside: the folder to make it in, hidden, where jobs run on other machines; None for the
            system's own for such things.
    """
    with scratch(beside) as folder:
        yield Notes(folder)

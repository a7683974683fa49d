"""A sweep as a whole: what its jobs tell it and each other, and reports, at its end or later."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from typing import Any

from rich.console import Console

from fedclust.helpers.distributed import quiet
from fedclust.helpers.errors import UserError, require
from fedclust.helpers.messages import OUTPUT, OutputError
from fedclust.helpers.prose import say
from fedclust.helpers.scratch import scratch

_PATIENCE = 0.5  # seconds between two looks for jobs that have ended
_JOBS = "reached"  # in the folder of notes: one line of JSON per job and what became of it


@dataclass(frozen=True)
class Notes:
    """Small files in a folder, which are there while the command runs.
    A job that outlives the command, or cannot see the folder, goes on without notes.
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
        """Whether no job that prints where this process does has asked for the line before."""
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
        """Remember that a job, by its number from 1, has ended, or why it could not run."""
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


def is_basic(launcher: Mapping[str, Any]) -> bool:
    """Whether jobs run one after the other in the command's process."""
    return str(launcher["_target_"]).endswith(".BasicLauncher")


@contextmanager
def notes(overrides: Iterable[str] = ()) -> Iterator[Notes]:
    """A folder for what jobs note while a command runs; here for jobs on other machines."""
    elsewhere = any("submitit_slurm" in one for one in overrides)
    with scratch(Path.cwd() if elsewhere else None) as folder:
        yield Notes(folder)


def add_job(notes: Notes, number: int, folder: str, why_not: str = "") -> None:
    """Note that a sweep has reached a job, by its number from 0, or why it could not run."""
    error = why_not.removeprefix("fedclust: ")
    notes.add(_JOBS, json.dumps({"number": number, "folder": folder, "error": error}))


def save_jobs(notes: Notes, folder: Path) -> None:
    """Write all jobs noted so far to the sweep's folder, if there is one."""
    from fedclust.report.sweep import write_sweep

    begun = any(folder.rglob("config.yaml"))  # else the sweep leaves nothing behind
    entries = [json.loads(line) for line in notes.lines(_JOBS)]
    if quiet() or not begun or not entries:
        return
    jobs = {entry["folder"]: (entry["number"], entry["error"]) for entry in entries}
    write_sweep(folder, [(number, where, error) for where, (number, error) in jobs.items()])


def report_sweep(folder: Path, notes: Notes) -> None:
    """Write a sweep's report after its last job and print the summary; failure: exit status 1."""
    if quiet():  # one of several ranks does it
        return
    if not any(folder.rglob("config.yaml")):  # no job could run, and each has said why
        return
    try:
        save_jobs(notes, folder)
        report(folder, Console())
    except Exception as error:  # the numbers are on the disk; what failed is only their report
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        line = " ".join(f"no report of {folder}: {kind}{error}".split())
        if isinstance(error, OutputError):
            if error.unread:  # what was asked for is done
                return
            line = f"{OUTPUT} cannot be written: {error.strerror}; the report is in {folder}/report"
        say(Console(stderr=True), line, style="red")
        notes.add_not_run(1, line)


def is_empty(folder: Path) -> bool:
    """Whether a folder has neither jobs nor searches."""
    from fedclust.report.reading import job_folders

    return not job_folders(folder) and not _searches(folder)


def _searches(folder: Path) -> list[Path]:
    """The searches in a folder; Hydra is imported for it, which a report of jobs does not need."""
    from fedclust.tuning.report import search_folders

    return search_folders(folder)


def report(folder: Path, console: Console, outside: str | None = None) -> None:
    """Make the report of a folder, print its summary and where the page is.

    UserError if the folder holds no run or search, or one that cannot be read.
    """
    # matplotlib and pandas cost a second; a run that never reports does not pay it
    from fedclust.papers.reports import all_contents
    from fedclust.report.reading import job_folders
    from fedclust.report.terminal import print_summary
    from fedclust.report.write import make_report

    if folder.is_dir() and not job_folders(folder) and _searches(folder):
        require(outside is None, "report.outside", outside, "a folder of jobs; here are searches")
        from fedclust.report.terminal import print_table
        from fedclust.tuning.report import make_tuning_report, read_searches, tuning_table

        page = make_tuning_report(folder)
        print_table(tuning_table(read_searches(folder)), console)
        say(console, f"report: {page}")
        return
    contents = all_contents(folder, outside)
    page = make_report(folder, contents)
    print_summary(contents, console)
    say(console, f"report: {page}")

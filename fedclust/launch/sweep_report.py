"""The jobs that a sweep has had, and reports: of a sweep at its end, of any folder on demand."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from fedclust.helpers.distributed import quiet
from fedclust.helpers.errors import UserError, require
from fedclust.helpers.messages import OUTPUT
from fedclust.helpers.prose import say
from fedclust.launch.notes import Notes

_JOBS = "reached"  # in the folder of notes: one line of JSON per job and what became of it


def add_job(notes: Notes, number: int, folder: str, why_not: str = "") -> None:
    """Note that a sweep has reached a job, or why the job could not run.

    Args:
        notes: the sweep's.
        number: of the job, from 0.
        folder: the job's, below the sweep's.
        why_not: the line in which it said why it could not run.
    """
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
    """Write the report of a sweep when its last job has ended, and print the summary.

    A report that cannot be made is told, and the command ends with exit status 1.
    """
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
        if isinstance(error, OSError) and error.filename == OUTPUT:
            line = f"{OUTPUT} cannot be written: {error.strerror}; the report is in {folder}/report"
        say(Console(stderr=True), line, style="red")
        notes.add_not_run(1, line)


def searches(folder: Path) -> list[Path]:
    """The searches in a folder; Hydra is imported for it, which a report of jobs does not need."""
    from fedclust.tuning.report import search_folders

    return search_folders(folder)


def report(folder: Path, console: Console, outside: str | None = None) -> None:
    """Make the report of a folder, print its summary and where the page is.

    Args:
        folder: of jobs, or of searches alone.
        console: where to print.
        outside: see `fedclust.report.write.all_contents`.

    Raises:
        UserError: if the folder holds no run or search, or one that cannot be read.
    """
    # matplotlib and pandas cost a second; a run that never reports does not pay it
    from fedclust.papers.reports import all_contents
    from fedclust.report.reading import job_folders
    from fedclust.report.terminal import print_summary
    from fedclust.report.write import make_report

    if folder.is_dir() and not job_folders(folder) and searches(folder):
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

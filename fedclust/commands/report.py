"""`fedclust report`: tables and figures again, from the files alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedclust.helpers.errors import ConfigError, RunFolderError, UserError


def main(arguments: Sequence[str]) -> None:
    """Make the report of every folder named; one that fails is said, and the others are made.

    Raises:
        UserError: if no folder is named, or one holds no run; nothing has been made then.
    """
    from fedclust.report.reading import job_folders

    if not arguments:
        raise ConfigError("fedclust report needs a folder, such as outputs/quickstart")
    folders = list(map(Path, arguments))
    empty = [str(one) for one in folders if not job_folders(one) and not _searches(one)]
    if empty and len(arguments) > 1:
        raise RunFolderError(f"no job, sweep or search is in {', '.join(empty)}; nothing was made")
    console = Console()
    status = 0
    for argument in arguments:
        try:
            report(Path(argument), console)
        except UserError as error:
            if len(arguments) == 1:
                raise
            status = max(status, error.exit_status)
            _say(str(error))
        except OSError as error:
            status = max(status, 1)
            _say(f"no report of {argument}: {error.filename or ''}: {error.strerror or error}")
    if status:
        sys.exit(status)


def _searches(folder: Path) -> list[Path]:
    """The searches in a folder; Hydra is imported for it, which a report of jobs does not need."""
    from fedclust.tuning.report import search_folders

    return search_folders(folder)


def _say(message: str) -> None:
    print(f"fedclust: {' '.join(message.split())}", file=sys.stderr, flush=True)


def report(folder: Path, console: Console) -> None:
    """Make the report of a folder, print its summary and where the page is.

    Args:
        folder: of jobs, or of searches alone.
        console: where to print.

    Raises:
        UserError: if the folder holds no run or search, or one that cannot be read.
    """
    # matplotlib and pandas cost a second; a run that never reports does not pay it
    from fedclust.papers.reports import all_contents
    from fedclust.report.reading import job_folders
    from fedclust.report.terminal import print_summary
    from fedclust.report.write import make_report

    if folder.is_dir() and not job_folders(folder) and _searches(folder):
        from fedclust.report.terminal import print_table
        from fedclust.tuning.report import make_tuning_report, read_searches, tuning_table

        page = make_tuning_report(folder)
        print_table(tuning_table(read_searches(folder)), console)
        console.print(f"report: {page}", highlight=False, soft_wrap=True)
        return
    contents = all_contents(folder)
    page = make_report(folder, contents)
    print_summary(contents, console)
    console.print(f"report: {page}", highlight=False, soft_wrap=True)

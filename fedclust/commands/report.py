"""`fedclust report`: tables and figures again, from the files alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedclust.helpers.errors import ConfigError, RunFolderError, UserError, require
from fedclust.helpers.messages import OutputError
from fedclust.helpers.prose import complain, say
from fedclust.launch.sweep import is_empty, report

_OUTSIDE = "report.outside"


def command(arguments: Sequence[str]) -> None:
    """Make the report of every folder named; one that fails is said, and the others are made.

    `report.outside=FILE` beside one folder brings in what another program measured.

    Raises:
        UserError: if no folder is named, or one holds no run; nothing has been made then.
    """
    arguments, outside = _split(arguments)
    if not arguments:
        raise ConfigError("fedclust report needs a folder, such as outputs/quickstart")
    one = f"a file for one folder, not {len(arguments)}"
    require(outside is None or len(arguments) == 1, _OUTSIDE, outside, one)
    folders = list(map(Path, arguments))
    empty = [str(one) for one in folders if is_empty(one)]
    if empty and len(arguments) > 1:
        raise RunFolderError(f"no job, sweep or search is in {', '.join(empty)}; nothing was made")
    console = Console()
    status = 0
    for argument in arguments:
        page = Path(argument, "advice", "index.html")
        if page.is_file():  # whose jobs are steps of one answer
            say(console, f"{page} is what `fedclust advise` has found")
            continue
        try:
            report(Path(argument), console, outside)
        except UserError as error:
            if len(arguments) == 1:
                raise
            status = max(status, error.exit_status)
            complain(" ".join(str(error).split()))
        except OutputError:
            raise
        except OSError as error:
            status = max(status, 1)
            complain(f"no report of {argument}: {error.filename or ''}: {error.strerror or error}")
    if status:
        sys.exit(status)


def _split(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """The folders, and the value of `report.outside` where it is given."""
    folders, outside = list[str](), None
    for argument in arguments:
        key, equals, value = argument.lstrip("+").partition("=")
        if not (equals and key.startswith("report.")) or Path(argument).is_dir():
            folders.append(argument)
            continue
        require(key == _OUTSIDE, key, value, f"{_OUTSIDE} is the one key of fedclust report")
        require(bool(value), key, value, "a CSV file")
        outside = value
    return folders, outside

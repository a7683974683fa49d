"""`fedclust report`: tables and figures again, from the files alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedclust.errors import ConfigError
from fedclust.report import all_contents, make_report, print_summary


def main(arguments: Sequence[str]) -> None:
    """Make the report of every folder named.

    Raises:
        UserError: if no folder is named or one holds no run.
    """
    if not arguments:
        raise ConfigError("fedclust report needs a folder, such as outputs/quickstart")
    console = Console()
    for argument in arguments:
        said = all_contents(Path(argument))
        made = make_report(Path(argument), said)
        print_summary(Path(argument), console, said)
        console.print(f"report: {made}", highlight=False, soft_wrap=True)

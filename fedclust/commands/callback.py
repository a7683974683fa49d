"""The report at the end of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console

from fedclust.distributed import quiet
from fedclust.errors import RunFolderError


class ReportAfterSweep(Callback):
    """Writes the report of a sweep when its last job has ended, and prints the summary."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002 - Hydra's signature
        """See `fedclust.report.make_report` and `print_summary`."""
        if quiet():  # one of several ranks does it
            return
        # matplotlib and pandas cost a second; a run that never reports does not pay it
        from fedclust.report.terminal import print_summary
        from fedclust.report.write import all_contents, make_report

        folder = Path(config.hydra.sweep.dir)
        console = Console()
        if not folder.is_dir():  # no job could run, and each has said why
            return
        try:
            said = all_contents(folder)
            page = make_report(folder, said)
        except RunFolderError as error:
            console.print(f"no report: {error}", highlight=False, soft_wrap=True, markup=False)
            return
        print_summary(folder, console, said)
        console.print(f"report: {page}", highlight=False, soft_wrap=True)

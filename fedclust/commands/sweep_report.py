"""What a sweep remembers of its jobs, and its report at the end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console

from fedclust.commands.report import report
from fedclust.commands.sweep import note, note_not_run, noted
from fedclust.helpers.distributed import quiet
from fedclust.helpers.errors import UserError

_JOBS = "reached"  # in the folder of notes: one line of JSON per job and what became of it


def begin_job() -> None:
    """Note that the sweep has reached a job; called in the process that runs it."""
    config = HydraConfig.get()
    where = os.path.relpath(config.runtime.output_dir, config.sweep.dir)
    _append(config.job.num, where, "")


def fail_job(why: str) -> None:
    """Note why the job begun last in this process could not run."""
    config = HydraConfig.get()
    where = os.path.relpath(config.runtime.output_dir, config.sweep.dir)
    _append(config.job.num, where, why.removeprefix("fedclust: "))
    save_jobs(Path(config.sweep.dir))


def save_jobs(folder: Path) -> None:
    """Write all jobs noted so far to the sweep's folder, if there is one."""
    from fedclust.report.sweep import write_sweep

    file = noted(_JOBS)
    begun = any(folder.rglob("config.yaml"))  # else the sweep leaves nothing behind
    if quiet() or not begun or not file.is_file():
        return
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    jobs = {entry["folder"]: (entry["number"], entry["error"]) for entry in entries}
    write_sweep(folder, [(number, where, error) for where, (number, error) in jobs.items()])


def _append(number: int, folder: str, error: str) -> None:
    note(_JOBS, json.dumps({"number": number, "folder": folder, "error": error}))


class ReportAfterSweep(Callback):
    """Writes the report of a sweep when its last job has ended, and prints the summary."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002 - Hydra's signature
        """See `fedclust.report.make_report` and `print_summary`.

        A report that cannot be made is said, and the command ends with exit status 1.
        """
        if quiet():  # one of several ranks does it
            return
        folder = Path(config.hydra.sweep.dir)
        console = Console()
        if not any(folder.rglob("config.yaml")):  # no job could run, and each has said why
            return
        try:
            save_jobs(folder)
            report(folder, console)
        except Exception as error:  # the numbers are on the disk; what failed is only their report
            kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            line = " ".join(f"no report of {folder}: {kind}{error}".split())
            Console(stderr=True).print(
                line, style="red", highlight=False, soft_wrap=True, markup=False
            )
            note_not_run(1, line)

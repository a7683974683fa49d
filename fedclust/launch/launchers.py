"""Hydra's launchers: how their jobs end with the sweep, and what their errors mean."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from shutil import which
from signal import SIGKILL
from threading import Thread
from threading import enumerate as enumerate_threads
from time import sleep
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from fedclust.helpers.distributed import quiet
from fedclust.helpers.errors import ConfigError, JobLost, UserError, counted
from fedclust.helpers.prose import say
from fedclust.launch.notes import Notes
from fedclust.runtime.signals import heard

_LOSE_PROCESSES = ("joblib", "submitit")  # whose errors mean that a process was lost
_PATIENCE = 0.5  # seconds between two looks for the sweep's process


def is_basic(launcher: Mapping[str, Any]) -> bool:
    """Whether jobs run one after the other in this process.

    Args:
        launcher: hydra.launcher, as for all functions here.
    """
    return str(launcher["_target_"]).endswith(".BasicLauncher")


def told_elsewhere(
    launcher: Mapping[str, Any], results: Path, notes: Notes, num_jobs: int | None
) -> AbstractContextManager[None]:
    """Where a launcher's jobs print into files, say which files, and what becomes of each job.

    Args:
        launcher: its part of the config.
        results: the sweep's folder.
        notes: the sweep's.
        num_jobs: None where that is not known.
    """
    no_slurm = "Slurm" in str(launcher["_target_"]) and which("srun") is None  # submitit refuses it
    if "submitit_folder" not in launcher or no_slurm:
        return nullcontext()
    console = Console(stderr=True, quiet=quiet())
    tell = partial(say, console)
    begun = "the jobs are started" if num_jobs is None else f"{counted(num_jobs, 'job')} started"
    tell(f"{begun}; what they print is in {results / '.submitit'}")
    return notes.told_as_jobs_end(tell)


@contextmanager
def explained(launcher: Mapping[str, Any]) -> Iterator[None]:
    """While a launcher runs jobs, its errors say what has happened.

    Raises:
        ConfigError: where the launcher cannot start jobs.
        JobLost: where it has lost a process that ran one; what a job itself meets is told by it.
        KeyboardInterrupt: after Ctrl-C, also where the launcher tells of the jobs that it ended.
    """
    try:
        with heard() as came:
            yield
    except (HydraException, OmegaConfBaseException, UserError, OSError):
        raise
    except Exception as error:
        if is_basic(launcher):
            raise
        if came:
            raise KeyboardInterrupt from error
        if isinstance(error, RuntimeError) and type(error).__module__.startswith(_LOSE_PROCESSES):
            raise JobLost(
                "a job of the sweep was lost: its process was killed, or ran out of memory or "
                "time; the same command runs what is left"
            ) from error
        name = str(launcher["_target_"]).rpartition(".")[2]
        words = " ".join(str(error).split())
        raise ConfigError(f"hydra/launcher: {name} cannot run the jobs: {words}") from error


def end_with_sweep(process: int) -> None:
    """In a process that the sweep's has started: be killed when that one is gone.

    A worker of joblib looks for it between two jobs only. A job of submitit, whose process has
    another parent, outlives the sweep.

    Args:
        process: the sweep's.
    """
    name = "fedclust-end-with-sweep"
    if process != os.getppid() or any(thread.name == name for thread in enumerate_threads()):
        return

    def watch() -> None:
        while process == os.getppid():
            sleep(_PATIENCE)
        os.kill(os.getpid(), SIGKILL)

    Thread(target=watch, name=name, daemon=True).start()

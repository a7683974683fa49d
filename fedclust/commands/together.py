"""`lockstep=all`: the jobs of a sweep that share data and model, computed together.

Hydra composes the jobs of a sweep one after the other. With `lockstep=all` each is only noted then;
once all are known, those with the same federation, model and engine run as arms of one lockstep.
Every arm has the files it would have by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console

from fedclust.commands.failures import Stopped, attempt
from fedclust.config.build import Job, build
from fedclust.distributed import here, quiet
from fedclust.errors import UserError, require
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Aside, Progress, Shown
from fedclust.runtime.run import run_together

# what jobs in one lockstep have in common: examples, clients, model, and how it is computed
_SHARED = (
    "dataset",
    "partition",
    "model",
    "seeds",
    "engine",
    "device",
    "precision",
    "threads",
    "max_rows",
)


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A job that waits for the others of its sweep.

    Attributes:
        config: resolved.
        folder: where its files go.
        title: the job in a few words.
        user_dir: see `fedclust.config.build.build`.
    """

    config: dict[str, Any]
    folder: RunFolder
    title: str
    user_dir: Path | None


_noted: list[Noted] = []


def note(job: Noted, launcher: str) -> None:
    """Let a job wait until all jobs of the sweep are known.

    Args:
        job: the job.
        launcher: the class that starts the jobs; one that starts processes cannot bring them
            together.

    Raises:
        ConfigError: if that is another one than Hydra's own.
    """
    require(
        launcher.endswith(".BasicLauncher"),
        "lockstep",
        "all",
        "seeds with any hydra/launcher but the default",
    )
    _noted.append(job)


def by_federation(jobs: Sequence[Noted]) -> list[list[Noted]]:
    """The jobs in groups that can run in one lockstep, in order."""
    groups: dict[str, list[Noted]] = {}
    for job in jobs:
        shared = json.dumps({key: job.config[key] for key in _SHARED}, sort_keys=True)
        groups.setdefault(shared, []).append(job)
    return list(groups.values())


class RunTogether(Callback):
    """Runs the noted jobs at the end of a sweep; a sweep without `lockstep=all` has none."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:  # noqa: ARG002 - Hydra's signature
        """See the module."""
        console = Console(stderr=True, quiet=quiet())
        waiting = list(_noted)
        _noted.clear()
        for group in by_federation(waiting):
            try:
                _run(group, console)
            except Exception as error:  # Hydra would make a warning of it
                raise Stopped(error) from error


def _run(group: Sequence[Noted], console: Console) -> None:
    """Run jobs with a common federation, and tell which could not."""
    arms: list[tuple[Noted, Job]] = []
    outcomes: list[tuple[Noted, Exception | None]] = []
    for noted in group:
        try:
            with here().together():
                job = build(noted.config, noted.user_dir, like=arms[0][1] if arms else None)
            arms.append((noted, job))
        except (UserError, OSError) as error:
            outcomes.append((noted, error))
    if arms:
        with here().together():
            ran = run_together(
                [(job, noted.folder, _progress(noted, arms, console)) for noted, job in arms]
            )
        outcomes += zip((noted for noted, _ in arms), ran, strict=True)
    for noted, outcome in outcomes:
        if outcome is not None:
            attempt(partial(_raise, outcome), noted.folder.path, console, in_sweep=True)


def _progress(noted: Noted, arms: Sequence[tuple[Noted, Job]], console: Console) -> Progress:
    """One line for all arms: that of the one with the most rounds."""
    if not noted.config["progress"]:
        return Aside(noted.title, console)
    longest = max((other for other, _ in arms), key=lambda other: int(other.config["rounds"]))
    if noted is not longest:
        return Aside(noted.title, console)
    more = f" and {len(arms) - 1} more in lockstep" if len(arms) > 1 else ""
    return Shown(noted.title + more, console)


def _raise(error: Exception) -> None:
    raise error

"""The small jobs that faults happen to, what they leave, and how it is judged."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from faults.case import Ended, forked
from fedclust.config import schema
from fedclust.config.build import build
from fedclust.config.job import Job
from fedclust.config.tree import CONF
from fedclust.helpers.errors import Interrupted, UserError
from fedclust.helpers.memory import short_of_memory
from fedclust.launch.compose import register
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

SMALL = (
    "partition=class_subsets",
    "partition.num_clients=8",
    "partition.examples_per_client=24",
    "participation=0.5",
    "model=linear",
    "solver.epochs=1",
    "seeds=2",
    "rounds=4",
    "threads=1",
    "device=cpu",
    "checkpoint_seconds=0",
)
JOBS = {
    "static": ("algorithm=ifca",),
    "clustered once": ("algorithm=lcfl", "rounds=7"),  # after five
    "shifting": ("algorithm=ifca", "scenario=swap_all", "scenario.probability=0.5"),
    "hostile": ("algorithm=ifca", "server=yogi", "aggregation=trimmed_mean", "attack=alie"),
    "arriving": ("algorithm=flexcfl", "num_clusters=3", "scenario=newcomers"),
}
CHEAP = ("static", "shifting")


class Listening(Silent):
    """Remembers warnings, and does something when a round is complete."""

    def __init__(self, after: Callable[[int], None] | None = None) -> None:
        self.warnings: list[str] = []
        self._after = after

    def round(self, t: int, values: Mapping[str, float]) -> None:  # noqa: ARG002
        """See `Progress.round`."""
        if self._after is not None:
            self._after(t)

    def warn(self, message: str) -> None:
        """See `Progress.warn`."""
        self.warnings.append(message)


def composed(*overrides: str) -> Mapping[str, Any]:
    """The resolved config of a small job."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = schema.resolve(compose("config", overrides=[*SMALL, *overrides]), {})
    return {**config, "seeds": schema.seed_list(config["seeds"])}


@cache
def config_of(name: str) -> Mapping[str, Any]:
    """The resolved config of one of `JOBS`."""
    return composed(*JOBS[name])


@cache
def job_of(name: str) -> Job:
    """The job, built once; forked processes share it."""
    return build(config_of(name))


def played(
    make: Callable[[], Job],
    folder: RunFolder,
    after: Callable[[int], None] | None = None,
) -> Ended:
    """Start a job, or continue it, in this process.

    Args:
        make: the job.
        folder: its folder.
        after: called after every round.
    """
    progress = Listening(after)
    try:
        with short_of_memory("the job was made"):  # as the command line does
            run(make(), folder, progress)
    except (UserError, OSError) as error:
        return Ended("refused", str(error), tuple(progress.warnings))
    except Interrupted as error:
        return Ended("interrupted", str(error), tuple(progress.warnings))
    return Ended("done", "", tuple(progress.warnings))


def play(name: str, folder: Path, after: Callable[[int], None] | None = None) -> Ended:
    """Start one of `JOBS`, or continue it, in this process."""
    return played(partial(job_of, name), RunFolder(folder, config_of(name)), after)


def die() -> None:
    """The end of this process, at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(last: int) -> Callable[[int], None]:
    """What kills this process when a round is complete."""
    return lambda t: die() if t == last else None


def signature(folder: Path, *, states: bool = True) -> str:
    """Digest of every number that a job leaves, the seconds apart; of its results alone without
    `states`.
    """
    sha = hashlib.sha256()
    lines = (folder / "rounds.csv").read_bytes().splitlines()
    sha.update(b"\n".join(line for line in lines if b",seconds," not in line))
    sha.update((folder / "clients.parquet").read_bytes())
    lines = (folder / "summary.csv").read_bytes().splitlines()
    sha.update(b"\n".join(line for line in lines if not line.startswith(b"seconds,")))
    for file in sorted((folder / "arrays").rglob("*.npy")):
        sha.update(file.read_bytes())
    if not states:
        return sha.hexdigest()
    root = folder / "checkpoints"
    newest = json.loads((root / "latest.json").read_text())["round"]
    for file in sorted((root / f"round={newest}").glob("*.pt")):
        content = torch.load(file, weights_only=True)
        for key, value in sorted(content["state"].items()):
            sha.update(key.encode())
            sha.update(value.numpy().tobytes() if isinstance(value, torch.Tensor) else b"-")
    return sha.hexdigest()


@cache
def finished(name: str) -> Path:
    """A finished job, to copy."""
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-")) / "job"
    ended = forked(partial(play, name, folder))
    assert ended.kind == "done", ended
    return folder


@cache
def killed(name: str) -> Path:
    """A job that was killed in its last round, to copy."""
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-")) / "job"
    forked(partial(play, name, folder, die_after(config_of(name)["rounds"] - 1)))
    return folder


@cache
def expected(name: str) -> str:
    """The signature of a job that nothing happens to."""
    return signature(finished(name))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that a refusal must leave as it is."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("versions.json", ".lock")
    }


def judged(name: str, folder: Path, *, may_refuse: bool) -> tuple[str, str]:
    """What becomes of one of `JOBS` that is started again."""
    return judge(partial(play, name, folder), folder, expected(name), may_refuse=may_refuse)


def judge(
    again: Callable[[], Ended], folder: Path, whole: str, *, may_refuse: bool
) -> tuple[str, str]:
    """What becomes of a job that is started again.

    Args:
        again: starts it.
        folder: its folder.
        whole: the signature of an undisturbed one.
        may_refuse: whether a refusal in one line that changes nothing is fine.
    """
    before = contents(folder)
    ended = forked(again)
    if ended.kind == "done":
        return ("survived" if signature(folder) == whole else "wrong"), "; ".join(ended.warned)
    if ended.kind == "refused" and may_refuse and "\n" not in ended.said:
        kept = all(contents(folder).get(path) == content for path, content in before.items())
        return ("refused" if kept else "crashed"), ended.said
    return "crashed", f"{ended.kind}: {ended.said[-500:]}"

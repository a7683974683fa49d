"""A sweep while it runs: how many jobs it has, what they took, and what there was before.

The jobs of a sweep may run in other processes, which a launcher starts. What they tell each other
stands in a folder of small files, named by an environment variable that they inherit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from signal import SIGKILL
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from time import sleep
from typing import Any

from fedclust.helpers.scratch import scratch

NOTES = "FEDCLUST_SWEEP"  # the variable that names the folder
_PATIENCE = 0.5  # seconds between two looks for jobs that have ended


@contextmanager
def notes(beside: Path | None = None) -> Iterator[Path]:
    """While a command runs, a folder for what its jobs note.

    A job that outlives the command, or cannot see the folder, goes on without notes.

    Args:
        beside: the folder to make it in, hidden, where jobs run on other machines; None for the
            system's own for such things.
    """
    with scratch(beside) as folder:
        for name in ("not_run", "seconds"):
            (folder / name).touch()
        (folder / "process").write_text(str(os.getpid()))
        os.environ[NOTES] = str(folder)
        yield folder


def num_jobs(params: Mapping[str, Any], overrides: Sequence[str] = ()) -> int:
    """Jobs of a sweep: the product of the values per key, 1 without any.

    Args:
        params: `hydra.sweeper.params` of an experiment.
        overrides: as typed; they take the place of the experiment's.
    """
    from fedclust.config.scales import parsed

    given = parsed((*(f"{k}={v}" for k, v in params.items()), *overrides))
    last = {one.get_key_element(): one for one in given}
    return prod(
        sum(1 for _ in one.sweep_iterator()) for one in last.values() if one.is_sweep_override()
    )


def methods(composed: Any, overrides: Sequence[str]) -> list[str]:
    """The methods of a command by name: those of a sweep, also inside a wrapper, or the one."""
    from fedclust.config.scales import parsed

    params = composed.hydra.sweeper.get("params") or {}
    found = {"algorithm": [str(composed.hydra.runtime.choices.algorithm)]}
    for one in parsed((*(f"{k}={v}" for k, v in params.items()), *overrides)):
        if one.key_or_group != "algorithm":
            continue
        key = one.get_key_element()
        several = one.is_sweep_override()
        found[key] = list(one.sweep_string_iterator()) if several else [str(one.value())]
    return [name for names in found.values() for name in names]


def note_jobs(number: int | None) -> None:
    """Remember how many jobs the sweep has, where that is known."""
    if number is not None:
        noted("jobs").write_text(str(number))


def jobs() -> int | None:
    """How many jobs the sweep has; None where that is not known."""
    return int(noted("jobs").read_text(encoding="utf-8")) if noted("jobs").is_file() else None


def note_seconds(value: float) -> None:
    """Remember what a job took from its first round to its last."""
    note("seconds", str(value))


def mean_seconds() -> float | None:
    """What a job of the sweep took on average so far; None before the first has ended."""
    measured = [float(line) for line in lines("seconds")]
    return sum(measured) / len(measured) if measured else None


def note_not_run(status: int, line: str) -> None:
    """Remember what a job said before it gave up, and the exit status that it means."""
    note("not_run", f"{status} {line}")


def not_run() -> dict[str, int]:
    """What jobs of this sweep said before they gave up, with the exit status it means."""
    noted_lines = (line.partition(" ") for line in lines("not_run"))
    return {text: int(status) for status, _, text in noted_lines}


def note_ended(number: int, why_not: str = "") -> None:
    """Remember that a job has ended.

    Args:
        number: of the job, from 1.
        why_not: the line in which it said why it could not run; "" where it has run.
    """
    why = why_not.removeprefix("fedclust: ")
    note("ended", f"job {number} " + (f"could not run: {why}" if why else "has ended"))


@contextmanager
def told_as_jobs_end(tell: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, `tell` gets a line of every job that ends in another process."""
    over = Event()

    def watch() -> None:
        told = 0
        while True:
            last = over.wait(_PATIENCE)
            ended = lines("ended")
            for line in ended[told:]:
                tell(line)
            told = len(ended)
            if last:
                return

    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def end_with_sweep() -> None:
    """In a process that the sweep's has started: be killed when that one is gone.

    A worker of joblib looks for it between two jobs only. A job of submitit, whose process has
    another parent, outlives the sweep.
    """
    sweeps, name = "".join(lines("process")), "fedclust-end-with-sweep"
    watched = any(thread.name == name for thread in enumerate_threads())
    if sweeps != str(os.getppid()) or watched:
        return

    def watch() -> None:
        while sweeps == str(os.getppid()):
            sleep(_PATIENCE)
        os.kill(os.getpid(), SIGKILL)

    Thread(target=watch, name=name, daemon=True).start()


def note_folders(results: Path) -> None:
    """Remember which folders there are, before Hydra makes those of the results."""
    results = results.absolute()
    there = [folder for folder in (results, *results.parents) if folder.is_dir()]
    below = list(results.iterdir()) if results.is_dir() else []
    known = {"results": str(results), "there": [str(path) for path in (*there, *below)]}
    noted("folders").write_text(json.dumps(known), encoding="utf-8")


def remove_unused(folder: Path) -> None:
    """Remove a folder, and those above it, where Hydra has made them and nobody filled them.

    Hydra makes folders, and a sweep's multirun.yaml, before a job has been checked; sweep.json
    says of a sweep why its jobs were refused.
    """
    if not noted("folders").is_file():
        return
    known = json.loads(noted("folders").read_text(encoding="utf-8"))
    folder = folder.absolute()
    if not folder.is_relative_to(known["results"]):
        return
    there = set(known["there"])
    while folder.is_relative_to(known["results"]) or str(folder) not in there:
        if folder.is_dir():
            made = {path.name for path in folder.iterdir() if str(path) not in there}
            if made - {"multirun.yaml", "sweep.json"}:
                return
            for name in made:
                (folder / name).unlink()
            if str(folder) in there or any(folder.iterdir()):
                return
            folder.rmdir()
        folder = folder.parent


def note(name: str, line: str) -> None:
    """Add a line to a file of the folder of notes, where that is still there."""
    with suppress(FileNotFoundError), noted(name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def lines(name: str) -> list[str]:
    """The lines of a file of the folder of notes."""
    return noted(name).read_text(encoding="utf-8").splitlines() if noted(name).is_file() else []


def noted(name: str) -> Path:
    """The file of that name in the folder of notes."""
    return Path(os.environ[NOTES], name)

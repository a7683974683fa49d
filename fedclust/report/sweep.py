"""Which jobs the newest sweep of a folder was made of: unnamed sweeps share a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedclust.helpers.files import atomic_write, harmless

UNNAMED = "default"  # the name of a run that was given none
_FILE = "sweep.json"


@dataclass(frozen=True)
class Sweep:
    """The newest sweep of a folder: every job's folder in order, and why it could not run or ""."""

    folder: Path
    jobs: Mapping[Path, str]


def write_sweep(folder: Path, jobs: Sequence[tuple[int, str, str]]) -> None:
    """Write the newest sweep: of each job its number, folder, and why it could not run or ""."""
    entries = [{"number": n, "folder": name, "error": error} for n, name, error in sorted(jobs)]
    atomic_write(folder / _FILE, json.dumps({"jobs": entries}, indent=1) + "\n")


def _below(folder: Path, name: object) -> Path:
    """A folder of a job; a ValueError for a name that no file system has."""
    if "\0" in str(name):
        raise ValueError(name)
    return folder / str(name)


def read_sweep(folder: Path) -> Sweep | None:
    """The newest sweep of a folder, or None where it is not known."""
    try:
        entries = json.loads(harmless(folder / _FILE).read_text(encoding="utf-8"))["jobs"]
        jobs = {_below(folder, entry["folder"]): str(entry["error"]) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Sweep(folder, jobs)

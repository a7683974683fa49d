"""File systems that lack a call: a preloaded library makes it fail below a folder.

Commands run on such a file system from the beginning, or are killed and continued where one half
of the job meets such a file system and the other a usual one.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from shutil import which

from faults.case import Case
from faults.jobs import SMALL, contents, signature
from fedclust.helpers.files import is_litter

_SOURCE = Path(__file__).with_name("lacking.c")
_LACKS = {
    "chmod": (errno.EPERM, errno.ENOTSUP, errno.ENOSYS),
    "fsync of a folder": (errno.EINVAL, errno.ENOTSUP),
    "fsync": (errno.ENOSYS, errno.EINVAL),
    "flock": (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP),
    "rename": (errno.EPERM, errno.EIO),  # without it nothing is safe: one line
}
_JOB = ("algorithm=ifca", "progress=false", "hydra.run.dir=job")
_UNSEEDED = [one for one in SMALL if not one.startswith("seeds=")]
_COMMANDS = {
    "run": ("run", *SMALL, *_JOB),
    "sweep": ("run", "-m", *SMALL, "algorithm=fedavg,ifca", "progress=false", "name=s"),
    "tune": (
        *("tune", *_UNSEEDED, "algorithm=fedprox", "progress=false"),
        *("trials=2", "tuning_seeds=[7]"),
    ),
    "example": ("example", "own_algorithm"),
}


@cache
def library() -> Path | None:
    """The library, compiled once; None without a compiler."""
    compiler = which("gcc") or which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-"))
    made = folder / "lacking.so"
    options = ("-shared", "-fPIC", "-O1", "-o", str(made), str(_SOURCE), "-ldl")
    subprocess.run([compiler, *options], capture_output=True, check=True)
    return made


def _started(name: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command with the library in place, which does nothing without a variable."""
    command = [sys.executable, "-m", "fedclust", *_COMMANDS[name]]
    whole = {**os.environ, "LD_PRELOAD": str(library()), **env}
    return subprocess.run(
        command, cwd=folder, env=whole, capture_output=True, text=True, check=False
    )


def _poor(folder: Path, call: str, number: int) -> dict[str, str]:
    """The variables by which a folder is on a file system without a call."""
    below = str(folder.resolve())
    return {"LACKING_BELOW": below, "LACKING_CALL": call, "LACKING_ERROR": str(number)}


def _signatures(folder: Path, *, states: bool) -> list[str]:
    """Those of all jobs below a folder."""
    files = sorted(folder.rglob("rounds.csv"))
    return [signature(file.parent, states=states) for file in files]


def _kept(folder: Path) -> dict[str, bytes]:
    """What a refusal must leave as it is: all but halves of files that the kill has left."""
    found = contents(folder)
    return {path: found[path] for path in found if not is_litter(Path(path))}


@cache
def _whole(name: str, *, states: bool) -> list[str]:
    folder = Path(tempfile.mkdtemp(prefix="fedclust-faults-"))
    done = _started(name, folder, {})
    assert done.returncode == 0, done.stderr
    return _signatures(folder, states=states)


def _ended(name: str, call: str, done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """How a command ended on a file system without a call, its numbers apart."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("fedclust: ")]
    if done.returncode == 0:
        warned = done.stderr.count("this file system has no locks")
        right = warned == (call == "flock" and name != "example")
        return ("survived", "") if right else ("wrong", f"{warned} warnings")
    if "Traceback" in done.stderr or not lines or call != "rename":
        return "crashed", f"{done.returncode}: {done.stderr[-500:]}"
    return "refused", lines[0]


def lacking(name: str, call: str, number: int, folder: Path) -> tuple[str, str]:
    """Run a command on a file system without a call."""
    end, said = _ended(name, call, _started(name, folder, _poor(folder, call, number)))
    if end != "survived" or name != "run":
        return end, said
    same = _signatures(folder, states=False) == _whole(name, states=False)
    return ("survived" if same else "wrong"), ""


def halves(name: str, call: str, number: int, first: str, folder: Path) -> tuple[str, str]:
    """Kill a command in the middle, and continue it on a file system of the other sort.

    Without `rename` nothing is saved: that half is refused in one line, and the other one computes
    all that is left.

    Args:
        name: of the command.
        call: what one half of it lacks.
        number: of the error.
        first: which half lacks it, "begun" or "continued".
        folder: where the command runs.
    """
    poor = _poor(folder, call, number)
    begun = _started(name, folder, {**(poor if first == "begun" else {}), "KILLED_AT": "3"})
    if begun.returncode == -signal.SIGKILL:
        newest = json.loads(next(folder.rglob("latest.json")).read_text())["round"]
        if newest != 1:
            return "crashed", f"killed with round {newest} as the newest"
    elif first == "continued" or _ended(name, call, begun)[0] != "refused":
        return "crashed", f"not killed: {begun.returncode}: {begun.stderr[-500:]}"
    if first == "continued":
        before = _kept(folder)
        end, said = _ended(name, call, _started(name, folder, poor))
        if end in ("wrong", "crashed"):
            return end, said
        if end == "refused" and _kept(folder) != before:
            return "crashed", f"files have changed: {said}"
    if first == "begun" or call == "rename":
        done = _started(name, folder, {})
        if done.returncode != 0:
            return "crashed", f"{done.returncode}: {done.stderr[-500:]}"
    same = _signatures(folder, states=True) == _whole(name, states=True)
    return ("survived" if same else "wrong"), ""


def cases(quick: bool) -> Iterator[Case]:
    """Every call that may be lacking, of every command, throughout and in half of a job; none
    without a compiler.
    """
    if library() is None:
        return
    for call, numbers in _LACKS.items():
        for number in numbers[: 1 if quick else None]:
            lacked = f"{call} {errno.errorcode[number]}"
            for name in ("run",) if quick else _COMMANDS:
                yield Case(
                    "lacking calls", f"{name} {lacked}", partial(lacking, name, call, number)
                )
            for name in ("run",) if quick else ("run", "sweep"):
                for first in ("begun", "continued"):
                    work = partial(halves, name, call, number, first)
                    yield Case("lacking calls in half a job", f"{name} {first} {lacked}", work)

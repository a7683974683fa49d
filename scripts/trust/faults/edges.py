"""What happens around a job: a second process, signals in a storm, messages nobody can read, odd
names of files, copies that are older in part, files of somebody else.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from faults.case import Case, Command, Ended, called, forked
from faults.data import COMMAND as OF_DATA
from faults.data import arrays, save
from faults.jobs import die_after, expected, judged, play, signature
from faults.machine import COMMAND, as_whole, whole_command
from fedclust.runtime.folder import RunFolder

_FULL = Path("/dev/full")
_BYTES = os.fsdecode(b"f\xff")  # a name that is not UTF-8
_SECOND = "is being written by another process"


def late(name: str, folder: Path) -> tuple[str, str]:
    """A process takes the lock when another has finished the job since it looked."""
    take = RunFolder._take_lock

    def waiting(self: RunFolder) -> None:
        RunFolder._take_lock = take  # type: ignore[method-assign]
        assert forked(partial(play, name, folder / "job")).kind == "done"
        take(self)

    def second() -> Ended:
        RunFolder._take_lock = waiting  # type: ignore[method-assign]
        return play(name, folder / "job")

    ended = forked(second)
    if ended.kind != "done":
        return "crashed", f"{ended.kind}: {ended.said[-500:]}"
    same = signature(folder / "job") == expected(name)
    return ("survived" if same else "wrong"), "; ".join(ended.warned)


def beside(number: int, folder: Path) -> tuple[str, str]:
    """The same command a moment later: it waits for nobody, or finds the job done."""
    rng = random.Random(number)
    first = Command(COMMAND, folder)
    time.sleep(rng.uniform(0, 2))
    second = Command(COMMAND, folder)
    told = [first.wait(), second.wait()]
    bad = [one for one in told if one.status != 0 and _SECOND not in one.line]
    if bad or all(one.status for one in told):
        return "crashed", " | ".join(one.end for one in told)
    same = signature(folder / "job", states=False) == whole_command()
    refused = any(one.line for one in told)
    return ("wrong" if not same else "refused" if refused else "survived"), told[1].line


def put_through(number: int, stream: int) -> None:
    """A standard stream of this process, 1 or 2, goes to a full disk, or to a reader who has
    gone.
    """
    if number == 0:
        target = os.open(_FULL, os.O_WRONLY)
    else:
        reading, target = os.pipe()
        os.close(reading)
    os.dup2(target, stream)
    # what a process begins with knows what kind of file it is
    name, file = ("stdout", "stderr")[stream - 1], os.fdopen(stream, "w", closefd=False)
    setattr(sys, name, file)
    setattr(sys, f"__{name}__", file)


def unread(number: int, folder: Path) -> tuple[str, str]:
    """The numbers that a command prints go to a full disk, or to a reader who has gone."""
    ended = called(["list"], folder, first=partial(put_through, number, 1))
    line = "fedclust: standard output cannot be written or read: No space left on device\n"
    fits = (1, line) if number == 0 else (128 + signal.SIGPIPE, "")
    return ("refused" if (ended.status, ended.err) == fits else "crashed"), ended.end


def unheard(number: int, folder: Path) -> tuple[str, str]:
    """Messages go to a full disk, or to a reader who has gone."""
    ended = called([*COMMAND, "progress=true"], folder, first=partial(put_through, number, 2))
    return as_whole(ended, folder)


def storm(number: int, folder: Path) -> tuple[str, str]:
    """Up to six signals in a row, then the same command."""
    rng = random.Random(number)
    first = Command(COMMAND, folder, first=lambda: print("ready", flush=True))
    time.sleep(rng.uniform(0.5, 2))  # once it watches for signals
    for _ in range(rng.randint(1, 6)):
        with suppress(ProcessLookupError):
            os.kill(first.pid, rng.choice((signal.SIGINT, signal.SIGTERM)))
        time.sleep(rng.choice((0, 1e-4, 1e-2)))
    told = first.wait()
    ends = (0, 130, 143, -signal.SIGINT, -signal.SIGTERM)
    if told.status not in ends or "Traceback" in told.err:
        return "crashed", told.end
    return as_whole(called(COMMAND, folder), folder, told.err[-200:])


def odd_name(where: str, folder: Path) -> tuple[str, str]:
    """Results or data in a folder whose name is not UTF-8."""
    odd = folder / _BYTES
    odd.mkdir()
    if where == "results":
        ended = called(COMMAND, odd)
    else:
        save(odd, arrays())
        given = ("dataset=npz", f'dataset.path="{odd}/mine.npz"', "partition=iid")
        ended = called([*OF_DATA, *given], folder)
    if ended.line:
        return "refused", ended.line
    if where == "results":
        return as_whole(ended, odd)
    return ("crashed" if ended.status else "survived"), ended.end


def old_copy(name: str, results: int, checkpoints: int, folder: Path) -> tuple[str, str]:
    """The results are those after one round, the checkpoints those after another."""
    job = folder / "job"

    def copy(t: int) -> None:
        if t in (results, checkpoints):
            shutil.copytree(job, folder / f"at {t}")

    forked(partial(play, name, job, copy))
    shutil.rmtree(job)
    shutil.copytree(folder / f"at {results}", job)
    shutil.rmtree(job / "checkpoints", ignore_errors=True)  # before the first there are none
    with suppress(FileNotFoundError):
        shutil.copytree(folder / f"at {checkpoints}" / "checkpoints", job / "checkpoints")
    return judged(name, job, may_refuse=False)


def not_ours(name: str, folder: Path) -> tuple[str, str]:
    """Files with names such as temporary ones have, in the folder of a job that was killed."""
    forked(partial(play, name, folder / "job", die_after(1)))
    names = (".thesis.tmp", "arrays/.x.tmp", "checkpoints/x.partial")
    mine = [folder / "job" / name for name in names]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("years of work")
    end, said = judged(name, folder / "job", may_refuse=False)
    kept = all(file.is_file() for file in mine)
    return (end if kept else "wrong"), said


def leftovers(number: int, folder: Path) -> tuple[str, str]:
    """A command is killed; the next one leaves no temporary folder of either."""
    env = {"TMPDIR": str(folder)}

    def first() -> None:
        tempfile.tempdir = str(folder)

    begun = Command(COMMAND, folder, env, first=first)
    time.sleep(random.Random(number).uniform(0.2, 2))
    os.kill(begun.pid, signal.SIGKILL)
    begun.wait()
    again = called(COMMAND, folder, env=env, first=first)
    left = [path.name for path in folder.glob("fedclust-*")]
    return ("crashed" if again.status or left else "survived"), f"{again.status} {left}"


def cases(quick: bool) -> Iterator[Case]:
    """Around a job."""
    whole_command()
    for name in ("static",) if quick else ("static", "shifting", "clustered once"):
        expected(name)
        yield Case("a second process", f"{name} late", partial(late, name))
        yield Case("files of somebody else", name, partial(not_ours, name))
        for results in range(4):
            for checkpoints in range(1, 4):
                if results != checkpoints and (not quick or (results + checkpoints) % 3 == 0):
                    work = partial(old_copy, name, results, checkpoints)
                    yield Case("a copy older in part", f"{name} {results} {checkpoints}", work)
    for number in range(2 if quick else 30):
        yield Case("a second process", f"beside {number}", partial(beside, number))
        yield Case("signals in a storm", f"{number}", partial(storm, number))
    for number in range(1 if quick else 10):
        yield Case("temporary folders", f"{number}", partial(leftovers, number))
    for number, what in enumerate(("a full disk", "a closed pipe")):
        if _FULL.exists() or number:
            yield Case("messages nobody can read", what, partial(unheard, number))
            yield Case("results nobody can read", what, partial(unread, number))
    for where in ("results", "data"):
        yield Case("a name that is not UTF-8", where, partial(odd_name, where))

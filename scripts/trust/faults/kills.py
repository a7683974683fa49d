"""Kills: before every operation on a file, and at random moments."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from faults.case import Case, Ended, forked
from faults.jobs import CHEAP, JOBS, die, judged, play


def counting(folder: Path, limit: int | None) -> Callable[[], int]:
    """Watch the file operations below a folder in this process.

    Args:
        folder: the folder.
        limit: the operation before which the process is killed; None to count only.

    Returns:
        A function that says how many there were.
    """
    seen = [0]
    inside = str(folder)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        named = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
        writes = event == "open" and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if (named or writes) and inside in str(arguments[0]):
            step()

    def step() -> None:
        seen[0] += 1
        if seen[0] == limit:
            die()

    force = os.fsync

    def fsync(descriptor: int) -> None:
        step()
        force(descriptor)

    sys.addaudithook(watch)
    os.fsync = fsync
    return lambda: seen[0]


def watched(name: str, folder: Path, limit: int | None) -> Ended:
    """Play a job under `counting`."""
    count = counting(folder, limit)
    ended = play(name, folder)
    return Ended(ended.kind, str(count()))


@cache
def operations(name: str) -> int:
    """File operations of a whole job."""
    with tempfile.TemporaryDirectory() as folder:
        return int(forked(partial(watched, name, Path(folder, "job"), None)).said)


def kill_before(name: str, number: int, folder: Path) -> tuple[str, str]:
    """Kill a job before a file operation, then start it again."""
    ended = forked(partial(watched, name, folder / "job", number))
    if ended.kind != "killed":
        return "crashed", "the process was not killed"
    return judged(name, folder / "job", may_refuse=False)


def kill_at_random(name: str, number: int, folder: Path) -> tuple[str, str]:
    """Kill a job at up to five random moments, then let it end."""
    rng = random.Random(number)

    def hit(seconds: float) -> Ended:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return play(name, folder / "job")

    for _ in range(rng.randint(1, 5)):
        forked(partial(hit, rng.uniform(0.005, 0.6)))
    return judged(name, folder / "job", may_refuse=False)


def cases(quick: bool) -> Iterator[Case]:
    """Before every file operation, and at random moments."""
    for name in CHEAP if quick else JOBS:
        for number in range(1, operations(name) + 1, 7 if quick else 1):
            work = partial(kill_before, name, number)
            yield Case("kill before an operation", f"{name} {number}", work)
        for number in range(5 if quick else 100):
            work = partial(kill_at_random, name, number)
            yield Case("kill at random", f"{name} {number}", work)

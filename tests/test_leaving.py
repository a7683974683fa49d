"""A process ends without taking itself apart, with the status and the output it would have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import atexit, sys, threading, time
from fedclust.helpers.leaving import left_at_once
class Watched:
    def __del__(self): print("taken apart")
kept = Watched()
{before}
with left_at_once():
    atexit.register(print, "registered")
    print("output", end=" ")
    {inside}
"""


def run_in(inside: str, before: str = "", stdout: int | None = None) -> tuple[int, list[str], str]:
    program = _PROGRAM.format(inside=inside, before=before)
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=stdout or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    return done.returncode, (done.stdout or "").split(), done.stderr


@pytest.mark.parametrize(
    ("inside", "status", "error"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('a word')", 1, "a word\n"),
    ],
)
def test_what_others_registered_is_called_and_nothing_is_freed(
    inside: str, status: int, error: str
) -> None:
    assert run_in(inside) == (status, ["output", "registered"], error)


def test_threads_are_waited_for() -> None:
    later = "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()"
    assert run_in(later) == (0, ["output", "thread", "registered"], "")


@pytest.mark.parametrize(
    ("inside", "before"), [("raise KeyError", ""), ("pass", "sys.modules['coverage'] = sys")]
)
def test_errors_and_measured_programs_end_in_pythons_way(inside: str, before: str) -> None:
    status, printed, error = run_in(inside, before)
    assert (status, printed) == (
        int("KeyError" in inside),
        ["output", "registered", "taken", "apart"],
    )
    assert ("KeyError" in error) is ("KeyError" in inside)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        status, _, error = run_in("pass", stdout=full.fileno())
    assert status == 120
    assert "No space left" in error

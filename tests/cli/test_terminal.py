"""What a terminal of 80 columns shows: no word is cut, and paths are whole."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from fedclust.__main__ import main

JOB = ("algorithm=lcfl", "rounds=1", "partition.num_clients=8", "solver.epochs=1", "model=linear")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def on_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_figures: None
) -> Callable[..., list[str]]:
    """Call the command line on a terminal; the lines that it gets, as they are written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")

    def call(*arguments: str) -> list[str]:
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        parts: list[bytes] = []

        def read() -> None:
            with suppress(OSError):  # nobody writes any more
                while part := os.read(ours, 4096):
                    parts.append(part)

        reader = Thread(target=read)
        reader.start()
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
            for stream in ("stdout", "stderr"):
                patch.setattr(sys, stream, terminal)
            with suppress(SystemExit):
                main(arguments)
        reader.join()
        os.close(ours)
        shown = _CONTROL.sub("", b"".join(parts).decode()).replace("\r\n", "\n")
        return [line.rpartition("\r")[2].rstrip() for line in shown.splitlines()]

    return call


@pytest.mark.full
def test_lines_of_a_job_are_broken_between_words(on_terminal: Callable[..., list[str]]) -> None:
    lines = on_terminal("run", *JOB, "progress=false", "seeds=2")
    options = "model=linear,partition.num_clients=8,rounds=1,seeds=2,solver.epochs=1"
    folder = f"outputs/default/lcfl,{options}"
    assert len(folder) > 80
    assert folder in lines, "on a line of its own, to be pasted"
    others = [line for line in lines if line != folder]
    assert max(map(len, others)) <= 80
    told = " ".join(" ".join(others).split())
    assert (
        "no clusters were formed: clustering begins after 5 rounds of warm-up, and the run has 1;"
        in told
    )
    end = r"is done: test accuracy [\d.]+ ± [\d.]+ %, purity .* \(2 seeds, 1 round\)$"
    assert re.search(end, told), told


def test_lines_of_a_mistake_are_broken_between_words(
    on_terminal: Callable[..., list[str]],
) -> None:
    word = "nothing" * 9
    lines = on_terminal(word)
    assert " ".join(lines).startswith(f"fedclust: fedclust has no command '{word}': it has run, ")
    assert [len(line) <= 80 for line in lines] == [True] * 4

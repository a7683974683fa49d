"""How `benchmarks.peers` and the programs it compares talk to each other; needs NumPy only.

A program is given a folder (`Given`) and plays the same round over and over, always from the same
models and with the same batches. It takes turns with others: after the first round, and whenever a
turn is over, it prints the seconds of the turn's rounds as one line of JSON and waits for a line
with the seconds of its next turn. At the end of its input it writes the averaged models of its last
round and prints what else there is to say.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from benchmarks.against.task import Task

_STATUS = Path("/proc/self/status")


class Given(NamedTuple):
    """What a round is computed from.

    Attributes:
        task: sizes, model and optimizer.
        x: examples [N, *shape] uint8; their inputs are x / 255.
        y: labels [N] int64.
        clients: rows of the examples of every participant, [C, n] int64.
        order: which of its own examples a participant's local steps meet, [C, S, B] int64.
        start: trained parameters of every model [K, P] float32, in PyTorch's order and layout.
    """

    task: Task
    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    clients: NDArray[np.int64]
    order: NDArray[np.int64]
    start: NDArray[np.float32]

    def write(self, folder: Path) -> None:
        """A file for each."""
        (folder / "task.json").write_text(self.task.to_json())
        for name in self._fields[1:]:
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def read(cls, folder: Path) -> Given:
        """What `write` wrote."""
        task = Task.from_json((folder / "task.json").read_text())
        return cls(task, *(np.load(folder / f"{name}.npy") for name in cls._fields[1:]))

    def inputs(self) -> NDArray[np.float32]:
        """All examples as float32 numbers, as every program but fedclust keeps them."""
        return self.x.astype(np.float32) * np.float32(1 / 255)


class Turns:
    """A program's side of the conversation.

    Args:
        heard, told: where lines come from and go to.
    """

    def __init__(self, heard: TextIO = sys.stdin, told: TextIO = sys.stdout) -> None:
        self._heard, self._told = heard, told
        self._left, self._rounds = 0.0, list[float]()

    def note(self, seconds: float) -> bool:
        """A round took so long; whether to play another. Waits between turns."""
        self._rounds.append(seconds)
        self._left -= seconds
        if self._left > 0:
            return True
        self.tell({"rounds": self._rounds})
        self._rounds = []
        line = self._heard.readline()
        if line:
            self._left = float(line)
        return bool(line)

    def tell(self, fields: dict[str, Any]) -> None:
        """One line of JSON."""
        print(json.dumps(fields), file=self._told, flush=True)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A way of training, ready to play.

    Attributes:
        play: one round; returns something of its own.
        averaged: the averaged models [K, P] in what `play` returned, as `Given.start` has them.
        version: of what computes.
        compiling: seconds of the first round that were spent on compiling; 0 where nothing is.
    """

    play: Callable[[], Any]
    averaged: Callable[[Any], NDArray[np.float32]]
    version: str
    compiling: Callable[[], float] = float


def peak_mib() -> float:
    """Highest resident memory of this process so far, MiB; NaN where the system does not tell."""
    if not _STATUS.exists():
        return float("nan")
    line = next(part for part in _STATUS.read_text().splitlines() if part.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10


def serve(program: Program, folder: Path, name: str, turns: Turns | None = None) -> None:
    """Plays until there is no more to read, then leaves the models in the file `name`.npy."""
    turns, go = turns or Turns(), True
    while go:
        began = time.perf_counter()
        result = program.play()
        go = turns.note(time.perf_counter() - began)
    peak = peak_mib()
    np.save(folder / f"{name}.npy", program.averaged(result))
    turns.tell({"peak_mib": peak, "version": program.version, "compiling": program.compiling()})

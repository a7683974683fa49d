"""Two processes that are ranks of one group, to call functions in."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import fedclust.helpers.distributed
from fedclust.helpers.distributed import Group

_SIZE = 2


class Pair:
    """Two ranks that wait for something to do; they find each other through a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("forkserver")  # one import for both
        context.set_forkserver_preload(["torch.distributed", "fedclust.runtime.run", "digits_jobs"])
        self._processes, self._ends = [], []
        for rank in range(_SIZE):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(there, rank, str(folder / "store")), daemon=True
            )
            process.start()
            self._processes.append(process)
            self._ends.append(here)

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What `function(group, *arguments)` returns on each rank; it must be one of a module."""
        for end in self._ends:
            end.send((function, arguments))
        outcomes = []
        for end in self._ends:
            assert end.poll(300), "a rank does not answer"
            outcomes.append(end.recv())
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return outcomes

    def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.join()


def _serve(calls: Connection, rank: int, store: str) -> None:
    torch.set_num_threads(1)
    group = Group(dist.FileStore(store, _SIZE), rank, _SIZE, rank, timeout=240)
    fedclust.helpers.distributed._here = group
    while True:
        try:
            function, arguments = calls.recv()
        except EOFError:
            return
        try:
            calls.send(function(group, *arguments))
        except Exception as error:
            calls.send(AssertionError(f"rank {rank}: {type(error).__name__}: {error}"))

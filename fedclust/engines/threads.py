"""Rows as `loop` computes them, shared out among threads that compute on one processor each.

An operation on one client's batch is short: two processors that share it wait for each other, and
hand over, at its end. Clients of their own they never wait for, and what is not an operation,
PyTorch's bookkeeping, runs side by side, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn

from fedclust.core.calls import Call, PredictCall, on_rows
from fedclust.core.pool import Pool
from fedclust.engines.adopted import adopted
from fedclust.engines.base import Computing, by_rows
from fedclust.engines.loop import LoopEngine
from fedclust.engines.sharded import deal
from fedclust.helpers.meter import Meter, meter
from fedclust.models.foreign import Runnable

R = TypeVar("R")


class ThreadsEngine(Computing[Runnable]):
    """The loop's results to rounding, on a CPU; see `fedclust.verbs.Engine` for the verbs."""

    name = "threads"
    exact = False

    def __init__(self, model: nn.Module, pool: Pool):
        super().__init__(adopted(model, pool), pool)
        self._alone, self._threads = LoopEngine(self.model, pool), torch.get_num_threads()
        # a module of its own for each, which holds the row's parameters and what a pass notes
        self._loops: list[LoopEngine] = []

    def shared(self, call: Call[R]) -> R:
        """What the call asks for, row by row on all threads."""
        rows = [some for some in deal(call.work, self._threads) if len(some)]
        if len(rows) < 2:  # the processors share what there is
            return self._alone.answer(call)
        while len(self._loops) < len(rows):
            self._loops.append(LoopEngine(self.model, self.pool))
            self._loops[-1].meter = _Part()

        def part(loop: LoopEngine, some: Tensor) -> R:
            torch.set_num_threads(1)  # of this thread
            return loop.answer(call.take(some))

        try:
            with _own_threads(), ThreadPoolExecutor(len(rows)) as threads:
                parts = list(threads.map(part, self._loops, rows))
        except Exception:
            # again by itself, since an error names its client and local step
            return self._alone.answer(call)
        back = torch.cat(rows).argsort()
        given: Iterator[tuple[Any, ...]] = zip(*map(_tensors, parts), strict=True)
        return on_rows(lambda _: torch.cat(list(next(given)))[back], parts[0])

    answers: ClassVar = {
        **by_rows(shared, shared, shared, shared),
        PredictCall: shared,
    }


def obstacle_on_threads(model: Runnable, pool: Pool) -> str:
    """Why threads cannot run a model at the same time, or ""."""
    name = type(getattr(model, "module", model)).__name__
    if pool.x.device.type != "cpu":
        return f"a {pool.x.device.type} device runs one operation after the other"
    if model.draws:
        return f"{name} draws random numbers in training from the global generator"
    return ""


class _Part(Meter):
    """How far a thread is: its clients count among all."""

    _one_by_one = Lock()

    def add(self, count: int) -> None:
        """So many more are done."""
        if self.unit == "clients":
            with self._one_by_one:
                meter.add(count)


def _tensors(result: object) -> list[Tensor]:
    """The tensors of a result in the order of `on_rows`."""
    found: list[Tensor] = []
    on_rows(partial(_noted, found), cast(Any, result))
    return found


def _noted(found: list[Tensor], tensor: Tensor) -> Tensor:
    found.append(tensor)
    return tensor


@contextmanager
def _own_threads() -> Iterator[None]:
    """The number of threads of an operation, which threads change for themselves and libraries
    keep for all, put back afterwards.
    """
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)

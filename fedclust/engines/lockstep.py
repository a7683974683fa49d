"""Several seeds in one computation: calls of different seeds that meet are merged into one.

Each seed runs the same plain algorithm code in a greenlet of its own: a function that can pause in
the middle of any call. A seed that asks the engine for something pauses, the next seed runs until
it pauses too, and once all have paused everything that was asked for is computed, rows of all seeds
together. Algorithms do not know. By the engine law a seed's rows do not depend on the company, so
the result is that of separate runs. The same one level up: jobs that run as pieces of another
lockstep hand the calls of their seeds on to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor
from torch.nn.functional import pad

from fedclust.rng import Stream
from fedclust.solver import Solver
from fedclust.types import LocalResult, Shards
from fedclust.verbs import Engine

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


@dataclass
class _Call:
    """A call of one seed; calls of equal `kind` can be merged. `seconds` is its share of the
    time.
    """

    kind: tuple[Any, ...]
    models: Tensor
    label: Tensor | None
    shards: Shards
    slots: Tensor | None = None
    anchor: Tensor | None = None
    result: Any = None
    seconds: float = 0.0


@dataclass
class Turn(Generic[T]):
    """What became of a piece of work.

    Attributes:
        outcome: what it returned, or the exception it raised.
        seconds: time of its own, and of what was computed together its share by rows.
    """

    outcome: T | Exception
    seconds: float


def _together(calls: list[_Call]) -> tuple[Tensor, Tensor, Shards, Tensor | None]:
    """Models, labels, shards and slots of several calls as those of one."""
    offset, label = 0, []
    for call in calls:
        assert call.label is not None
        label.append(call.label + offset)
        offset += len(call.models)
    longest = max(call.shards.index.shape[1] for call in calls)
    shards = Shards(
        index=torch.cat(
            [pad(c.shards.index, (0, longest - c.shards.index.shape[1])) for c in calls]
        ),
        count=torch.cat([c.shards.count for c in calls]),
        key=torch.cat([c.shards.key for c in calls]),
        work=_works([c.shards for c in calls]),
    )
    slots = [c.slots for c in calls if c.slots is not None]
    return (
        torch.cat([c.models for c in calls]),
        torch.cat(label),
        shards,
        torch.cat(slots) if slots else None,
    )


def _works(shards: list[Shards]) -> Tensor | None:
    """The work of all rows one after the other, None where all do all of it."""
    if all(s.work is None for s in shards):
        return None
    return torch.cat(
        [torch.ones(len(s), device=s.count.device) if s.work is None else s.work for s in shards]
    )


class Lockstep:
    """A `Engine` that merges the calls of the seeds that `map` runs.

    Args:
        engine: what computes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        """The engine's name."""
        return self._engine.name

    @property
    def num_params(self) -> int:
        """P."""
        return self._engine.num_params

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        return self._engine.init(stream)

    def train(
        self,
        models: Tensor,
        label: Tensor,
        shards: Shards,
        solver: Solver,
        lr: float,
        slots: Tensor | None = None,
        anchor: Tensor | None = None,
    ) -> LocalResult:
        """See `Engine.train`."""
        kind = ("train", solver, lr, slots is None, anchor is None)
        result: LocalResult = self._meet(_Call(kind, models, label, shards, slots, anchor))
        return result

    def loss(self, models: Tensor, shards: Shards) -> Tensor:
        """See `Engine.loss`; the tables of different seeds are computed one after the other."""
        result: Tensor = self._meet(_Call(("loss",), models, None, shards))
        return result

    def grad(self, models: Tensor, label: Tensor, shards: Shards) -> Tensor:
        """See `Engine.grad`."""
        result: Tensor = self._meet(_Call(("grad",), models, label, shards))
        return result

    def evaluate(self, models: Tensor, label: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
        """See `Engine.evaluate`."""
        result: tuple[Tensor, Tensor] = self._meet(_Call(("evaluate",), models, label, shards))
        return result

    def map(self, work: Mapping[Key, Callable[[], T]]) -> dict[Key, Turn[T]]:
        """Run pieces of work in lockstep, for instance one per seed.

        Args:
            work: functions by any key; their calls go through this object.

        Returns:
            What became of each. An exception of the engine itself, or an interrupt, ends all and is
            raised here.
        """
        tasks = {key: greenlet(partial(_outcome, function)) for key, function in work.items()}
        turns: dict[Key, Turn[T]] = {}
        seconds = dict.fromkeys(work, 0.0)
        try:
            while tasks:
                asked: dict[Key, list[_Call]] = {}
                for key, task in list(tasks.items()):
                    began = time.perf_counter()
                    said = task.switch()  # runs until it asks for something or ends
                    seconds[key] += time.perf_counter() - began
                    if task.dead:
                        turns[key] = Turn(said, seconds[key])
                        del tasks[key]
                    else:
                        asked[key] = said
                _answer([call for calls in asked.values() for call in calls], self._compute)
                for key, calls in asked.items():
                    seconds[key] += sum(call.seconds for call in calls)
        finally:
            for task in tasks.values():  # only after a failure here: unwind the others
                if not task.dead:
                    task.throw()
        return {key: turns[key] for key in work}

    def _meet(self, call: _Call) -> Any:
        _answer([call], self._compute)
        return call.result

    def _compute(self, calls: list[_Call]) -> None:
        """Fill in the result of every call, calls of one kind in one call of the engine."""
        kinds: dict[tuple[Any, ...], list[_Call]] = {}
        for call in calls:
            kinds.setdefault(call.kind, []).append(call)
        for kind, alike in kinds.items():
            began = time.perf_counter()
            self._compute_alike(kind, alike)
            share = (time.perf_counter() - began) / max(1, sum(len(call.shards) for call in alike))
            for call in alike:
                call.seconds = share * len(call.shards)

    def _compute_alike(self, kind: tuple[Any, ...], alike: list[_Call]) -> None:
        if kind[0] == "loss":
            for call in alike:
                call.result = self._engine.loss(call.models, call.shards)
            return
        models, label, shards, slots = _together(alike)
        rows = [len(call.shards) for call in alike]
        if kind[0] == "train":
            anchors = [call.anchor for call in alike if call.anchor is not None]
            anchor = torch.cat(anchors) if anchors else None
            whole = self._engine.train(models, label, shards, kind[1], kind[2], slots, anchor)
            results: list[Any] = _split_local(whole, rows)
        elif kind[0] == "grad":
            results = list(_cut(self._engine.grad(models, label, shards), rows))
        else:
            loss_sum, correct = self._engine.evaluate(models, label, shards)
            results = list(zip(_cut(loss_sum, rows), _cut(correct, rows), strict=True))
        for call, result in zip(alike, results, strict=True):
            call.result = result


def _answer(calls: list[_Call], compute: Callable[[list[_Call]], None]) -> None:
    """Let calls be computed: by whoever runs this as a piece of work together with others, else at
    once.
    """
    others = getcurrent().parent
    if others is None:
        compute(calls)
    else:
        others.switch(calls)


def _outcome(work: Callable[[], T]) -> T | Exception:
    """What a seed's work returned, or raised."""
    try:
        return work()
    except Exception as error:  # handed to the caller of map
        return error


def _cut(values: Tensor, rows: list[int]) -> list[Tensor]:
    """Consecutive pieces of the first dimension, as views."""
    ends = list(accumulate(rows))
    return [values[end - length : end] for end, length in zip(ends, rows, strict=True)]


def _split_local(whole: LocalResult, rows: list[int]) -> list[LocalResult]:
    """The rows of every seed, as views."""
    slots: Sequence[Tensor | None] = (
        [None] * len(rows) if whole.slots is None else _cut(whole.slots, rows)
    )
    parts = zip(
        _cut(whole.params, rows),
        slots,
        _cut(whole.loss, rows),
        _cut(whole.steps, rows),
        strict=True,
    )
    return [LocalResult(params=p, slots=u, loss=loss, steps=steps) for p, u, loss, steps in parts]

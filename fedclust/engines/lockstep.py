"""Several seeds in one computation: calls of different seeds that meet are merged into one.

Each seed runs the same plain algorithm code in a greenlet of its own, which pauses when it asks the
engine for something. Once all have paused, all rows asked for are computed together. By the engine
law a seed's rows do not depend on the company: the result is that of separate runs. Likewise jobs
that run as pieces of another lockstep hand the calls of their seeds on to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from greenlet import getcurrent, greenlet

from fedclust.core.calls import Call, split
from fedclust.engines.base import InFront
from fedclust.engines.located import ErrorPlace, place_of, put
from fedclust.helpers.meter import meter

T = TypeVar("T")
R = TypeVar("R")
Key = TypeVar("Key", bound=Hashable)


@dataclass
class _SeedCall:
    """A call of one seed and what came of it.

    Attributes:
        seconds: its share of the time.
        failed: whether an error of the engine was in it.
        place: of that error, with rows of its own; None where nobody knows.
    """

    call: Call[Any]
    result: Any = None
    seconds: float = 0.0
    failed: bool = False
    place: ErrorPlace | None = None


@dataclass
class WorkOutcome(Generic[T]):
    """What became of a piece of work.

    Attributes:
        outcome: what it returned, or the exception it raised.
        seconds: time of its own, and of what was computed together its share by rows.
    """

    outcome: T | Exception
    seconds: float


class Lockstep(InFront):
    """An `Engine` that merges the calls of the seeds that `map` runs."""

    def answer(self, call: Call[R]) -> R:
        """The result of the call's own rows, computed with the calls of others that meet it."""
        asked = _SeedCall(call)
        _answer([asked], self._compute)
        return cast(R, asked.result)

    def map(self, work: Mapping[Key, Callable[[], T]]) -> dict[Key, WorkOutcome[T]]:
        """Run pieces of work in lockstep, for instance one per seed.

        Args:
            work: functions by any key; their calls go through this object.

        Returns:
            What became of each. An exception of the engine itself, or an interrupt, ends all and is
            raised here.
        """
        tasks = {key: greenlet(partial(_outcome, function)) for key, function in work.items()}
        turns: dict[Key, WorkOutcome[T]] = {}
        seconds = dict.fromkeys(work, 0.0)
        try:
            while tasks:
                asked: dict[Key, list[_SeedCall]] = {}
                for key, task in list(tasks.items()):
                    began = time.perf_counter()
                    handed = task.switch()  # runs until it asks for something or ends
                    seconds[key] += time.perf_counter() - began
                    if task.dead:
                        turns[key] = WorkOutcome(handed, seconds[key])
                        del tasks[key]
                    else:
                        asked[key] = handed
                try:
                    _answer([one for calls in asked.values() for one in calls], self._compute)
                except Exception as error:
                    _tell(error, asked, tasks)
                    raise
                for key, calls in asked.items():
                    seconds[key] += sum(call.seconds for call in calls)
        finally:
            for task in tasks.values():  # only after a failure here: unwind the others
                if not task.dead:
                    task.throw()
        return {key: turns[key] for key in work}

    def _compute(self, asked: list[_SeedCall]) -> None:
        """Fill in the result of every call, calls of one kind in one call of the engine."""
        groups: dict[Hashable, list[_SeedCall]] = {}
        for position, one in enumerate(asked):
            kind = one.call.kind
            groups.setdefault(("alone", position) if kind is None else kind, []).append(one)
        for alike in groups.values():
            began = time.perf_counter()
            calls = [one.call for one in alike]
            rows = [len(call.shards) for call in calls]
            meter.begin(calls[0].doing, sum(rows))
            try:
                whole = self._engine.answer(calls[0].merge(calls))
            except Exception as error:
                _blame(alike, place_of(error))
                raise
            meter.end()
            for one, result in zip(alike, split(whole, calls), strict=True):
                one.result = result
            share = (time.perf_counter() - began) / max(1, sum(rows))
            for one, count in zip(alike, rows, strict=True):
                one.seconds = share * count


def _blame(alike: list[_SeedCall], place: ErrorPlace | None) -> None:
    """Note in which calls an error was, by its place in the call that they were merged into."""
    first = 0
    for one in alike:
        count = len(one.call.shards)
        rows = place.rows if place else ()
        own = tuple(row - first for row in rows if 0 <= row - first < count)
        one.failed = place is None or bool(own)
        one.place = replace(place, rows=own) if place else None
        first += count


def _tell(error: Exception, asked: Mapping[Any, list[_SeedCall]], tasks: Mapping[Any, Any]) -> None:
    """Raise an engine's error also in the work that waits for its calls and can name it."""
    for key, calls in asked.items():
        for one in calls:
            if one.failed and not tasks[key].dead:
                put(error, one.place)
                tasks[key].throw(error)


def _answer(calls: list[_SeedCall], compute: Callable[[list[_SeedCall]], None]) -> None:
    """Let calls be computed: by an outer lockstep together with others', else at once."""
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

"""A signal that asks a job to end lets it finish the round first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def heard() -> Iterator[list[int]]:
    """The list that Ctrl-C is noted in: what it raises can be lost in another library's clean-up.

    Nothing is noted outside of the main thread, or where Ctrl-C has a handler of its own.
    """
    came: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        came.append(signum)
        signal.default_int_handler(signum, frame)

    told = threading.current_thread() is threading.main_thread()
    if not told or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Signals:
    """Remembers the first SIGINT or SIGTERM so that the round can end; a second one acts at
    once. Only the main thread of a process can be told of them.

    Attributes:
        received: the signal, None as long as there was none.
        answer: called at once with the signal, to say what happens now.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.answer: Callable[[int], None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        told = threading.current_thread() is threading.main_thread()
        for signum in (signal.SIGINT, signal.SIGTERM) if told else ():
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.received = signum
        self._restore()
        if self.answer is not None:
            self.answer(signum)

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

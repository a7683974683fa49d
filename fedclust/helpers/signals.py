"""A signal that asks a job to end lets it finish the round first; the next ones end it sooner."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from fedclust.helpers.errors import interrupted


@contextmanager
def heard() -> Iterator[list[int]]:
    """The list that Ctrl-C is noted in, in the main thread: other libraries lose what it raises."""
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(signum: int, frame: FrameType | None) -> None:
        came.append(signum)
        assert callable(before)
        before(signum, frame)

    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield came
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)


def at_once(signum: int, _: FrameType | None) -> None:
    """What the system does; Python complains where a signal that waits finds SIG_DFL itself."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


@contextmanager
def ending(end: Callable[[int], object], *, forever: bool) -> Iterator[None]:
    """While the block runs, the first SIGINT or SIGTERM calls `end`, which raises what ends it.

    The next one ends the process at once. With `forever` the process ends with the block, and later
    signals are the system's.
    """
    ours = (signal.SIGINT, signal.SIGTERM)

    def hear(signum: int, _: FrameType | None) -> None:
        for one in ours:
            signal.signal(one, at_once)
        end(signum)

    before = {signum: signal.signal(signum, hear) for signum in ours}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, at_once if forever else handler)


def by_a_signal(end: BaseException) -> bool:
    """Whether the handler of a signal raised it."""
    handlers = [
        inspect.unwrap(h) for h in map(signal.getsignal, signal.valid_signals()) if callable(h)
    ]
    codes = {getattr(getattr(h, "__func__", h), "__code__", None) for h in handlers}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(end.__traceback__))


def _give_up(signum: int, patience: float) -> None:
    """End the process, whatever it does; what is on the disk stays as a kill would leave it."""
    line = f"{interrupted(signum)}: the round did not end in {patience:g} s, the one saved is kept"
    os.write(2, f"fedclust: {line}\n".encode())
    os._exit(128 + signum)


class Signals:
    """Remembers the first SIGINT or SIGTERM so that the round can end; a second one acts at once.

    Args:
        patience: seconds after which the process ends where the round has not; None: no limit.

    Attributes:
        received: the signal, None as long as there was none.
        answer: called at once with the signal, to say what happens now.
    """

    def __init__(self, patience: float | None = None) -> None:
        self.received: int | None = None
        self.answer: Callable[[int], None] | None = None
        self._patience = patience
        self._timer: threading.Timer | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        in_main = threading.current_thread() is threading.main_thread()
        for signum in (signal.SIGINT, signal.SIGTERM) if in_main else ():
            self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._restore()

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.received = signum
        self._restore()
        if self._patience is not None:
            self._timer = threading.Timer(self._patience, _give_up, [signum, self._patience])
            self._timer.daemon = True
            self._timer.start()
        if self.answer is not None:
            self.answer(signum)

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            if signal.getsignal(signum) == self._note:  # a second one has set its own
                signal.signal(signum, handler)

"""Signals that come while others are dealt with."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path

import pytest

from fedclust.helpers.prose import complain
from fedclust.helpers.signals import Signals, at_once, ending
from fedclust.launch.failures import attempt

OURS = (signal.SIGINT, signal.SIGTERM)
READY = b"ready"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Whatever a test leaves, the next one has this process's own handlers."""
    before = {signum: signal.getsignal(signum) for signum in OURS}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def stop(signum: int) -> None:
    sys.exit(128 + signum)


def sent(*signals: int) -> None:
    for signum in signals:
        os.kill(os.getpid(), signum)


def handlers() -> list[object]:
    return [signal.getsignal(signum) for signum in OURS]


def test_the_first_signal_ends_the_block_and_the_next_one_is_the_systems() -> None:
    before = handlers()
    seen: list[object] = []

    def work() -> None:
        with ending(stop, forever=False):
            try:
                sent(signal.SIGTERM)
            finally:
                seen.extend(handlers())

    with pytest.raises(SystemExit) as end:
        work()
    assert end.value.code == 143
    assert seen == [at_once] * 2
    assert handlers() == before
    with ending(stop, forever=True):
        pass
    assert handlers() == [at_once] * 2


def test_a_round_is_finished_after_the_first_and_left_after_the_second() -> None:
    told: list[int] = []
    seen: list[object] = []

    def work() -> None:
        with ending(stop, forever=False):
            try:
                with Signals() as signals:
                    signals.answer = told.append
                    sent(signal.SIGINT)
                    assert signals.received == signal.SIGINT
                    sent(signal.SIGTERM)
            finally:
                seen.extend(handlers())  # nobody brings back those that raise

    with pytest.raises(SystemExit):
        work()
    assert told == [signal.SIGINT]
    assert seen == [at_once] * 2


def ended(work: Callable[[], None], signals: list[int]) -> tuple[int, str]:
    """How a forked process ends that is sent signals, and what it printed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            os.dup2(writing, 2)
            os.close(reading)
            sys.stderr = os.fdopen(2, "w")
            work()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException as error:  # a traceback, in a process of its own
            os.write(2, repr(error).encode())
        finally:
            os._exit(status)
    os.close(writing)
    ready = os.read(reading, len(READY))
    assert ready == READY
    pauses = random.Random(len(signals))
    for signum in signals:
        time.sleep(pauses.choice([0, 1e-4, 1e-3]))
        with suppress(ProcessLookupError):
            os.kill(pid, signum)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


@pytest.mark.full
@pytest.mark.parametrize("name", ["run", "report"])
def test_a_storm_of_signals_is_no_traceback(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedclust import __main__
    from fedclust.helpers.errors import Interrupted

    def command(_: object) -> None:
        with Signals() as signals:
            os.write(2, READY)
            while signals.received is None:
                time.sleep(1e-3)
            raise Interrupted(signals.received)

    monkeypatch.setattr(f"fedclust.commands.{name}.command", command)
    monkeypatch.setattr(sys, "argv", ["fedclust", name])
    for number in range(20):
        rng = random.Random(number)
        storm = rng.choices(OURS, k=rng.randint(1, 6))
        status, said = ended(__main__.main, [int(signum) for signum in storm])
        assert status in (130, 143, -signal.SIGINT, -signal.SIGTERM), said
        assert all(line.startswith("fedclust: interrupted by") for line in said.splitlines()), said


def test_a_signal_is_told_while_the_stream_is_being_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Busy(TextIOWrapper):
        def write(self, _: str, /) -> int:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name=2>")

    path = tmp_path / "said"
    with path.open("wb") as file:
        monkeypatch.setattr(sys, "stderr", Busy(file))
        complain("interrupted by SIGINT")
    assert path.read_text() == "fedclust: interrupted by SIGINT\n"


@pytest.mark.full
def test_a_round_that_does_not_end_is_given_up_after_a_while() -> None:
    def work(patience: float | None) -> None:
        with Signals(patience) as signals:
            os.write(2, READY)
            while signals.received is None:
                time.sleep(1e-3)
            time.sleep(0.5)

    for patience, status, said in ((0.05, 143, "interrupted by SIGTERM"), (None, 0, "")):
        found = ended(partial(work, patience), [signal.SIGTERM])
        assert found[0] == status
        assert said in found[1]
        assert bool(found[1]) == bool(said)


def test_what_a_library_makes_of_an_end_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedclust import __main__
    from fedclust.helpers.errors import ConfigError

    def command(_: object) -> None:
        try:
            sent(signal.SIGTERM)
        finally:
            raise ConfigError("of a clean-up")

    monkeypatch.setattr("fedclust.commands.report.command", command)
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            __main__.main(["report"])
        assert end.value.code == 143
        assert capsys.readouterr().err == "fedclust: interrupted by SIGTERM\n"
    with pytest.raises(SystemExit) as end:
        __main__.main(["nonsense"])
    assert end.value.code == 2


class Launcher:
    """What submitit installs: the job that SLURM preempts ends with a status of its own."""

    def requeue(self, *_: object) -> None:
        sys.exit(144)


def test_a_launchers_signal_ends_the_job_and_a_call_of_exit_in_it_does_not(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR2, Launcher().requeue)
    try:
        with pytest.raises(SystemExit) as end:
            attempt(lambda: os.kill(os.getpid(), signal.SIGUSR2), tmp_path)
        assert end.value.code == 144
        with pytest.raises(RuntimeError, match=r"sys\.exit\(144\) was called"):
            attempt(lambda: sys.exit(144), tmp_path)
    finally:
        signal.signal(signal.SIGUSR2, before)

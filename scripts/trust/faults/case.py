"""A fault, how its processes end, and how they are started: forked from one that has everything
imported.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import pickle
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ENDS = ("survived", "refused", "wrong", "crashed")
PATIENCE = 1200  # seconds for one process, of a machine that may have other work
_MOST_MEMORY = 12 << 30  # bytes of address space, so that a case cannot take the machine down


@dataclass(frozen=True)
class Case:
    """One fault.

    Attributes:
        part: what kind of fault it is; a row of the table.
        name: unique in its part.
        work: makes the fault in an empty folder and says how it ended, with a line about it.
    """

    part: str
    name: str
    work: Callable[[Path], tuple[str, str]]


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        kind: done, refused, interrupted, crashed or killed.
        said: what it said.
        warned: its warnings.
    """

    kind: str
    said: str = ""
    warned: tuple[str, ...] = ()


def forked(work: Callable[[], Ended], patience: int = PATIENCE) -> Ended:
    """How `work` ends in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            faulthandler.disable()
            signal.alarm(patience)
            try:
                ended = work()
            except BaseException:
                ended = Ended("crashed", traceback.format_exc())
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(ended, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return pickle.loads(told) if told else Ended("killed")


@dataclass(frozen=True)
class Called:
    """What a command of fedclust left.

    Attributes:
        status: of the process; negative after a signal.
        out, err: what it and its own processes have printed.
    """

    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """What it refused with, "" where it did anything else than say one line and exit with 2."""
        lines = self.err.splitlines()
        fine = self.status == 2 and len(lines) == 1 and lines[0].startswith("fedclust: ")
        return lines[0] if fine else ""

    @property
    def end(self) -> str:
        """Its status and the end of what it said."""
        return f"{self.status}: {self.err[-600:]}"


class Command:
    """A command of fedclust in a forked process, whose output goes to files.

    Args:
        arguments: of the command line.
        folder: the current one.
        env: variables besides those there are.
        memory: bytes of address space above what is in use; None for plenty.
        first: called in the process before the command.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        env: Mapping[str, str] | None = None,
        memory: int | None = None,
        first: Callable[[], None] | None = None,
    ) -> None:
        self._told = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - closed by wait
        self.pid = os.fork()
        if self.pid:
            return
        status = 1
        try:
            faulthandler.disable()
            atexit._clear()  # what this process would clean up belongs to the campaign
            signal.alarm(PATIENCE)
            for number, file in enumerate(self._told, start=1):
                os.dup2(file.fileno(), number)
            os.chdir(folder)
            os.environ.update(env or {})
            limit_memory(memory)
            if first is not None:
                first()
            status = _status_of(arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self) -> Called:
        """What it left, when it has ended."""
        _, how = os.waitpid(self.pid, 0)
        told = []
        for file in self._told:
            file.seek(0)
            told.append(file.read().decode(errors="replace"))
            file.close()
        return Called(os.waitstatus_to_exitcode(how), *told)


def called(arguments: Sequence[str], folder: Path, **more: object) -> Called:
    """What a command of fedclust leaves, see `Command`."""
    return Command(arguments, folder, **more).wait()  # type: ignore[arg-type]


def limit_memory(memory: int | None) -> None:
    """Allow this process so many bytes of address space more than it uses, at most."""
    most = _MOST_MEMORY
    if memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = memory + pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _status_of(arguments: Sequence[str]) -> int:
    """The exit status of a command line; an exception is printed as Python would."""
    from fedclust.__main__ import main

    try:
        main(list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

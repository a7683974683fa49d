"""A machine that fails: full disks, limits of a file's size, little memory, signals."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from faults.case import Called, Case, Ended, called, forked, limit_memory
from faults.jobs import CHEAP, SMALL, expected, judged, play, signature

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # of unshare(2)
_REMOUNT, _PRIVATE = 32, (1 << 18) | (1 << 14)  # of mount(2); private with all below
# by C++; by the C library, which does without thread-local data; by the loader of libraries
_ENDED_BY_A_LIBRARY = (-signal.SIGABRT, -signal.SIGSEGV, 127)
COMMAND = ("run", *SMALL, "algorithm=ifca", "progress=false", "hydra.run.dir=job")


def limited(
    name: str, limit: Callable[[], None], folder: Path, *, may_die: bool = False
) -> tuple[str, str]:
    """Run a job under a limit of the system, then again without.

    Args:
        name: one of `JOBS`.
        limit: sets the limit.
        folder: an empty one.
        may_die: whether a library may end the process, which counts as a kill: where C++ gets no
            memory while it handles that it got none, nobody is asked.
    """

    def first() -> Ended:
        limit()
        return play(name, folder / "job")

    ended = forked(first)
    died = ended.kind == "killed"
    if ended.kind == "crashed" or (died and not may_die) or "\n" in ended.said:
        return "crashed", f"{ended.kind}: {ended.said[-500:]}"
    end, said = judged(name, folder / "job", may_refuse=False)
    said = "ended by a library" if died else ended.said or said
    return ("refused" if end == "survived" and ended.kind == "refused" else end), said


def small_files(size: int) -> None:
    """Allow this process no larger file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def short_command(mib: int, folder: Path) -> tuple[str, str]:
    """Call the command line with little memory, so that loading may fail too; then without.

    A library may end the process, see `limited`.
    """
    first = called(COMMAND, folder, memory=mib << 20)
    died = "Traceback" not in first.err and first.status in _ENDED_BY_A_LIBRARY
    if first.status != 0 and not first.line and not died:
        return "crashed", first.end
    end, said = as_whole(called(COMMAND, folder), folder, first.line)
    return ("refused" if end == "survived" and first.line else end), (
        "ended by a library" if died else said
    )


def as_whole(ended: Called, folder: Path, said: str = "") -> tuple[str, str]:
    """How `COMMAND` ended where it has to run through, with the results of an undisturbed one."""
    if ended.status != 0:
        return "crashed", ended.end
    same = signature(folder / "job", states=False) == whole_command()
    return ("survived" if same else "wrong"), said


@cache
def whole_command() -> str:
    """The results of the command that nothing happens to."""
    with tempfile.TemporaryDirectory() as folder:
        done = called(COMMAND, Path(folder))
        assert done.status == 0, done
        return signature(Path(folder, "job"), states=False)


def mount(where: Path, size: int, flags: int = 0) -> None:
    """A file system in memory, of so many bytes; or another size of it."""
    _system("mount", b"tmpfs", str(where).encode(), b"tmpfs", flags, f"size={size}".encode())


def own_mounts() -> None:
    """Mounts of this process that no other sees and that end with it.

    Raises:
        OSError: where the system does not allow that.
    """
    user, group = os.getuid(), os.getgid()
    try:
        _system("unshare", _NEW_MOUNTS)
    except OSError:
        _system("unshare", _NEW_MOUNTS | _NEW_USER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _system("mount", b"none", b"/", None, _PRIVATE, None)


def _system(name: str, *arguments: bytes | int | None) -> None:
    """A call of the C library that fails with an OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_ulong(a) if isinstance(a, int) and name == "mount" else a for a in arguments]
    if getattr(library, name)(*given) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@cache
def can_mount() -> bool:
    """Whether this system lets us make a small file system of our own."""

    def attempt() -> Ended:
        own_mounts()
        mount(Path(tempfile.gettempdir()), 1 << 16)  # no other process sees it
        return Ended("done")

    return forked(attempt).kind == "done"


def full_disk(name: str, size: int, folder: Path) -> tuple[str, str]:
    """Run a job on a file system of so many bytes until it is full, then on a larger one."""

    def inside() -> Ended:
        own_mounts()
        mount(folder, size)
        first = forked(partial(play, name, folder / "job"))
        if first.kind not in ("done", "refused") or "\n" in first.said:
            return Ended("crashed", f"{first.kind}: {first.said[-500:]}")
        mount(folder, 64 << 20, _REMOUNT)
        end, said = judged(name, folder / "job", may_refuse=False)
        refused = end == "survived" and first.kind == "refused"
        return Ended("refused" if refused else end, first.said or said)

    ended = forked(inside)
    return ended.kind, ended.said


def with_signal(name: str, signum: int, number: int, folder: Path) -> tuple[str, str]:
    """Send a job a signal at a random moment, then continue it."""
    rng = random.Random(number)

    def hit() -> Ended:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signum))
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.01, 0.5))
        try:
            return play(name, folder / "job")
        except KeyboardInterrupt:
            return Ended("interrupted")

    ended = forked(hit)
    if ended.kind not in ("interrupted", "done", "killed"):
        return "crashed", f"{ended.kind}: {ended.said[-500:]}"
    return judged(name, folder / "job", may_refuse=False)


def cases(quick: bool) -> Iterator[Case]:
    """Full disks, little memory, signals."""
    whole_command()
    for name in CHEAP[:1] if quick else CHEAP:
        expected(name)  # before a case has a file system of its own
        for size in range(0, 12_000, 3000 if quick else 250):
            work = partial(limited, name, partial(small_files, size))
            yield Case("files of limited size", f"{name} {size} bytes", work)
        for kib in range(4, 260, 64 if quick else 4):
            if can_mount():
                yield Case("full disk", f"{name} {kib} KiB", partial(full_disk, name, kib << 10))
        for mib in range(0, 64, 16 if quick else 1):
            work = partial(limited, name, partial(limit_memory, mib << 20), may_die=True)
            yield Case("little memory", f"{name} {mib} MiB", work)
        for signum in (signal.SIGINT, signal.SIGTERM):
            for number in range(2 if quick else 25):
                work = partial(with_signal, name, signum, number)
                yield Case("signal", f"{name} {signum.name} {number}", work)
    for mib in range(0, 96, 48 if quick else 2):
        yield Case("little memory", f"command {mib} MiB", partial(short_command, mib))

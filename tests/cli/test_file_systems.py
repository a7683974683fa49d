"""File systems that lack a call: Windows drives in WSL, sshfs, Lustre and NFS without locks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli.conftest import Cli

from fedclust.helpers import locks
from fedclust.helpers.errors import in_words
from fedclust.helpers.files import atomic_write, sync

JOB = (
    *("partition=iid", "partition.num_clients=4", "partition.examples_per_client=20"),
    *("model=linear", "solver.epochs=1", "solver.batch_size=null", "threads=1", "device=cpu"),
    *("engine=loop", "rounds=2", "progress=false", "name=here"),
)
LINE = "this file system has no locks: do not start the same job twice at once"


def lacking(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """From now on a call of the system fails as where there is none."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    if call == "flock":
        monkeypatch.setattr(fcntl, "flock", fail)
        monkeypatch.setattr(locks, "_told", set[int]())
    elif call == "chmod":
        monkeypatch.setattr(os, "chmod", fail)
    else:
        plain = os.fsync

        def fsync(descriptor: int) -> None:
            if call == "fsync" or stat.S_ISDIR(os.fstat(descriptor).st_mode):
                fail()
            plain(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)


CALLS = {
    "chmod": ("chmod", errno.EPERM),
    "fsync of a folder": ("fsync of a folder", errno.EINVAL),
    "fsync": ("fsync", errno.ENOTSUP),
    "flock": ("flock", errno.ENOSYS),
    "flock of NFS": ("flock", errno.ENOLCK),
    "flock of Lustre": ("flock", errno.EOPNOTSUPP),
}
COMMANDS = {
    "run": ("run", "algorithm=fedavg", *JOB),
    "sweep": ("run", "-m", "algorithm=fedavg,local", *JOB),
    "tune": ("tune", "algorithm=fedprox", *JOB, "trials=2", "tuning_seeds=[7]", "report=null"),
}


def results(folder: Path) -> list[pd.DataFrame]:
    """The numbers of every job below a folder, the seconds apart."""
    read = [pd.read_csv(file) for file in sorted(folder.rglob("rounds.csv"))]
    return [one[one["metric"] != "seconds"].reset_index(drop=True) for one in read]


@pytest.mark.full
@pytest.mark.parametrize("lack", CALLS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_job_runs_and_is_continued_without(
    lack: str,
    command: str,
    fedclust: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lacking(monkeypatch, *CALLS[lack])
    ended = fedclust.done(*COMMANDS[command])
    assert ended.err.count(LINE) == (lack.startswith("flock")), ended.err
    assert results(tmp_path / "outputs")
    fedclust.done(*COMMANDS[command])


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", ["chmod", "fsync", "flock"])
def test_a_broken_disk_is_not_one_that_lacks_a_call(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking(monkeypatch, call, number)
    with (tmp_path / "x").open("wb") as file:
        ways = {
            "chmod": lambda: atomic_write(tmp_path / "y", ""),
            "fsync": lambda: sync(file.fileno()),
            "flock": lambda: locks.lock(file),
        }
        with pytest.raises(OSError, match=os.strerror(number)):
            ways[call]()


def test_a_lock_that_somebody_has_is_no_missing_one(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as first, (tmp_path / "x").open("wb") as second:
        assert locks.lock(first)
        with pytest.raises(BlockingIOError):
            locks.lock(second)


def test_of_a_file_system_without_locks_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_told", set[int]())
    with (tmp_path / "x").open("wb") as file:
        assert locks.without_locks(file) == [LINE]
        assert locks.without_locks(file) == []


@pytest.mark.parametrize("call", ["rename", "mkstemp"])
def test_an_error_names_the_file_and_not_the_temporary_one(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to be written, which a person knows; nothing else is left."""
    file = tmp_path / "here" / "config.yaml"
    atomic_write(file, "old")

    def fail(path: Any, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    if call == "rename":
        monkeypatch.setattr(os, "replace", fail)
    else:
        plain = os.open
        monkeypatch.setattr(
            os, "open", lambda path, *more: (fail if "tmp" in str(path) else plain)(path, *more)
        )
    with pytest.raises(OSError, match="Read-only") as error:
        atomic_write(file, "new")
    assert in_words(error.value) == f"{file} cannot be written or read: Read-only file system"
    assert [path.name for path in file.parent.iterdir()] == ["config.yaml"]
    assert file.read_text() == "old"

"""Locks of files, which the system gives back however their process ends."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import IO, Any

from fedclust.helpers.files import LACKED

LOCK = ".lock"  # in a folder that one process at a time may write
_told = set[int]()  # file systems of which `without_locks` has spoken


def lock(file: IO[Any], *, wait: bool = False) -> bool:
    """Take the lock of a file open for writing (NFS asks for that), until the file is closed.

    Returns:
        Whether there is such a lock; False where the file system has none.

    Raises:
        BlockingIOError: when another process has it, and not `wait`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in (*LACKED, errno.ENOLCK):
            raise
        return False
    return True


def is_free(path: Path) -> bool:
    """Whether nobody has the lock of a file; True for one that is not there or cannot be opened."""
    try:
        with path.open("ab") as file:
            lock(file)
    except BlockingIOError:
        return False
    except OSError:  # whoever needs it is told why
        pass
    return True


def without_locks(file: IO[Any]) -> list[str]:
    """What a person must know where `lock` returned False: a line, once for a file system."""
    device = os.fstat(file.fileno()).st_dev
    if device in _told:
        return []
    _told.add(device)
    return ["this file system has no locks: do not start the same job twice at once"]

"""Files that are either the old ones or the new ones, never half of them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def atomic_write(path: Path, content: bytes | str) -> None:
    """Nothing; `path` holds `content` afterwards, or what it held before if anything goes wrong.

    The content goes to a temporary file of the same folder, is forced to the disk and renamed, so
    that a reader, a crash or a full disk never leaves half a file. Costs two fsyncs.

    Args:
        path: the file to write; its folder is made if need be.
        content: bytes, or text written as UTF-8.

    Raises:
        OSError: when the folder cannot be written or the disk is full; the old file is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """The names in `folder` are on the disk afterwards, where the system can promise that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # a system that cannot open folders cannot sync them either
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """The process's umask; mkstemp makes files private, results are to be as readable as any other
    file.
    """
    mask = os.umask(0)
    os.umask(mask)
    return mask

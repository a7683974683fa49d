"""Temporary folders that do not stay, whatever becomes of their process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedclust.helpers.locks import lock

_PREFIX, _OWNER = "fedclust-", ".fedclust-process"  # the latter is locked as long as it lives


@contextmanager
def scratch(beside: Path | None = None) -> Iterator[Path]:
    """A temporary folder, gone afterwards, hidden in `beside` or in the system's own place, where
    those that this user's killed processes have left go too.
    """
    if beside is None:  # elsewhere a process of another machine may live
        for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _clear(left)
    prefix = _PREFIX if beside is None else f".{_PREFIX}"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=beside, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / f"{_OWNER}.new").open("wb") as owner:
            lock(owner, wait=True)
            Path(owner.name).rename(folder / _OWNER)  # nobody sees it without its lock
            yield folder


def _clear(folder: Path) -> None:
    """Delete a folder of `scratch` whose process has gone."""
    with suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        with (folder / _OWNER).open("rb") as owner:
            if lock(owner):  # without locks nobody knows whether it still lives
                shutil.rmtree(folder, ignore_errors=True)

"""What a job needs of its process and changes there, put back when it has ended.

A notebook goes on after a job, may have begun a Hydra application of its own, and may edit a file
between two runs.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from threading import RLock

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from hydra.version import VersionBase, setbase

from fedclust.commands.sweep import NOTES
from fedclust.helpers.errors import require

USER_DIR = "FEDCLUST_USER_DIR"  # the folder given with --config-dir, for the workers of a launcher
_ENVIRONMENT = (USER_DIR, NOTES, "HYDRA_FULL_ERROR")
_one_at_a_time = RLock()  # Hydra's state is the process's


@contextmanager
def hydra_of_its_own(own: Path | None) -> Iterator[None]:
    """A Hydra without state, and the environment of a command; both are put back afterwards.

    Of several threads one at a time is inside.

    Args:
        own: the folder given with --config-dir.

    Raises:
        ConfigError: if there is no such folder.
    """
    if own is not None:
        require(own.is_dir(), "--config-dir", own, "there is no such folder")
    with _one_at_a_time:
        hydra, config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
        base, name = VersionBase.instance().getbase(), JobRuntime.instance().get("name")
        root = logging.getLogger()
        level, handlers = root.level, list(root.handlers)
        environment = {key: os.environ.get(key) for key in _ENVIRONMENT}
        GlobalHydra.instance().clear()
        setbase("1.3")
        os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach us as they are, not printed
        _set(USER_DIR, None if own is None else str(own))
        try:
            yield
        finally:
            GlobalHydra.instance().hydra, HydraConfig.instance().cfg = hydra, config
            VersionBase.instance().version_base = base
            JobRuntime.instance().set("name", name)
            root.setLevel(level)
            root.handlers[:] = handlers
            for key, value in environment.items():
                _set(key, value)


def _set(name: str, value: str | None) -> None:
    """Set a variable of the environment, or remove it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def own_folder() -> Path | None:
    """The folder given with --config-dir, as the process that runs a job knows it."""
    return Path(os.environ[USER_DIR]) if os.environ.get(USER_DIR) else None


@contextmanager
def importable(own: Path | None) -> Iterator[None]:
    """The Python files of a folder can be imported, and are read anew the next time."""
    if own is None:
        yield
        return
    before = set(sys.modules)
    invalidate_caches()  # or a file just written is not found
    sys.path.append(str(own))  # last: a scipy.py there is not SciPy
    try:
        yield
    finally:
        sys.path.remove(str(own))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().is_relative_to(own):
                del sys.modules[name]

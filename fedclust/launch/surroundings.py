"""What a job needs of its process and changes there, put back when it has ended.

A notebook goes on after a job, may have begun a Hydra application of its own, and may edit a file
between two runs.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import invalidate_caches
from pathlib import Path
from threading import RLock

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime, env_override
from hydra.version import VersionBase, setbase
from omegaconf.resolvers.oc import env

from fedclust.helpers.ambient import as_libraries_begin
from fedclust.helpers.errors import require

# the names that typed values read: where a launcher resolves folders, it has the environment alone
VARIABLES = "FEDCLUST_TYPED_VARIABLES"
_READ = re.compile(r"oc\.env\s*:\s*['\"]?(\w+)")
_OURS = ("FEDCLUST_DATA",)  # read by our own files
_MISSING = object()
_FULL_ERROR = "HYDRA_FULL_ERROR"
_one_at_a_time = RLock()  # Hydra's state is the process's


@contextmanager
def hydra_of_its_own(own: Path | None, overrides: Sequence[str] = ()) -> Iterator[None]:
    """A Hydra without state, libraries as they begin, and the environment of a command; all are put
    back afterwards.

    Of several threads one at a time is inside.

    Args:
        own: the folder given with --config-dir.
        overrides: as typed.

    Raises:
        ConfigError: if there is no such folder.
    """
    if own is not None:
        require(own.is_dir(), "--config-dir", own, "there is no such folder")
    variables = [name for text in overrides for name in _READ.findall(text)]
    # Hydra's errors reach us as they are, not printed
    environment = {VARIABLES: " ".join(variables), _FULL_ERROR: "1"}
    with _one_at_a_time, env_override(environment), as_libraries_begin():
        hydra, config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
        base, name = VersionBase.instance().getbase(), JobRuntime.instance().get("name")
        root = logging.getLogger()
        level, handlers = root.level, list(root.handlers)
        GlobalHydra.instance().clear()
        setbase("1.3")
        JobRuntime.instance().set("name", "fedclust")
        try:
            yield
        finally:
            GlobalHydra.instance().hydra, HydraConfig.instance().cfg = hydra, config
            VersionBase.instance().version_base = base
            JobRuntime.instance().set("name", name)
            root.setLevel(level)
            root.handlers[:] = handlers


def read_environment(name: str, default: object = _MISSING) -> object:
    """What `${oc.env:NAME}` is: a file may not read a user's environment into a config, from where
    it goes into folders' names and to trackers.

    Raises:
        ConfigError: for a variable that no typed value reads.
    """
    if VARIABLES in os.environ:  # otherwise it is another program's config
        known = (*_OURS, *os.environ[VARIABLES].split())
        require(name in known, "oc.env", name, "read by values that are typed only, not by files")
    return env(name) if default is _MISSING else env(name, default)


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


@dataclass(frozen=True)
class FoldersBefore:
    """Which folders there were before Hydra made those of the results.

    Hydra makes folders, and a sweep's multirun.yaml, before a job has been checked; sweep.json
    says of a sweep why its jobs were refused.

    Attributes:
        results: the folder of the results.
        there: it and those above it, as far as they were there, and what it held.
    """

    results: Path
    there: frozenset[Path]

    @classmethod
    def of(cls, results: Path) -> FoldersBefore:
        """Those of now."""
        results = results.absolute()
        above = [folder for folder in (results, *results.parents) if folder.is_dir()]
        below = results.iterdir() if results.is_dir() else ()
        return cls(results, frozenset([*above, *below]))

    def remove_unused(self, folder: Path) -> None:
        """Remove a folder, and those above it, where Hydra has made them and nobody filled them."""
        folder = folder.absolute()
        if not folder.is_relative_to(self.results):
            return
        while folder.is_relative_to(self.results) or folder not in self.there:
            if folder.is_dir():
                made = {path.name for path in folder.iterdir() if path not in self.there}
                if made - {"multirun.yaml", "sweep.json"}:
                    return
                for name in made:
                    (folder / name).unlink()
                if folder in self.there or any(folder.iterdir()):
                    return
                folder.rmdir()
            folder = folder.parent

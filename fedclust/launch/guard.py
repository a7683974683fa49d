"""What stands between a command and Hydra: what a config may tell it, and what is put back after.

A file may come from anywhere, what was typed is the user's wish: a file may state a sweep and a
launcher's options; where files go and what else runs is the user's to type. Hydra makes objects
and folders before a job is checked, so its part of a config is checked first.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import invalidate_caches
from pathlib import Path
from threading import RLock
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime, env_override
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf

from fedclust.config.references import as_written, at, entries
from fedclust.config.schema import NAME
from fedclust.helpers.ambient import as_libraries_begin
from fedclust.helpers.errors import require
from fedclust.helpers.private import (
    PLUG_INS,
    Hydra,
    behave_as_1_3,
    composed_quickly,
    get_args_parser,
)
from fedclust.launch.compose import VARIABLES, Command, compose_or_none
from fedclust.launch.scales import search_path
from fedclust.launch.typed import Typed

_PLUGINS = ("hydra_plugins.", PLUG_INS, "optuna.samplers.")
_SUBDIR = (
    "${fedclust_job:${hydra:overrides.task},${hydra:runtime.choices.algorithm},${hydra:sweep.dir}}"
)
_TYPED_ONLY = ("job.env_set", "job.env_copy", "job.chdir", "output_subdir")  # empty unless typed
NO_LOGGING = {"version": 1, "root": None, "disable_existing_loggers": False}
# numbers and names that a cluster's scheduler asks for; what else a plug-in takes may run commands
_RESOURCES = {
    *("_target_", "n_jobs", "backend", "prefer", "require", "verbose", "timeout", "pre_dispatch"),
    *("batch_size", "max_nbytes", "mmap_mode", "timeout_min", "cpus_per_task", "gpus_per_node"),
    *("tasks_per_node", "mem_gb", "nodes", "partition", "qos", "comment", "constraint", "exclude"),
    *("gres", "cpus_per_gpu", "gpus_per_task", "mem_per_gpu", "mem_per_cpu", "account"),
    *("signal_delay_s", "max_num_timeout", "array_parallelism"),
    *("params", "max_batch_size", "direction", "n_trials", "sampler", "max_failure_rate"),
}
_READ = re.compile(r"oc\.env\s*:\s*['\"]?(\w+)")
_FULL_ERROR = "HYDRA_FULL_ERROR"
_one_at_a_time = RLock()  # Hydra's state is the process's
_COUNTERS = re.compile(r"\$\{hydra[.:]job\.(num|id|override_dirname)\}")


def check_hydra(command: Command) -> None:
    """Check Hydra's part of a composed config, before Hydra acts on it."""
    composed, typed = command.config, set(command.typed.keys)
    node = as_written(composed.hydra)
    for key, value in entries(node, "hydra"):
        wish = any(key == one or key.startswith(f"{one}.") for one in typed)
        if key.endswith("._target_"):
            allowed = "a plug-in of Hydra, unless it is typed"
            require(str(value).startswith(_PLUGINS) or wish, key, value, allowed)
        if key.startswith(("hydra.launcher.", "hydra.sweeper.")):
            _check_plugin(composed, key, value, wish)
    for name in ("job_logging", "hydra_logging"):
        key = f"hydra.{name}"
        wish = any(one.replace("/", ".").startswith(key) for one in typed)
        require(node[name] == NO_LOGGING or wish, key, "…", "as it is by default, unless typed")
    for name in _TYPED_ONLY:
        key, value = f"hydra.{name}", OmegaConf.select(composed.hydra, name)
        wish = any(one.startswith(key) for one in typed)
        require(not value or wish, key, value, "nothing, unless it is typed")
    require(NAME.holds(composed.name), "name", composed.name, NAME.allowed)
    folder = command.results
    _check_inside("hydra.sweep.dir" if command.many else "hydra.run.dir", folder, typed)
    subdir = str(node["sweep"]["subdir"])
    if command.many and subdir != _SUBDIR:
        key, plain = "hydra.sweep.subdir", _COUNTERS.sub("0", subdir)
        allowed = "a folder that nothing but ${hydra.job.num} is put into, unless it is typed"
        require("${" not in plain or key in typed, key, subdir, allowed)
        _check_inside(key, folder / plain, typed, folder)


def _check_plugin(composed: DictConfig, key: str, value: Any, wish: bool) -> None:
    """Refuse an option of a launcher or sweeper that a file may not state."""
    if wish:
        return
    _, kind, name = key.split(".")[:3]
    # a line break would end the comment that tells a scheduler, and begin a command
    require(str(value).isprintable(), key, value, "without line breaks, unless it is typed")
    if name in _RESOURCES:
        return
    choice = composed.hydra.runtime.choices[f"hydra/{kind}"]
    plain = compose_or_none([f"hydra/{kind}={choice}"])
    default = None if plain is None else at({"hydra": as_written(plain.hydra)}, key)
    require(value == default, key, value, "its default, unless it is typed: it may run commands")


def _check_inside(key: str, folder: Path, typed: Collection[str], above: Path = Path()) -> None:
    """Refuse an untyped folder not inside the current one, or `above`; `outputs` may be a link."""
    require("\0" not in str(folder), key, folder, "a text without the character NUL")
    real = (Path.cwd() / folder).resolve()
    roots = [(Path.cwd() / one).resolve() for one in (Path(), above, Path("outputs"))]
    inside = ".." not in folder.parts and any(real.is_relative_to(root) for root in roots)
    require(
        inside or key in typed, key, folder, "a folder below the current one, unless it is typed"
    )


@contextmanager
def hydra_of_its_own(typed: Typed) -> Iterator[None]:
    """A Hydra without state, libraries as they begin, and a command's environment, for one thread
    at a time; all are put back. ConfigError if there is no folder as given with --config-dir.
    """
    if typed.own is not None:
        require(typed.own.is_dir(), "--config-dir", typed.own, "there is no such folder")
    variables = [name for text in typed.texts for name in _READ.findall(text)]
    # Hydra's errors reach us as they are, not printed
    environment = {VARIABLES: " ".join(variables), _FULL_ERROR: "1"}
    with _one_at_a_time, env_override(environment), as_libraries_begin(), composed_quickly():
        hydra, config = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
        base, name = VersionBase.instance().getbase(), JobRuntime.instance().get("name")
        root = logging.getLogger()
        level, handlers = root.level, list(root.handlers)
        GlobalHydra.instance().clear()
        behave_as_1_3()
        JobRuntime.instance().set("name", "fedclust")
        try:
            yield
        finally:
            GlobalHydra.instance().hydra, HydraConfig.instance().cfg = hydra, config
            VersionBase.instance().version_base = base
            JobRuntime.instance().set("name", name)
            root.setLevel(level)
            root.handlers[:] = handlers


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
    """Which folders there were before Hydra made those of the results, unchecked yet.

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


def show(given: argparse.Namespace, typed: Typed) -> None:
    """Let Hydra print what --cfg, --info or --hydra-help asks for."""
    with hydra_of_its_own(typed):
        # hydra.main would read the user's files without their scales
        shown = Hydra.create_main_hydra2("fedclust", search_path(typed.own))
        if given.hydra_help:
            shown.hydra_help("config", get_args_parser(), given)
        elif given.cfg:
            shown.show_cfg("config", list(typed.texts), given.cfg, given.package, given.resolve)
        else:
            shown.show_info(given.info, "config", list(typed.texts))

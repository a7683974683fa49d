"""What a config may tell Hydra: a file may come from anywhere, what was typed is the user's wish.

Hydra makes objects from its own part of a config and makes folders before a job is checked, so that
part is checked first. A file may state a sweep and a launcher's options; where files go and what
else runs is the user's to type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from fedclust.config.schema import NAME
from fedclust.helpers.errors import require
from fedclust.launch.compose import compose_or_none

_PLUGINS = ("hydra_plugins.", "hydra._internal.core_plugins.", "optuna.samplers.")
_SUBDIR = (
    "${fedclust_job:${hydra:overrides.task},${hydra:runtime.choices.algorithm},${hydra:sweep.dir}}"
)
_TYPED_ONLY = ("job.env_set", "job.env_copy", "job.chdir", "output_subdir")  # empty unless typed
_NO_LOGGING = {"version": 1, "root": None, "disable_existing_loggers": False}
# numbers and names that a cluster's scheduler asks for; what else a plug-in takes may run commands
_RESOURCES = {
    *("_target_", "n_jobs", "backend", "prefer", "require", "verbose", "timeout", "pre_dispatch"),
    *("batch_size", "max_nbytes", "mmap_mode", "timeout_min", "cpus_per_task", "gpus_per_node"),
    *("tasks_per_node", "mem_gb", "nodes", "partition", "qos", "comment", "constraint", "exclude"),
    *("gres", "cpus_per_gpu", "gpus_per_task", "mem_per_gpu", "mem_per_cpu", "account"),
    *("signal_delay_s", "max_num_timeout", "array_parallelism"),
    *("params", "max_batch_size", "direction", "n_trials", "sampler", "max_failure_rate"),
}
_COUNTERS = re.compile(r"\$\{hydra[.:]job\.(num|id|override_dirname)\}")


def check_hydra(composed: DictConfig, overrides: Sequence[str], *, many: bool) -> Path:
    """Check Hydra's part of a composed config, before Hydra acts on it.

    Args:
        composed: with the node `hydra`.
        overrides: as typed.
        many: whether a sweep is to start.

    Returns:
        The folder that the results go to: the job's, or the sweep's.

    Raises:
        ConfigError: naming the key.
    """
    typed = {override.lstrip("+~").partition("=")[0] for override in overrides}
    node = OmegaConf.to_container(composed.hydra, resolve=False)
    assert isinstance(node, dict)
    for key, value in _entries(node, "hydra"):
        wish = any(key == one or key.startswith(f"{one}.") for one in typed)
        last = key.rpartition(".")[2]
        if last == "_target_":
            allowed = "a plug-in of Hydra, unless it is typed"
            require(str(value).startswith(_PLUGINS) or wish, key, value, allowed)
        if key.startswith(("hydra.launcher.", "hydra.sweeper.")):
            _check_plugin(composed, key, value, wish)
    for name in ("job_logging", "hydra_logging"):
        key = f"hydra.{name}"
        wish = any(one.replace("/", ".").startswith(key) for one in typed)
        require(node[name] == _NO_LOGGING or wish, key, "…", "as it is by default, unless typed")
    for name in _TYPED_ONLY:
        key, value = f"hydra.{name}", OmegaConf.select(composed.hydra, name)
        wish = any(one.startswith(key) for one in typed)
        require(not value or wish, key, value, "nothing, unless it is typed")
    require(NAME.holds(composed.name), "name", composed.name, NAME.allowed)
    HydraConfig.instance().set_config(composed)
    key = "hydra.sweep.dir" if many else "hydra.run.dir"
    folder = Path(str(OmegaConf.select(composed, key)))
    _check_inside(key, folder, typed)
    subdir = str(node["sweep"]["subdir"])
    if many and subdir != _SUBDIR:
        key, plain = "hydra.sweep.subdir", _COUNTERS.sub("0", subdir)
        allowed = "a folder that nothing but ${hydra.job.num} is put into, unless it is typed"
        require("${" not in plain or key in typed, key, subdir, allowed)
        _check_inside(key, folder / plain, typed, folder)
    return folder


def _check_plugin(composed: DictConfig, key: str, value: Any, wish: bool) -> None:
    """Refuse an option of a launcher or sweeper that a file may not state.

    Raises:
        ConfigError: naming the key.
    """
    _, kind, name, *below = key.split(".")
    if wish:
        return
    # a line break would end the comment that tells a scheduler, and begin a command
    require(str(value).isprintable(), key, value, "without line breaks, unless it is typed")
    if name in _RESOURCES:
        return
    choice = composed.hydra.runtime.choices[f"hydra/{kind}"]
    plain = compose_or_none([f"hydra/{kind}={choice}"])
    default = None if plain is None else OmegaConf.to_container(plain.hydra[kind], resolve=False)
    for one in (name, *below):
        default = default.get(one) if isinstance(default, Mapping) else None
    require(value == default, key, value, "its default, unless it is typed: it may run commands")


def _check_inside(key: str, folder: Path, typed: set[str], above: Path = Path()) -> None:
    """Refuse a folder that was not typed and is not inside the current one, or inside `above`.

    `outputs` itself may be a link to another disk.
    """
    require("\0" not in str(folder), key, folder, "a text without the character NUL")
    real = (Path.cwd() / folder).resolve()
    roots = [(Path.cwd() / one).resolve() for one in (Path(), above, Path("outputs"))]
    inside = ".." not in folder.parts and any(real.is_relative_to(root) for root in roots)
    require(
        inside or key in typed, key, folder, "a folder below the current one, unless it is typed"
    )


def _entries(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Every entry below a node with its dotted key."""
    pairs = node.items() if isinstance(node, Mapping) else enumerate(node)
    for name, value in pairs:
        yield f"{key}.{name}", value
        if isinstance(value, Mapping | list):
            yield from _entries(value, f"{key}.{name}")

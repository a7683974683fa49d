"""Configs as a run would compose them, in a fraction of the time.

Hydra takes a tenth of a second and more for a config. What it composes depends on the choices of
files alone, and most choices are one node each, whatever else is chosen. So a process reads them
once, composes those that name other files, one of every group at a time, and puts its configs
together from their nodes; values are then set as Hydra sets them.
"""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

# registers the schema and the resolver as the command does
import fedclust.launch.compose  # noqa: F401 - registers the schema
from fedclust.config.parts import PARTS
from fedclust.config.schema import resolve
from fedclust.config.tree import CONF
from fedclust.launch.scales import SizedFiles, address
from fedclust.launch.typed import job_folder

# groups of which a choice is one node
NODES = tuple(sorted(PARTS.keys() - {"tracker"}))


@cache
def composed(*overrides: str) -> dict[str, Any]:
    """The config of a job, resolved."""
    return resolve(unresolved(*overrides), {})


@cache
def with_algorithm(name: str, *overrides: str) -> dict[str, Any]:
    """The config of a job with another algorithm than its experiment names first, resolved.

    No override and no experiment may set an option of the algorithm, for it would be lost here.
    """
    config = unresolved(*overrides)
    config.algorithm = node("algorithm", name)
    return resolve(config, {})


def _is_one_node(group: str, name: str) -> bool:
    """Whether a choice leaves other groups alone."""
    file = CONF / group / f"{name}.yaml"
    return not file.is_file() or "_global_" not in file.read_text()


def unresolved(*overrides: str) -> DictConfig:
    """The config of a job, for the caller to change."""
    choices = [one for one in overrides if _is_choice(one)]
    pairs = [one.partition("=")[::2] for one in choices]
    if all(group in NODES and _is_one_node(group, name) for group, name in pairs):
        config = copied(chosen())
        for group, name in pairs:
            config[group] = node(group, name)
    else:
        config = copied(chosen(*choices))
    values = OverridesParser.create().parse_overrides([o for o in overrides if not _is_choice(o)])
    ConfigLoaderImpl._apply_overrides_to_config(values, config)
    return config


def copied(config: DictConfig) -> DictConfig:
    """A config to be changed; deepcopy takes five times as long."""
    copy: DictConfig = pickle.loads(pickle.dumps(config))
    return copy


def names(group: str) -> list[str]:
    """The choices of a group."""
    files = (CONF / group).rglob("*.yaml")
    return sorted(str(file.relative_to(CONF / group).with_suffix("")) for file in files)


def node(group: str, name: str) -> DictConfig:
    """A choice of one of `NODES`, its interpolations open."""
    alone = _read(group, name)
    if alone is not None:
        return copied(alone)
    number = names(group).index(name)
    others = {one: names(one) for one in NODES}
    choices = [f"{one}={found[number % len(found)]}" for one, found in others.items()]
    return copied(chosen(*choices))[group]


@cache
def _read(group: str, name: str) -> DictConfig | None:
    """A choice whose file names no others, as Hydra reads it; None for the rest."""
    found = SizedFiles("fedclust", address(CONF)).load_config(f"{group}/{name}")
    assert isinstance(found.config, DictConfig)
    return None if "defaults" in found.config or found.header.get("package") else found.config


@cache
def chosen(*choices: str) -> DictConfig:
    """What Hydra composes for choices of groups; not to be changed."""
    assert job_folder([], "x") == "x"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(choices))


def _is_choice(override: str) -> bool:
    """Whether Hydra has to look for files: a choice of a group, or no plain KEY=VALUE."""
    key = override.partition("=")[0]
    return not key.replace(".", "").isidentifier() or (CONF / key).is_dir()

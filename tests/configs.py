"""Configs as a run would compose them, in a fraction of the time.

Hydra takes a tenth of a second and more for a config. What it composes depends on the choices of
files alone, and most choices are one node each, whatever else is chosen. So a process reads them
once, composes those that choose for other groups, one of every group at a time, and puts its
configs together from their nodes; values are then set as Hydra sets them.
"""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

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
    """A choice as Hydra puts it together; None for one that sets other groups' choices.

    Its file names others as `parent`, of the same group, or as `/group@key: choice`.
    """
    found = SizedFiles("fedclust", address(CONF)).load_config(f"{group}/{name}")
    assert isinstance(found.config, DictConfig)
    if found.header.get("package"):
        return None
    own = copied(found.config)
    named = list(own.pop("defaults", []))
    made = OmegaConf.create({})
    for one in named if "_self_" in named else [*named, "_self_"]:
        if one == "_self_":
            made.merge_with(own)
            continue
        key, choice = ("", one) if isinstance(one, str) else next(iter(one.items()))
        if key and not key.startswith("/"):  # an override
            return None
        other, _, place = key.removeprefix("/").partition("@")
        below = _read(other or group, choice)
        if below is None:
            return None
        made.merge_with(_nested(place, below))
    return made


def _nested(place: str, config: DictConfig) -> DictConfig:
    """A config at a dotted key of another; at "" itself."""
    for name in reversed(place.split(".") if place else []):
        config = OmegaConf.create({name: config})
    return config


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

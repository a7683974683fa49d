"""A config from overrides: Hydra's, of our tree with a user's own in front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedclust.config import schema
from fedclust.config.expansion import check_expansion
from fedclust.config.read import read_config
from fedclust.config.tree import choices
from fedclust.helpers.errors import ConfigError, UserError, require
from fedclust.helpers.files import read_text
from fedclust.launch import scales
from fedclust.launch.job_folder import job_folder
from fedclust.launch.surroundings import read_environment


def loader(own: Path | None) -> ConfigLoaderImpl:
    """What composes configs of our tree.

    Args:
        own: the folder given with --config-dir.
    """
    return ConfigLoaderImpl(config_search_path=scales.search_path(own))


def compose(overrides: Sequence[str], own: Path | None = None) -> DictConfig:
    """The whole config with the node `hydra`; of a key with several values, which one is open.

    Args:
        overrides: as typed.
        own: the folder given with --config-dir.

    Raises:
        ConfigError: for files of which Hydra cannot say what is wrong.
        hydra.errors.HydraException: for all others.
    """
    try:
        config = loader(own).load_configuration(
            "config", list(overrides), RunMode.MULTIRUN, validate_sweep_overrides=False
        )
        check_expansion(config)
    except (HydraException, OmegaConfBaseException):
        _check_mappings(overrides, own)
        raise
    except (YAMLError, UserError, OSError):
        raise
    except RecursionError as error:
        raise ConfigError(
            "the config cannot be put together: a key or a file refers to itself"
        ) from error
    except UnicodeDecodeError as error:
        for file in sorted(own.rglob("*.yaml")) if own else ():
            read_text(file)  # says which it is
        raise ConfigError(f"a config file is no text in UTF-8: {error}") from error
    except Exception as error:  # Hydra meets a list or a number where it expects a mapping
        words = " ".join(str(error).split())
        raise ConfigError(
            f"the config cannot be put together ({words}): is every override KEY=VALUE, and every "
            "file of --config-dir a mapping?"
        ) from error
    return config


def _check_mappings(overrides: Sequence[str], own: Path | None) -> None:
    """Refuse a chosen file of the user's folder that holds no keys, of which Hydra names none."""
    for text in overrides if own else ():
        group, _, choice = text.lstrip("+").partition("=")
        file = Path(own or "", group.partition("@")[0], f"{choice}.yaml")
        if file.is_file():
            node = read_config(file)
            named = isinstance(node, dict) and all(isinstance(key, str) for key in node)
            require(node is None or named, str(file), node, "a mapping, whose keys are texts")


def in_mode(
    composed: DictConfig, overrides: Sequence[str], own: Path | None, mode: RunMode
) -> DictConfig:
    """The config of one job or of a sweep, as Hydra composes it where the mode is typed too.

    Args:
        composed: what `compose` gave for the overrides, or for the first of several values;
            changed in place.
        overrides, own: as for `compose`.
        mode: one job, or a sweep.

    Raises:
        hydra.errors.HydraException: of one job for several values of a key, or an open choice.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    if mode is RunMode.RUN:
        ConfigLoaderImpl.validate_sweep_overrides_legal(parsed, mode, from_shell=True)
        choices = composed.hydra.runtime.choices
        if any(OmegaConf.is_missing(choices, group) for group in choices):  # a sweep may leave it
            composed = loader(own).load_configuration("config", list(overrides), mode)
    OmegaConf.set_readonly(composed.hydra, False)
    composed.hydra.mode = mode
    composed.hydra.overrides.hydra.append(f"hydra.mode={mode.name}")
    task = [one.input_line for one in parsed if not one.is_hydra_override()]
    composed.hydra.overrides.task = task
    return composed


def compose_or_none(overrides: Sequence[str], own: Path | None = None) -> DictConfig | None:
    """See `compose`; None where the overrides give no config."""
    try:
        return compose(overrides, own)
    except (HydraException, OmegaConfBaseException, YAMLError, UserError, OSError):
        return None


def node_at(config: DictConfig, key: str) -> Any:
    """The value of a dotted key, interpolations as they are written; None where it has none."""
    node: Any = OmegaConf.to_container(config, resolve=False)
    for name in key.split(".") if key else ():
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def names_of(group: str, own: Path | None = None) -> dict[str, Path | None]:
    """The choices of a group by name, with the file of each where it is one of ours."""
    if not group.startswith("hydra/"):
        return {**choices(group, own)}
    store = ConfigStore.instance()
    names = store.list(group) if store.get_type(group) is ObjectType.GROUP else []
    return dict.fromkeys(sorted(name.removesuffix(".yaml") for name in names))


def checked_name(name: str) -> str:
    """The name, which becomes a folder before a job is checked.

    Raises:
        ConfigError: unless the folder is below outputs/.
    """
    require(schema.NAME.holds(name), "name", name, schema.NAME.allowed)
    return str(name)


def register(keys: type = schema.RunConfig) -> None:
    """Make Hydra know the keys of the top level, our way to read files, and our resolvers.

    Args:
        keys: the schema.
    """
    setup_globals()
    scales.register()
    Plugins.instance()  # registers the launchers and sweepers there are
    ConfigStore.instance().store(name="schema", node=keys)
    schema.use(keys)
    for name, resolver in (
        ("fedclust_job", job_folder),
        ("fedclust_name", checked_name),
        ("oc.env", read_environment),
    ):
        OmegaConf.register_new_resolver(name, resolver, replace=True)


register()

"""What may stand on the command line: keys and choices, found without PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedclust.commands.list import choices
from fedclust.config import schema
from fedclust.config.tree import CONF

# which extra brings a choice of Hydra that is not there
_EXTRAS = {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"}
EXTRA_OF = {f"hydra/launcher/{name}": extra for name, extra in (*_EXTRAS.items(), ("ray", "ray"))}
EXTRA_OF["hydra/sweeper/optuna"] = "optuna"


def roots(own: Path | None) -> list[Path]:
    """The config trees, a user's own in front."""
    return [CONF] if own is None else [own, CONF]


def composed(overrides: Sequence[str], own: Path | None = None) -> DictConfig | None:
    """The config that overrides give, with Hydra's part; None where they give none.

    Args:
        overrides: as typed; those that are refused make the whole be refused.
        own: the folder given with --config-dir.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from hydra.types import RunMode

    from fedclust.config.scales import search_path

    schema.register()
    Plugins.instance()  # registers the launchers and sweepers there are
    try:
        return ConfigLoaderImpl(config_search_path=search_path(own)).load_configuration(
            "config", list(overrides), RunMode.MULTIRUN, validate_sweep_overrides=False
        )
    except (HydraException, OmegaConfBaseException, YAMLError, OSError):
        return None


def node_at(config: DictConfig, key: str) -> Any:
    """What stands at a dotted key, interpolations as they are written; None where there is
    nothing.
    """
    node: Any = OmegaConf.to_container(config, resolve=False)
    for name in key.split(".") if key else ():
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def all_keys(node: Any, above: str = "") -> Iterator[str]:
    """The dotted keys below a node, but for those that begin with _."""
    for name, value in node.items() if isinstance(node, Mapping) else ():
        if not str(name).startswith("_"):
            yield f"{above}{name}"
            yield from all_keys(value, f"{above}{name}.")


def launchers(group: str) -> list[str]:
    """The choices of one of Hydra's groups, such as hydra/launcher."""
    from hydra.core.config_store import ConfigStore
    from hydra.core.object_type import ObjectType
    from hydra.core.plugins import Plugins

    Plugins.instance()
    store = ConfigStore.instance()
    if store.get_type(group) is not ObjectType.GROUP:
        return []
    return sorted(name.removesuffix(".yaml") for name in store.list(group))


def names_of(group: str, own: Path | None = None) -> dict[str, Path | None]:
    """The choices of a group by name, with the file of each where it is one of ours."""
    if group.startswith("hydra/"):
        return dict.fromkeys(launchers(group))
    return {**choices(group, roots(own))}

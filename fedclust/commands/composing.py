"""A config from overrides, by a Hydra that knows where ours are."""

from __future__ import annotations

from pathlib import Path

from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedclust.config.tree import CONF
from fedclust.helpers.errors import ConfigError, UserError


def hydra_for(own: Path | None) -> Hydra:
    """Hydra with our config tree, and a user's own in front.

    Args:
        own: the folder given with --config-dir.
    """
    path = create_config_search_path(str(CONF))
    if own is not None:
        path.prepend(provider="command-line", path=f"file://{own}", anchor="schema")
    return Hydra.create_main_hydra2(task_name="fedclust", config_search_path=path)


def compose(main_hydra: Hydra, overrides: list[str]) -> DictConfig:
    """The whole config.

    Raises:
        ConfigError: for files of which Hydra cannot say what is wrong.
        hydra.errors.HydraException: for all others.
    """
    try:
        return main_hydra.compose_config(
            "config", overrides, RunMode.MULTIRUN, validate_sweep_overrides=False
        )
    except (HydraException, OmegaConfBaseException, YAMLError, UserError, OSError):
        raise
    except RecursionError as error:
        raise ConfigError(
            "the config cannot be put together: a key or a file refers to itself"
        ) from error
    except Exception as error:  # Hydra meets a list or a number where it expects a mapping
        said = " ".join(str(error).split())
        raise ConfigError(
            f"the config cannot be put together ({said}): is every override KEY=VALUE, and every "
            "file of --config-dir a mapping?"
        ) from error

"""A config from overrides, by a Hydra that knows where ours are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import configure_log
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedclust.config.scales import search_path
from fedclust.helpers.errors import ConfigError, UserError


class GoingOn(Hydra):
    """A Hydra that need not compose again what has been composed already."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._composed: DictConfig | None = None
        self._added: Sequence[str] = ()

    def go_on_from(self, composed: DictConfig, added: Sequence[str]) -> None:
        """Take this config when one is asked for the next time.

        Args:
            composed: by `compose`.
            added: the last of the overrides that will be given, which `composed` does not have yet:
                values of Hydra's own part.
        """
        choices = composed.hydra.runtime.choices
        # a sweep may leave a choice open that a job must make
        if not any(OmegaConf.is_missing(choices, group) for group in choices):
            self._composed, self._added = composed, added

    def compose_config(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        with_log_configuration: bool = False,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """As Hydra's, which does the same at twice the cost."""
        config, self._composed = self._composed, None
        if config is None:
            return super().compose_config(
                config_name,
                overrides,
                run_mode,
                with_log_configuration,
                from_shell,
                validate_sweep_overrides,
            )
        parsed = OverridesParser.create().parse_overrides(overrides)
        ConfigLoaderImpl.validate_sweep_overrides_legal(parsed, run_mode, from_shell)
        OmegaConf.set_readonly(config.hydra, False)
        last = parsed[len(parsed) - len(self._added) :]
        ConfigLoaderImpl._apply_overrides_to_config(last, config)
        config.hydra.overrides.hydra.extend(self._added)
        if with_log_configuration:
            configure_log(config.hydra.hydra_logging, config.hydra.verbose)
        return config


def hydra_for(own: Path | None) -> GoingOn:
    """Hydra with our config tree, and a user's own in front.

    Args:
        own: the folder given with --config-dir.
    """
    ours = GoingOn("fedclust", ConfigLoaderImpl(config_search_path=search_path(own)))
    GlobalHydra.instance().initialize(ours)
    return ours


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

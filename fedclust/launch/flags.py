"""The flags of `fedclust run` that are Hydra's own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from fedclust.config.tree import CONF
from fedclust.helpers.errors import ConfigError, did_you_mean
from fedclust.launch.surroundings import hydra_of_its_own


def parsed_flags(arguments: Sequence[str]) -> argparse.Namespace:
    """Hydra's reading of its flags.

    Raises:
        ConfigError: for a flag that it does not know.
    """

    def refuse(message: str) -> NoReturn:
        wrong = message.removeprefix("unrecognized arguments: ").split(" ")[0]
        flags = parser._option_string_actions  # argparse shows them nowhere else
        meant = wrong.startswith("--") and did_you_mean(wrong, flags)
        more = meant or "`fedclust run --help` shows what there is"
        raise ConfigError(f"fedclust run: {message}; {more}")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(list(arguments))


def show(arguments: Sequence[str], own: Path | None) -> None:
    """Let Hydra print what --cfg, --info or --hydra-help asks for.

    Args:
        arguments: as typed.
        own: the folder given with --config-dir.
    """
    given, sys.argv = sys.argv, ["fedclust run", *arguments]
    try:
        with hydra_of_its_own(own, arguments):
            hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(_no_job)()
    finally:
        sys.argv = given


def _no_job(config: DictConfig) -> None:
    """What Hydra would run; these flags show a config only."""
    raise AssertionError(config)

"""The flags of `fedclust run` that are Hydra's own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser

from fedclust.helpers.errors import ConfigError, did_you_mean
from fedclust.launch.scales import search_path
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


def show(given: argparse.Namespace, own: Path | None) -> None:
    """Let Hydra print what --cfg, --info or --hydra-help asks for.

    Args:
        given: what `parsed_flags` has read.
        own: the folder given with --config-dir.

    Raises:
        ConfigError: if there is no such folder.
        hydra.errors.HydraException: for a config that cannot be composed.
    """
    with hydra_of_its_own(own, given.overrides):
        # hydra.main would read the user's files without their scales
        shown = Hydra.create_main_hydra2("fedclust", search_path(own))
        if given.hydra_help:
            shown.hydra_help("config", get_args_parser(), given)
        elif given.cfg:
            shown.show_cfg("config", given.overrides, given.cfg, given.package, given.resolve)
        else:
            shown.show_info(given.info, "config", given.overrides)

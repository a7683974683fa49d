"""Every name of Hydra and OmegaConf that their documentation does not promise, or that differs
between the versions that are allowed: the one file to look at for a new one.

A name is imported when it is asked for: who reads a config file alone has no use for Hydra, which
takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydra._internal.callbacks import Callbacks
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.core_plugins.file_config_source import FileConfigSource
    from hydra._internal.hydra import Hydra
    from hydra._internal.sources_registry import SourcesRegistry
    from hydra._internal.utils import create_config_search_path, get_args_parser
    from hydra.core.override_parser.types import Override
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig
    from omegaconf._utils import get_yaml_loader

__all__ = [
    "Callbacks",
    "ConfigLoaderImpl",
    "FileConfigSource",
    "Hydra",
    "SourcesRegistry",
    "create_config_search_path",
    "get_args_parser",
    "get_yaml_loader",
]
PLUG_INS = "hydra._internal.core_plugins."  # in front of the targets of Hydra's own
# the modules of a name, newest version first
_WHERE = {
    "Callbacks": ("hydra._internal.callbacks",),
    "ConfigLoaderImpl": ("hydra._internal.config_loader_impl",),
    "FileConfigSource": ("hydra._internal.core_plugins.file_config_source",),
    "Hydra": ("hydra._internal.hydra",),
    "SourcesRegistry": ("hydra._internal.sources_registry",),
    "create_config_search_path": ("hydra._internal.utils",),
    "get_args_parser": ("hydra._internal.utils",),
    "get_yaml_loader": ("omegaconf._yaml", "omegaconf._utils"),  # of OmegaConf 2.4, of 2.3
}


def __getattr__(name: str) -> Any:
    """The name, from the first of its modules that has it."""
    for module in _WHERE.get(name, ()):
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise AttributeError(f"{__name__} has no {name}: this version of Hydra or OmegaConf lacks it")


def register_resolver(name: str, resolver: Callable[..., Any]) -> None:
    """Make `${name:…}` what a function returns; in place of what it was."""
    from omegaconf import OmegaConf

    register: Any = OmegaConf.register_resolver  # of 2.4, where the other is deprecated
    if "replace" not in signature(register).parameters:
        register = OmegaConf.register_new_resolver  # of 2.3, where the one is
    register(name, resolver, replace=True)


@contextmanager
def composed_quickly() -> Iterator[None]:
    """While the block runs, OmegaConf parses equal interpolations once (each takes half a
    millisecond, a job has dozens), and Hydra lists the choices so far only for a file whose
    defaults refer to them, which takes a quarter of composing where it does so for every file.
    """
    from hydra._internal import defaults_list
    from omegaconf import base

    hydras: Any = defaults_list
    omegaconfs: Any = base

    def choices_so_far(overrides: Any, defaults: Sequence[Any], self_added: bool) -> Any:
        asked = any(one.is_interpolation() for one in defaults)
        return listed(overrides, defaults, self_added) if asked else None

    parse: Any = getattr(omegaconfs, "parse", None)
    listed: Any = getattr(hydras, "_create_interpolation_map", None)
    if parse is None or listed is None:  # of a version that does it otherwise
        yield
        return
    omegaconfs.parse = lru_cache(maxsize=512)(parse)  # what it returns is only looked at
    hydras._create_interpolation_map = choices_so_far
    try:
        yield
    finally:
        omegaconfs.parse, hydras._create_interpolation_map = parse, listed


def behave_as_1_3() -> None:
    """Make Hydra behave as version 1.3, without the warning that 1.4 gives of asking for it."""
    from hydra import version

    version.VersionBase.instance().setbase(version._get_version("1.3"))


def failure_of(done: JobReturn) -> Exception:
    """What stopped a job that has failed; `return_value` would print lines of its own."""
    error: Exception = done._return_value
    return error


def put_values(config: DictConfig, job: Sequence[Override], values: Sequence[Override]) -> None:
    """Put some `values` of a `job` into what is composed of its others, as Hydra does after it has
    composed them.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname

    ConfigLoaderImpl._apply_overrides_to_config(list(values), config)
    config.hydra.overrides.task = [one.input_line for one in job]
    named = config.hydra.job.config.override_dirname
    config.hydra.job.override_dirname = get_overrides_dirname(
        overrides=list(job),
        kv_sep=named.kv_sep,
        item_sep=named.item_sep,
        exclude_keys=named.exclude_keys,
    )


def normalised(source: FileConfigSource, path: str) -> str:
    """The path of a config as a source's file, with its ending."""
    name: str = source._normalize_file_name(path)
    return name


def header_of(source: FileConfigSource, text: str) -> dict[str, str | None]:
    """What the comments in front of a config say of its package."""
    header: dict[str, str | None] = source._get_header_dict(text)
    return header

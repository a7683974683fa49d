"""What Hydra reads from our config files, remembered for a test process by the choices made.

A command composes in a tenth of a second, most of which goes into the same forty files as in the
test before. Values are set anew each time, and so is all that a folder of a user's own, a search
path or one of Hydra's own groups has a say in.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hydra import version
from hydra._internal import config_loader_impl
from hydra._internal.defaults_list import DefaultsList, Overrides
from omegaconf import DictConfig

from fedclust.config import schema
from fedclust.config.tree import CONF
from fedclust.launch.scales import address

_OURS = {"pkg://hydra.conf", address(CONF), f"file://{CONF}", "structured://"}


class _Defaults(list[Any]):
    """A defaults list that knows which choices made it."""

    key: tuple[Any, ...]


@contextmanager
def remembered_choices() -> Iterator[None]:
    """Within it, the same choices are read from their files once."""
    loader: Any = config_loader_impl.ConfigLoaderImpl
    list_defaults = config_loader_impl.create_defaults_list
    merge = loader._compose_config_from_defaults_list
    # pickled: a copy of a config takes five times as long as reading it
    lists: dict[tuple[Any, ...], bytes] = {}
    configs: dict[tuple[Any, ...], bytes] = {}

    def listed(
        repo: Any,
        config_name: str,
        overrides_list: list[Any],
        prepend_hydra: bool,
        skip_missing: bool,
    ) -> DefaultsList:
        values = Overrides(repo=repo, overrides_list=overrides_list).config_overrides
        no_choice = {id(one) for one in values}
        choices = [
            one
            for one in overrides_list
            if id(one) not in no_choice and not one.is_sweep_override()
        ]
        sources = {f"{one.scheme()}://{one.path}" for one in repo.get_sources()}
        given = config_name, overrides_list, prepend_hydra, skip_missing
        if sources != _OURS or any(one.is_hydra_override() for one in choices):
            return list_defaults(repo, *given)
        texts = tuple(one.input_line for one in choices)
        key = (config_name, texts, prepend_hydra, skip_missing, version.getbase(), schema._schema)
        if key not in lists:
            lists[key] = pickle.dumps(list_defaults(repo, *given))
        found: DefaultsList = pickle.loads(lists[key])
        found.overrides.config_overrides = found.config_overrides = values
        found.defaults = _Defaults(found.defaults)
        found.defaults.key = key
        return found

    def merged(self: Any, defaults: list[Any], repo: Any) -> DictConfig:
        if not isinstance(defaults, _Defaults):
            return merge(self, defaults, repo)
        if defaults.key not in configs:
            configs[defaults.key] = pickle.dumps(merge(self, defaults, repo))
        config: DictConfig = pickle.loads(configs[defaults.key])
        return config

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_loader_impl, "create_defaults_list", listed)
        patch.setattr(loader, "_compose_config_from_defaults_list", merged)
        yield

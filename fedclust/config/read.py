"""Configs from files, as OmegaConf reads them, by the parser of libyaml: a tenth of the time."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from yaml.constructor import ConstructorError

from fedclust.helpers.files import read_text
from fedclust.helpers.private import get_yaml_loader

_OURS: Any = get_yaml_loader()  # it takes 1e-3 for a number, and a date for text


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = _OURS.yaml_implicit_resolvers
    yaml_constructors = _OURS.yaml_constructors

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        names: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:str":
                if key.value in names:
                    found = f"found duplicate key {key.value}"
                    raise ConstructorError(None, None, found, key.start_mark)
                names.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_config(file: Path) -> Any:
    """What a config file holds, None if nothing; interpolations stay as they are written.

    Raises:
        OSError, ValueError, yaml.YAMLError: if it cannot be read.
    """
    read_text(file)  # says what is wrong with its bytes
    with file.open(encoding="utf-8") as stream:  # a stream has a name, for errors
        return yaml.load(stream, Loader=_Loader)


def written(config: Mapping[str, Any]) -> str:
    """A config of plain values as text, as OmegaConf writes it.

    Entries are written one by one: jobs of a sweep share most of theirs, and all of a config take
    as long as twenty parts of a job.
    """
    return "".join(_entry(pickle.dumps({name: value})) for name, value in config.items())


@lru_cache(maxsize=256)
def _entry(pickled: bytes) -> str:
    """An entry of a config as text."""
    return OmegaConf.to_yaml(OmegaConf.create(pickle.loads(pickled)))

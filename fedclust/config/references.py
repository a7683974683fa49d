"""Which keys a config refers to, as in `${solver.lr}`, and where: what a part of a job reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedclust.config.read import read_config
from fedclust.config.schema import LIKE_SOLVER
from fedclust.config.tree import CONF, choices

_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)\}")


def places(node: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Where a node refers to keys: the dotted place of each reference, and the key."""
    if isinstance(node, str):
        yield from ((at, key) for key in _REFERENCE.findall(node))
    elif isinstance(node, list):
        for entry in node:
            yield from places(entry, at)
    elif isinstance(node, Mapping):
        if node.get("_target_") == LIKE_SOLVER:
            options = (name for name in _solver_options() if name not in node)
            yield from ((f"{at}.{name}", f"solver.{name}") for name in options)
        for name, below in node.items():
            yield from places(below, f"{at}.{name}" if at else str(name))


def keys_read(nodes: Iterable[Any], plain: Mapping[Any, Any]) -> set[str]:
    """The keys that nodes, or sets of keys, refer to in the plain config, directly or not."""
    closed, new = set[str](), set[str]()
    for node in nodes:
        new |= node if isinstance(node, frozenset) else {key for _, key in places(node)}
    while new:
        closed |= new
        new = {key for one in new for _, key in places(at(plain, one))} - closed
    return closed


def at(plain: Any, key: str) -> Any:
    """The value of a dotted key; None where there is none."""
    for name in key.split("."):
        plain = plain.get(name) if isinstance(plain, Mapping) else None
    return plain


def entries(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Everything below a node with its dotted key, that of a list's entry with its number."""
    pairs = node.items() if isinstance(node, Mapping) else enumerate(node)
    for name, value in pairs:
        yield f"{key}.{name}", value
        if isinstance(value, Mapping | list):
            yield from entries(value, f"{key}.{name}")


def as_written(config: DictConfig) -> dict[Any, Any]:
    """A config with interpolations as they are written."""
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    return plain


def is_read(key: str, read: Iterable[str]) -> bool:
    """Whether one of the keys is this one, stands above it or below it."""
    return any(f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.") for one in read)


@cache
def of_file(file: Path) -> frozenset[str]:
    """What the file of a choice refers to, with the files that it begins from."""
    node = read_config(file) or {}
    read = {key for _, key in places(node)}
    for entry in node.get("defaults", ()):
        parent = file.parent / f"{entry}.yaml"
        if isinstance(entry, Mapping):  # such as /cluster_method@method: kmeans
            ((group, choice),) = entry.items()
            parent = CONF / group.partition("@")[0].strip("/") / f"{choice}.yaml"
        if parent.is_file():
            read |= of_file(parent)
    return frozenset(read)


@cache
def _solver_options() -> frozenset[str]:
    """What a solver that is like the run's takes over from it, where it does not name it itself."""
    files = choices("solver", None).values()
    return frozenset(key for file in files for key in read_config(file))

"""The values of a config, held against the parts that read them before any of these is made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedclust.config.fits import choice
from fedclust.config.objects import Objects
from fedclust.config.parts import PARTS, SHARED, is_null
from fedclust.config.references import places
from fedclust.config.schema import check_keys
from fedclust.config.tree import CONF, choices_with
from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.files import read_text


def check_method(config: Mapping[str, Any], user_dir: Path | None = None) -> Objects:
    """Check all values but those that only the data, or the parts themselves, can judge.

    Args:
        config, user_dir: as for `fedclust.config.build.build`.

    Returns:
        What makes the parts.

    Raises:
        ConfigError: naming the key.
    """
    check_keys(config)
    objects = Objects(user_dir, {key: config[key] for key in SHARED})
    beside = (group for group, part in PARTS.items() if part.null and not is_null(config, group))
    for group in ("solver", *beside):
        objects.check(config[group], group)
    check_common(config["common"], objects)
    _check_auto(config, objects)
    objects.check(config["algorithm"], "algorithm")
    return objects


def _check_auto(config: Mapping[str, Any], objects: Objects) -> None:
    """Refuse num_clusters=auto of a method that needs a number, and name those that find it."""
    node: Any = config["algorithm"]
    by_place = {str(key): str(one) for key, one in (config.get("choices") or {}).items()}
    place, name = "algorithm", choice(config, "algorithm")
    while isinstance(node, Mapping) and "_target_" in node:
        auto = config["num_clusters"] == node.get("num_clusters") == "auto"
        if auto and (wanted := objects.misfit("auto", node["_target_"], ["num_clusters"])):
            grouping = re.compile("cluster_method")  # which finds it
            number = re.compile(r"^num_clusters: \$", re.MULTILINE)
            takes_number = choices_with("algorithm", number, objects.user_dir)
            found = choices_with("algorithm", grouping, objects.user_dir)
            finders = ", ".join(one for one in found if one not in takes_number)
            raise ConfigError(
                f"num_clusters=auto is not allowed: {name} takes {wanted}; "
                f"methods that find the number are {finders}"
            )
        node, place = node.get("base"), f"{place}.base"
        name = by_place.get(f"algorithm@{place}", name)


def check_common(common: Mapping[str, Any], objects: Objects) -> None:
    """Check what stands below `common` against the arguments that groups take from there.

    Raises:
        ConfigError: if no choice of any group reads a key, or none allows its value.
    """
    roots = [CONF] if objects.user_dir is None else [CONF, objects.user_dir]
    readers = common_readers(roots)
    for name, value in common.items():
        key = f"common.{name}"
        known = ", ".join(sorted(readers))
        require(name in readers, key, value, f"no group reads it; those that are read: {known}")
        wanted = list[str]()
        for reader in readers[name]:  # the first that allows it is enough: each is imported
            wanted.append(objects.misfit(value, *reader))
            if not wanted[-1]:
                break
        require("" in wanted, key, value, f"expected {' or '.join(dict.fromkeys(wanted))}")


def common_readers(roots: Sequence[Path]) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Who reads a key below `common`: a target, and the path of its argument."""
    readers: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for root in roots:
        for name, target, path in _our_readers() if root == CONF else _readers(root):
            readers.setdefault(name, []).append((target, path))
    return readers


@cache
def _our_readers() -> list[tuple[str, str, tuple[str, ...]]]:
    """Those of our own config tree, which stays as it is while a process runs."""
    return list(_readers(CONF))


def _readers(root: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The keys below `common` that a config tree reads, with target and path."""
    for file in sorted(root.rglob("*.yaml")):
        text = read_text(file)
        node = yaml.safe_load(text) if "${common." in text else None
        if isinstance(node, dict) and "_target_" in node:
            for place, key in places(node):
                above, _, name = key.partition(".")
                if above == "common":
                    yield name, str(node["_target_"]), tuple(place.split("."))

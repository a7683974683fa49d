"""The parts of a job: values are held against what reads them, and then the parts are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedclust.config.objects import Objects
from fedclust.config.parts import PARTS, is_null
from fedclust.config.read import read_config
from fedclust.config.references import places
from fedclust.config.schema import check_keys
from fedclust.config.tree import CONF, choices_with
from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.files import read_text

_MADE = (
    *("algorithm", "scenario", "partition", "tracker", "task"),
    *("server", "aggregation", "privacy", "attack", "compression", "clock"),
)
LOOKED_AT = ("attack", "algorithm", "scenario", "partition")  # which may not fit the task


@dataclass(frozen=True)
class Parts:
    """The parts of a job that need no data.

    Attributes:
        config: the job's, resolved.
        objects: what makes its parts.
        made: the parts by group, None where there is none; the method without layers.
    """

    config: Mapping[str, Any]
    objects: Objects
    made: Mapping[str, Any]

    @classmethod
    def checked(cls, config: Mapping[str, Any], user_dir: Path | None) -> Parts:
        """All of them; see `check_method`."""
        return cls.of(config, check_method(config, user_dir), _MADE)

    @classmethod
    def of(cls, config: Mapping[str, Any], objects: Objects, groups: Iterable[str]) -> Parts:
        """Those of some groups, and a task; ConfigError as `Objects.make`."""
        made = {
            group: objects.make(config[group], group)
            if group == "task" or not is_null(config, group)
            else None
            for group in groups
        }
        return cls(config, objects, made)

    @cached_property
    def choices(self) -> dict[str, str]:
        """Of every group, by key, where that is known."""
        chosen = self.config.get("choices") or {}
        return {str(group): str(one) for group, one in chosen.items()}

    def choice(self, group: str) -> str:
        """The value by which the part of a group was chosen; its class where nothing tells."""
        return choice(self.config, group)

    @cached_property
    def _named(self) -> dict[int, str]:
        by_place = {key.rpartition("@")[2]: f"{key}={one}" for key, one in self.choices.items()}
        return {
            id(one): by_place[place]
            for group in LOOKED_AT
            for place, one in placed(self.made.get(group), group)
            if place in by_place
        }

    def called(self, part: Any) -> str:
        """How a part, or one inside, was chosen: "algorithm@algorithm.base=ifca"; or its class."""
        return self._named.get(id(part)) or by_class(part)


def by_class(part: Any) -> str:
    """What a message calls a part of which nothing tells how it was chosen."""
    return type(part).__name__


def placed(part: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """A part and all parts that its fields hold, each with its dotted key."""
    yield place, part
    if is_dataclass(part):
        for field in fields(part):
            yield from placed(getattr(part, field.name, None), f"{place}.{field.name}")


def choice(config: Mapping[str, Any], group: str) -> str:
    """The value by which the part of a group was chosen; its class where nothing tells."""
    chosen = (config.get("choices") or {}).get(group)
    return str(chosen or config[group]["_target_"].rpartition(".")[2])


def check_method(config: Mapping[str, Any], user_dir: Path | None = None) -> Objects:
    """Check values that need no data or parts to be judged; returns what makes the parts."""
    check_keys(config)
    objects = Objects.for_job(config, user_dir)
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
    """ConfigError for a key below `common` that no choice reads, or a value that none allows.

    What conf/config.yaml sets is allowed: all choices are read only for other values.
    """
    roots = [CONF] if objects.user_dir is None else [CONF, objects.user_dir]
    others = {key: one for key, one in common.items() if not _is_set(key, one)}
    readers = common_readers(roots) if others else {}
    for name, value in others.items():
        key = f"common.{name}"
        known = ", ".join(sorted(readers))
        require(name in readers, key, value, f"no group reads it; those that are read: {known}")
        wanted = list[str]()
        for reader in readers[name]:  # the first that allows it is enough: each is imported
            wanted.append(objects.misfit(value, *reader))
            if not wanted[-1]:
                break
        # "one of a, b" says no more than "one of a, b, c"
        longer = [one for one in wanted if not any(two.startswith(f"{one}, ") for two in wanted)]
        require("" in wanted, key, value, f"expected {' or '.join(dict.fromkeys(longer))}")


def _is_set(name: str, value: Any) -> bool:
    """Whether conf/config.yaml sets a key below `common` to this value."""
    return name in _common() and repr(_common()[name]) == repr(value)


@cache
def _common() -> Mapping[str, Any]:
    """What conf/config.yaml sets below `common`."""
    node = OmegaConf.create({"common": read_config(CONF / "config.yaml")["common"]})
    return {str(name): value for name, value in node["common"].items()}


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
        node = read_config(file) if "${common." in text else None
        if isinstance(node, dict) and "_target_" in node:
            for place, key in places(node):
                above, _, name = key.partition(".")
                if above == "common":
                    yield name, str(node["_target_"]), tuple(place.split("."))

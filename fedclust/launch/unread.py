"""Values that were typed and that a job does not read, or reads without any effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from fedclust.config.idle import idle
from fedclust.config.objects import Objects
from fedclust.config.schema import LIKE_SOLVER
from fedclust.config.tree import CONF, choices
from fedclust.core.traits import traits_of
from fedclust.helpers.errors import ConfigError, counted
from fedclust.helpers.files import read_text
from fedclust.launch.compose import compose, compose_or_none
from fedclust.launch.sweep import methods as methods_of

# read only where a part of the job refers to them; the others are read in every job
SHARED = (
    *("num_clusters", "solver", "cluster_metric", "cluster_method", "common"),
    *("participation", "clients_per_round"),
)
PARTS = ("algorithm", "scenario", "partition", "dataset", "model")
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)\}")
_NAMED = 4  # methods that a line names


def typed_values(overrides: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Overrides with the key that each sets; of a part, the place where it is put."""
    parse = OverridesParser.create().parse_override
    for text in overrides:
        one = parse(text)
        yield text, (one.package or one.key_or_group).lstrip("+~")


def typed_keys(overrides: Iterable[str]) -> list[str]:
    """The shared keys and groups that overrides give a value to.

    A part that is put elsewhere, as in cluster_metric@algorithm.cold_start.metric=madc, is none.
    """
    parse = OverridesParser.create().parse_override
    keys = (parse(one).get_key_element() for one in overrides if not one.startswith("~"))
    plain = (key.lstrip("+") for key in keys)
    return [key for key in plain if "@" not in key and key.partition(".")[0] in SHARED]


def yield_to_typed(config: DictConfig, typed: Collection[str]) -> None:
    """Give a method's own solver what was typed for the solver of all: a default yields.

    Args:
        config: of a job, as Hydra composed it; changed in place.
        typed: keys, see `typed_keys`.
    """
    for method in ("algorithm", "algorithm.base"):  # a wrapper's base has a solver of its own
        own = OmegaConf.select(config, f"{method}.solver")
        for key in unread(config, typed, [method]) if OmegaConf.is_dict(own) else ():
            name = key.removeprefix("solver.")
            if name != key and own.get(name) is not None:  # null: the method does without it
                own[name] = OmegaConf.select(config, key)


def unread(config: DictConfig, typed: Collection[str], parts: Sequence[str] = PARTS) -> list[str]:
    """Those of the typed keys that none of the parts of a job, by dotted key, refers to."""
    if not typed:
        return []
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    read = _closure({one for part in parts for one in _references(_at(plain, part))}, plain)
    return [key for key in dict.fromkeys(typed) if not _is_read(key, read)]


def refuse_unread(
    config: DictConfig, overrides: Sequence[str], own: Path | None, methods: Collection[str]
) -> None:
    """Refuse what was typed and no job of the command reads.

    Args:
        config: as Hydra composed it, with the first method.
        overrides: as typed.
        own: the folder given with --config-dir.
        methods: those of the command, by name.

    Raises:
        ConfigError: naming the key, and who reads it.
    """
    alone = len(methods) == 1
    for key in unread(config, typed_keys(overrides), PARTS if alone else PARTS[1:]):
        readers = _readers(key, config, own)
        own_value = alone and OmegaConf.select(config, f"algorithm.{key}") is not None
        if own_value or not readers or readers & set(methods):
            continue
        some = sorted(readers)
        more = f" and {counted(len(some) - _NAMED, 'other')}" if len(some) > _NAMED else ""
        who = f"read by {', '.join(some[:_NAMED])}{more}"
        value = next(one for one in overrides if one.lstrip("+").startswith(f"{key}="))
        raise ConfigError(
            f"{value} is not allowed: {', '.join(sorted(methods))} would not read it; it is {who}"
        )


def why_unread(key: str, config: DictConfig, method: str, own: Path | None) -> str:
    """Where a key is read that no part of a job refers to, in a sentence; "" for nowhere.

    Args:
        key: see `unread`.
        config: of the job, as Hydra composed it, after `yield_to_typed`.
        method: its name.
        own: the folder given with --config-dir.
    """
    for part in PARTS:
        if OmegaConf.select(config, f"{part}.{key}") is not None:
            taken = OmegaConf.is_dict(OmegaConf.select(config, f"{part}.solver"))
            yields = taken and key.startswith("solver.")  # see `yield_to_typed`
            return "" if yields else f"{key} has no effect: {part}.{key} has a value of its own"
    if _readers(key, config, own):
        return f"{key} is read by other methods of this sweep, not by {method}"
    parts = [
        f"{group}={name}"
        for group in PARTS[1:]
        for name, file in choices(group, own).items()
        if _is_read(key, _of_file(file))
    ]
    return f"{key} has no effect: it is read by {' and '.join(parts)}" if parts else ""


def without_effect(
    config: DictConfig, resolved: Mapping[str, Any], overrides: Sequence[str], own: Path | None
) -> list[str]:
    """What was typed and has no effect in a job, a sentence each; it imports the job's parts.

    Args:
        config: of the job, as Hydra composed it, with all values that were put into it.
        resolved: the same with all interpolations replaced, and checked.
        overrides: as typed.
        own: the folder given with --config-dir.
    """
    objects = Objects(own)
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    places = list(_places(plain))
    unused = traits_of(objects.make(resolved["algorithm"], "algorithm")).unused
    told = []
    for text, key in typed_values(overrides):
        why = _idle(key, places, lambda one: idle(resolved, one, objects)) or unused.get(key, "")
        if why:
            told.append(f"{text} has no effect: {why}")
    return told


def _idle(key: str, places: Sequence[tuple[str, str]], why_not: Callable[[str], str]) -> str | None:
    """Why a key has no effect wherever it is read; "" where it has one, None where nobody reads it.

    Args:
        key: dotted.
        places: see `_places`.
        why_not: why a key has no effect where it stands, "" where it has one.
    """
    if why := why_not(key):
        return why
    if key.partition(".")[0] not in SHARED:
        return ""
    found = [_idle(place, places, why_not) for place in _read_at(key, places)]
    read = [why for why in found if why is not None]
    return None if not read else "" if "" in read else read[0]


def _read_at(key: str, places: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The places that refer to a key, to a part of it, or to what it is a part of."""
    for place, one in places:
        if f"{one}.".startswith(f"{key}."):
            yield place
        elif key.startswith(f"{one}."):
            yield place + key.removeprefix(one)


def for_first_method(overrides: Sequence[str], own: Path | None) -> list[str]:
    """The overrides with the first method of a sweep in place of all, where options of methods are
    typed: Hydra composes a sweep itself with the default method, which may not have them.

    Raises:
        ConfigError: for an option that some of the methods have and others do not.
    """
    parse = OverridesParser.create().parse_override
    keys = [parse(one).get_key_element() for one in overrides]
    options = [key for key in keys if key.startswith("algorithm.")]
    if not options:
        return list(overrides)
    others = [one for one, key in zip(overrides, keys, strict=True) if key not in options]
    methods = methods_of(compose(others, own), others, own, inside=False)
    if len(methods) < 2:
        return list(overrides)
    nodes = {name: compose_or_none([f"algorithm={name}"], own) for name in methods}
    for key in options:
        have = [name for name, node in nodes.items() if node and _has(node, key)]
        lack = [name for name in methods if name not in have]
        if have and lack:
            text = overrides[keys.index(key)]
            raise ConfigError(
                f"{text} is not allowed for {', '.join(lack)}: run algorithm={','.join(have)} with "
                f"it and algorithm={','.join(lack)} without; the report joins the two commands"
            )
    return [
        f"algorithm={methods[0]}" if key == "algorithm" else one
        for one, key in zip(overrides, keys, strict=True)
    ]


def _has(node: DictConfig, key: str) -> bool:
    """Whether a config has a key, also where its value is null."""
    above, _, name = key.rpartition(".")
    holder = OmegaConf.select(node, above)
    return OmegaConf.is_dict(holder) and name in holder


def _readers(key: str, config: DictConfig, own: Path | None) -> set[str]:
    """The methods whose files refer to a key, themselves or through a part that they take."""
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    files = choices("algorithm", own)
    return {name for name, file in files.items() if _is_read(key, _closure(_of_file(file), plain))}


@cache
def _of_file(file: Path) -> frozenset[str]:
    """What a method's file refers to, with the files that it begins from."""
    node = yaml.safe_load(read_text(file)) or {}
    read = set(_references(node))
    for entry in node.get("defaults", ()):
        parent = file.parent / f"{entry}.yaml"
        if isinstance(entry, Mapping):  # such as /cluster_method@method: kmeans
            ((group, choice),) = entry.items()
            parent = CONF / group.partition("@")[0].strip("/") / f"{choice}.yaml"
        if parent.is_file():
            read |= _of_file(parent)
    return frozenset(read)


def _references(node: Any) -> Iterator[str]:
    """The keys that a node refers to."""
    return (key for _, key in _places(node))


def _places(node: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Where a node refers to keys: the dotted place of each reference, and the key."""
    if isinstance(node, str):
        yield from ((at, key) for key in _REFERENCE.findall(node))
    elif isinstance(node, list):
        for entry in node:
            yield from _places(entry, at)
    elif isinstance(node, Mapping):
        if node.get("_target_") == LIKE_SOLVER:
            options = (name for name in _solver_options() if name not in node)
            yield from ((f"{at}.{name}", f"solver.{name}") for name in options)
        for name, below in node.items():
            yield from _places(below, f"{at}.{name}" if at else str(name))


@cache
def _solver_options() -> frozenset[str]:
    """What a solver that is like the run's takes over from it, where it does not name it itself."""
    files = choices("solver", None).values()
    return frozenset(key for file in files for key in yaml.safe_load(file.read_text()))


def _closure(read: Iterable[str], plain: Mapping[Any, Any]) -> set[str]:
    """The keys that are read, with those that what stands there refers to."""
    closed, new = set[str](), set(read)
    while new:
        closed |= new
        nodes = [_at(plain, key) for key in new]
        new = {one for node in nodes for one in _references(node)} - closed
    return closed


def _at(plain: Any, key: str) -> Any:
    for name in key.split("."):
        plain = plain.get(name) if isinstance(plain, Mapping) else None
    return plain


def _is_read(key: str, read: Iterable[str]) -> bool:
    """Whether one of the keys is this one, stands above it or below it."""
    return any(f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.") for one in read)

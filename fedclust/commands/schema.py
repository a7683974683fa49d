"""`fedclust schema`: a JSON Schema of config files, by which editors complete and check them.

What a key may be is what its check, or the annotation of the part that takes it, says; what it is
stands in the schema of keys and in the comments of the config files. Any value may also refer to
another one, as in `${solver}`. Which choice of a group a file is about is not known to an editor,
so an option may be what it is of any of them.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, cast

from fedclust.config.objects import Objects, asked, parts
from fedclust.config.options import Option, options, top_options
from fedclust.config.parts import PARTS
from fedclust.config.read import read_config
from fedclust.config.schema import LIKE_SOLVER, RunConfig, keys
from fedclust.config.tree import CONF, choices, describe, groups
from fedclust.config.values import common_readers
from fedclust.helpers.errors import ConfigError, did_you_mean, require
from fedclust.helpers.ranges import Range, hints_of
from fedclust.launch.typed import Typed

Schema = dict[str, Any]

_DRAFT = "http://json-schema.org/draft-07/schema#"  # the newest that both editors read
_TYPES = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}
_REFERENCE: Schema = {"type": "string", "pattern": r"\$\{"}
_SOLVER = "fedclust.solver.Solver"
_SETTINGS = ("experiment", "case")  # groups whose files set keys


def command(arguments: Sequence[str]) -> None:
    """Print the schema of experiments, or of the files of one group; with --config-dir DIR also of
    a user's own choices.
    """
    typed = Typed.of(arguments)
    own, named = typed.own, typed.texts
    if own is not None:
        require(own.is_dir(), "--config-dir", own, "there is no such folder")
    known = [group for group in groups(own) if group in PARTS]
    if len(named) > 1 or any(one not in known for one in named):
        given = " ".join(named)
        meant = did_you_mean(given, known)
        raise ConfigError(
            f"fedclust schema {given} is not allowed: {meant and meant + ' '}it takes nothing, for "
            f"the schema of experiments, or one of {', '.join(known)}"
        )
    found = of_group(named[0], own) if named else of_experiments(own)
    print(json.dumps(found, indent=1, ensure_ascii=False))


def of_experiments(own: Path | None = None) -> Schema:
    """The schema of a file below conf/experiment or conf/case."""
    made = {group: _section(group, own) for group in groups(own) if group in PARTS}
    properties = {name: _of_key(name) | made.get(name, {}) for name in keys()}
    properties["common"] = _common(own)
    properties |= {"defaults": _defaults(own), "hydra": {"type": "object"}}
    block = {name: {"$ref": f"#/definitions/{name}"} for name in properties}
    costs = {"description": "what the size costs: {hours: 0.5, gigabytes: 1.2}", "type": "object"}
    scale = _object(block | {"costs": costs})
    scales = {"description": "keys by scale=NAME", "type": "object", "additionalProperties": scale}
    return {
        "$schema": _DRAFT,
        "title": "an experiment or case of fedclust",
        "definitions": properties,
        **_object(block | {"scales": scales}),
    }


def of_group(group: str, own: Path | None = None) -> Schema:
    """The schema of a file of a group of parts, as conf/algorithm/mine.yaml."""
    section = _section(group, own)
    target = {"description": "the class, or function", "anyOf": [{"enum": sorted(parts(group))}]}
    target["anyOf"].append({"type": "string"})  # type: ignore[attr-defined]  # a user's own
    above = {"_target_": target, "defaults": _defaults(own), "about": {"type": "object"}}
    own_options = {"additionalProperties": True}  # those of a user's own class
    return {
        "$schema": _DRAFT,
        "title": f"a choice of the group {group} of fedclust",
        "description": keys()[group].doc,
        **_object(section["properties"] | above),
        **own_options,
    }


@dataclass
class _Node:
    """An option, of all choices that have it."""

    ways: list[Schema] = field(default_factory=list)  # what it may be
    told: dict[str, list[str]] = field(default_factory=dict)  # what it is: of which choices
    below: dict[str, _Node] = field(default_factory=dict)

    def add(self, way: Schema, comment: str, choice: str) -> None:
        """One more choice that has it."""
        if way not in self.ways:
            self.ways.append(way)
        if comment:
            self.told.setdefault(comment, []).append(choice)

    def schema(self) -> Schema:
        """What it may be of any of them."""
        ways = list(self.ways)
        if self.below:
            inside = {name: node.schema() for name, node in self.below.items()}
            ways = [one for one in ways if one != {"type": "object"}]
            ways.append({"type": "object", "properties": inside})
        found = _any_of([*ways, _REFERENCE]) if {} not in ways else {}
        if self.told:
            said = [
                text if len(self.told) == 1 else f"{', '.join(names)}: {text}"
                for text, names in self.told.items()
            ]
            found = {"description": "\n".join(said), **found}
        return found


def _section(group: str, own: Path | None) -> Schema:
    """The options of a group's choices."""
    top, objects = _Node(), Objects(own)
    for name in choices(group, own):
        written = _written(group, name, own)
        for key, option in options(group, name, own).items():
            node = top
            for part in key.split("."):
                node = node.below.setdefault(part, _Node())
            node.add(_of_option(objects, written, key.split("."), option), option.comment, name)
    about = {"_target_": _Node([{"type": "string"}])}
    inside = {name: node.schema() for name, node in (top.below | about).items()}
    return {"description": keys()[group].doc, **_object(inside)}


def _written(group: str, name: str, own: Path | None) -> dict[str, Any]:
    """What a file says, and those of the same group that it begins with."""
    node = read_config(choices(group, own)[name]) or {}
    found: dict[str, Any] = {}
    for base in node.get("defaults") or ():
        if isinstance(base, str) and base != "_self_":
            found |= _written(group, str(Path(name).parent / base), own)
    return found | node


def _of_option(objects: Objects, written: Any, path: Sequence[str], option: Option) -> Schema:
    """What an option of a choice may be, by the annotation of the part that takes it."""
    target, rest = "", path
    node = written if isinstance(written, Mapping) else {}
    for place in range(len(path)):  # the innermost part whose class the file names
        if isinstance(node, Mapping) and "." in str(node.get("_target_", "")):
            target, rest = str(node["_target_"]), path[place:]
            target = _SOLVER if target == LIKE_SOLVER else target
        node = node.get(path[place], {}) if isinstance(node, Mapping) else {}
    if option.group:
        return {"type": "object"}
    if not target:
        return {}
    try:
        return of_hint(objects.hint(target, rest))
    except ConfigError:  # a user's own, which cannot be imported here
        return {}


def of_hint(hint: Any, numbers: Range | None = None) -> Schema:
    """What a value with an annotation may be; {} for anything."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        ranges = [one for one in inside[1:] if isinstance(one, Range)]
        return of_hint(inside[0], ranges[0] if ranges else numbers)
    if origin in (typing.Union, types.UnionType):
        return _any_of([of_hint(one, numbers) for one in inside])
    if origin is typing.Literal:
        return {"enum": list(inside)}
    if hint in _TYPES:
        limits = _limits(numbers) if numbers and hint in (int, float) else {}
        return {"type": _TYPES[hint], **limits}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array"}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object"}
    part = asked(hint)
    if is_dataclass(part):
        return {
            "type": "object",
            "properties": {n: of_hint(h) for n, h in hints_of(cast(Any, part)).items()},
        }
    return {} if part is None else {"type": "object"}


def _limits(numbers: Range) -> Schema:
    """The bounds of a number."""
    low = "exclusiveMinimum" if numbers.open_low else "minimum"
    high = "exclusiveMaximum" if numbers.open_high else "maximum"
    return {low: numbers.low, high: numbers.high}


def _of_key(name: str) -> Schema:
    """What a top-level key is, and may be."""
    key, hint = keys()[name], typing.get_type_hints(RunConfig)[name]
    check = key.check
    found = of_hint(hint, check.numbers if check else None)
    if check and check.options:
        found = {"enum": list(check.options)}
    doc = f"{key.doc}\nallowed: {check.allowed}" if check else key.doc
    return {"description": doc, **(_any_of([found, _REFERENCE]) if found else {})}


def _common(own: Path | None) -> Schema:
    """What stands below `common`, by who reads it."""
    objects, readers = Objects(own), common_readers([CONF] if own is None else [CONF, own])
    told = {name: option.comment for name, option in top_options().items()}
    inside = {}
    for name, of in sorted(readers.items()):
        node = _Node()
        ours = [one for one in of if one[0].startswith("fedclust.")]
        for target, path in ours:  # a user's own code is not run to describe it
            node.add(of_hint(objects.hint(target, path)), told.get(f"common.{name}", ""), target)
        inside[name] = node.schema() if ours else {}
    return {"description": keys()["common"].doc, **_object(inside)}


def _defaults(own: Path | None) -> Schema:
    """The list of chosen files, which may override a choice or put it elsewhere."""
    patterns = {
        rf"^(override )?/?{group}(@[\w.]+)?$": {
            "description": "\n".join(_lines(group, own)),
            "enum": [*choices(group, own), None],
        }
        for group in groups(own)
    }
    entry = {"type": "object", "patternProperties": patterns}
    return {
        "description": "files that this one begins with: /GROUP: CHOICE, override /GROUP: CHOICE",
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, entry]},
    }


def _lines(group: str, own: Path | None) -> Iterator[str]:
    """What the choices of a group are, as `fedclust list` says it."""
    for name, file in choices(group, own).items():
        if group not in _SETTINGS:
            yield f"{name}: {describe(file)}"


def _any_of(ways: Sequence[Schema]) -> Schema:
    """One of several; anything where one of them is."""
    flat = [one for way in ways for one in way.get("anyOf", [way])]
    different = [one for place, one in enumerate(flat) if one not in flat[:place]]
    if {} in different:
        return {}
    return different[0] if len(different) == 1 else {"anyOf": different}


def _object(properties: Mapping[str, Any]) -> Schema:
    """A mapping of these keys alone."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}

"""The options of a choice as its file shows them to a reader: defaults and comments.

Reads the YAML files alone; nothing is composed, and no part is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from fedclust.config.about import KEY
from fedclust.config.schema import LIKE_SOLVER
from fedclust.config.tree import CONF, choices
from fedclust.helpers.files import read_text

_NESTED = re.compile(r"(?:override\s+)?/(\w+)(?:@([\w.]+))?")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SOLVERS = ("fedclust.solver.Solver", LIKE_SOLVER)


@dataclass(frozen=True)
class Option:
    """An option of a choice.

    Attributes:
        default: as it is written, on one line.
        comment: what the file says of it; of an option that a file takes over from another, what
            that one says.
        group: the group that a part is chosen from; "" for an option.
    """

    default: str
    comment: str
    group: str = ""


@cache
def options(group: str, name: str, own: Path | None = None) -> Mapping[str, Option]:
    """The options of a choice by dotted name, with those that it takes over from others; also of a
    user's `own` tree.
    """
    text = read_text(choices(group, own)[name])
    node = yaml.compose(text, _Loader)
    found: dict[str, Option] = {}
    if not isinstance(node, yaml.MappingNode):
        return found
    for key, value in node.value:
        if key.value == "defaults":
            found |= _taken_over(group, name, value, text, own)
    return found | {
        key: option
        if option.comment
        else replace(option, comment=_told_elsewhere(key, node, found))
        for key, option in _below(node, text.splitlines())
    }


def top_options() -> dict[str, Option]:
    """What conf/config.yaml sets by itself."""
    text = read_text(CONF / "config.yaml")
    node = yaml.compose(text, _Loader)
    assert isinstance(node, yaml.MappingNode)
    return dict(_below(node, text.splitlines()))


def _taken_over(
    group: str, name: str, defaults: yaml.Node, text: str, own: Path | None
) -> dict[str, Option]:
    """The options by a file's defaults list: those of another choice, and the parts in groups."""
    found: dict[str, Option] = {}
    for entry in defaults.value:
        if isinstance(entry, yaml.ScalarNode):
            if entry.value != "_self_":
                base = f"{Path(name).parent / entry.value}" if "/" in name else entry.value
                found |= options(group, base.removeprefix("./"), own)
            continue
        for key, value in entry.value:
            match = _NESTED.fullmatch(key.value)
            if match is None or "_global_" in key.value:  # a choice of another group
                continue
            other, place = match[1], match[2] or match[1]
            comment = _comment(value, text.splitlines())
            found[place] = Option(value.value, comment, other)
    return found


def _below(
    node: yaml.MappingNode, lines: list[str], above: str = ""
) -> Iterator[tuple[str, Option]]:
    """Every option below a node by dotted name, what Hydra reads left out."""
    for key, value in node.value:
        beside = not above and key.value in ("defaults", KEY)
        if beside or key.value in ("_target_", "_partial_"):
            continue
        name = f"{above}{key.value}"
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _below(value, lines, f"{name}.")
        else:
            behind = _comment(value, lines) or _comment(key, lines)
            comment = behind or _comment_above(key, lines)
            yield name, Option(_written(value), comment)


def _written(value: yaml.Node) -> str:
    """A value as a command line takes it."""
    if isinstance(value, yaml.ScalarNode):
        return value.value if value.value else '""'
    if isinstance(value, yaml.MappingNode):
        return "{" + ", ".join(f"{k.value}: {_written(v)}" for k, v in value.value) + "}"
    return "[" + ", ".join(_written(one) for one in value.value) + "]"


def _comment(node: yaml.Node, lines: list[str]) -> str:
    """What is written behind a value, or behind the key of one that stands in lines of its own."""
    if node.end_mark.line >= len(lines):
        return ""
    rest = lines[node.end_mark.line][node.end_mark.column :].lstrip(": ").strip()
    return rest.removeprefix("#").strip() if rest.startswith("#") else ""


def _comment_above(key: yaml.Node, lines: list[str]) -> str:
    """The comment lines right above a key, the first line of the file left out."""
    said: list[str] = []
    line = key.start_mark.line - 1
    while line > 0 and lines[line].strip().startswith("#"):
        said.insert(0, lines[line].strip().removeprefix("#").strip())
        line -= 1
    return " ".join(said)


def _told_elsewhere(key: str, node: yaml.MappingNode, taken_over: Mapping[str, Option]) -> str:
    """What the file that an option comes from says of it; of a solver's, the group solver."""
    if key in taken_over:
        return taken_over[key].comment
    for place, option in taken_over.items():  # an option of a part: what the part's own file says
        if key.startswith(f"{place}.") and option.group:
            return options(option.group, option.default)[key.removeprefix(f"{place}.")].comment
    above, _, last = key.rpartition(".")
    inside = node
    for part in above.split(".") if above else ():
        inside = next(value for name, value in inside.value if name.value == part)
    targets = {name.value: value.value for name, value in inside.value}
    if targets.get("_target_") in _SOLVERS:
        return options("solver", "sgd")[last].comment
    return ""

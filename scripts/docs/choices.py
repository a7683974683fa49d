"""The config files as text for readers: what each choice is, its options, defaults and comments.

Reads the YAML files alone; nothing is composed, and no part of the package is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from fedclust.commands.list import experiments
from fedclust.config.about import KEY
from fedclust.config.schema import LIKE_SOLVER, keys
from fedclust.config.tree import CONF, choices, describe, groups

# groups whose files set other keys and have no options of their own
SETTINGS = ("case", "experiment")
_NESTED = re.compile(r"(?:override\s+)?/(\w+)(?:@([\w.]+))?")
_CHOICE = "a choice of the group [{group}]({group}.md)"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SOLVERS = ("fedclust.solver.Solver", LIKE_SOLVER)


@dataclass(frozen=True)
class Option:
    """An option of a choice.

    Attributes:
        default: as it is written, on one line.
        comment: what the file says of it; of an option that a file takes over from another, what
            that one says.
    """

    default: str
    comment: str


def group_names() -> list[str]:
    """The groups that have a page."""
    return groups()


def about(group: str) -> str:
    """One line on what is chosen in the group."""
    known = {
        "case": "a federation and model of an experiment that compares several",
        "experiment": "the papers' tables and figures, and others",
        "warmup": "the rounds before the clustering of `lcfl` and its relatives",
    }
    return known[group] if group in known else keys()[group].doc


@cache
def options(group: str, name: str) -> Mapping[str, Option]:
    """The options of a choice by dotted name, with those that it takes over from others."""
    text = (CONF / group / f"{name}.yaml").read_text()
    node = yaml.compose(text, _Loader)
    found: dict[str, Option] = {}
    if not isinstance(node, yaml.MappingNode):
        return found
    for key, value in node.value:
        if key.value == "defaults":
            found |= _taken_over(group, name, value, text)
    return found | {
        key: option if option.comment else Option(option.default, _told_elsewhere(key, node, found))
        for key, option in _below(node, text.splitlines())
    }


def top_options() -> dict[str, Option]:
    """What conf/config.yaml sets by itself."""
    text = (CONF / "config.yaml").read_text()
    node = yaml.compose(text, _Loader)
    assert isinstance(node, yaml.MappingNode)
    return dict(_below(node, text.splitlines()))


def _taken_over(group: str, name: str, defaults: yaml.Node, text: str) -> dict[str, Option]:
    """The options by a file's defaults list: those of another choice, and the parts in groups."""
    found: dict[str, Option] = {}
    for entry in defaults.value:
        if isinstance(entry, yaml.ScalarNode):
            if entry.value != "_self_":
                base = f"{Path(name).parent / entry.value}" if "/" in name else entry.value
                found |= options(group, base.removeprefix("./"))
            continue
        for key, value in entry.value:
            match = _NESTED.fullmatch(key.value)
            if match is None or "_global_" in key.value:  # a choice of another group
                continue
            other, place = match[1], match[2] or match[1]
            comment = _comment(value, text.splitlines())
            said = _CHOICE.format(group=other)
            found[place] = Option(value.value, f"{said}; {comment}" if comment else said)
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
        if key.startswith(f"{place}.") and (group := _group_of(option)):
            return options(group, option.default)[key.removeprefix(f"{place}.")].comment
    above, _, last = key.rpartition(".")
    inside = node
    for part in above.split(".") if above else ():
        inside = next(value for name, value in inside.value if name.value == part)
    targets = {name.value: value.value for name, value in inside.value}
    if targets.get("_target_") in _SOLVERS:
        return options("solver", "sgd")[last].comment
    return ""


def _group_of(option: Option) -> str:
    """The group that a part is chosen from, empty for an option."""
    match = re.match(r"a choice of the group \[(\w+)\]", option.comment)
    return match[1] if match else ""


def top_comment(file: Path) -> list[str]:
    """The comment lines at the top of a file behind its first, the package directive left out."""
    said = []
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            said.append(line.removeprefix("#").removeprefix(" "))
    return said[1:]


def page(group: str) -> str:
    """The reference of a group as Markdown."""
    files = choices(group)
    parts = [f"# {group}", _sentence(about(group)), _how_to_choose(group)]
    if group in SETTINGS:
        jobs = {name: (number, laptop) for name, number, laptop, _ in experiments(files)}
        for name, file in files.items():
            many = ""
            if group == "experiment":
                number, laptop = jobs[name]
                many = f"{number} jobs" + (f"; `scale=laptop` takes {laptop}" if laptop else "")
            parts += [f"## {name}", _sentence(describe(file)), many, _commands(file), _source(file)]
    else:
        rows = [
            f"| [`{name}`](#{name}) | {_cell(describe(file))} |" for name, file in files.items()
        ]
        parts.append("\n".join(["| choice | what it is |", "|---|---|", *rows]))
        for name, file in files.items():
            parts += [f"## {name}", _sentence(describe(file)), " ".join(top_comment(file))]
            parts += [_part_of(file), _table(options(group, name))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _how_to_choose(group: str) -> str:
    if group == "warmup":
        key, option = "warmup@algorithm.warmup", "algorithm.warmup"
        return f"Chosen with `{key}=NAME`; an option with `{option}.OPTION=VALUE`."
    if group == "experiment":
        smaller = "`scale=laptop` and `scale=smoke` make most of them smaller"
        return f"Chosen with `experiment=NAME`; {smaller}."
    if group == "case":
        return "Chosen with `case=NAME`. What stands in a file are the keys it sets."
    return f"Chosen with `{group}=NAME`; an option with `{group}.OPTION=VALUE`."


def _commands(file: Path) -> str:
    """The comment at the top as it is written: commands and remarks, line by line."""
    said = top_comment(file)
    return "\n".join(["```", *said, "```"]) if said else ""


def _source(file: Path) -> str:
    """A settings file as it is, folded."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return "\n".join(
        ['??? quote "its keys"', "    ```yaml", *(f"    {line}" for line in lines), "    ```"]
    )


def _part_of(file: Path) -> str:
    """Which class or function the choice names."""
    match = re.search(r"^_target_: (\S+)", file.read_text(), re.MULTILINE)
    return f"`{match[1]}`" if match else ""


def _table(found: Mapping[str, Option]) -> str:
    if not found:
        return "No options."
    rows = [
        f"| `{name}` | {_default(option.default)} | {_cell(option.comment) or _refers(option)} |"
        for name, option in found.items()
    ]
    return "\n".join(["| option | default | what it is, and may be |", "|---|---|---|", *rows])


def _refers(option: Option) -> str:
    """What an option is that is another key's value."""
    match = re.fullmatch(r"\$\{([\w.]+)\}", option.default)
    return f"the value of `{match[1]}`" if match else ""


def _default(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    """Text inside a table, where a bar would end the cell."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _sentence(text: str) -> str:
    return f"{_cell(text[:1].upper() + text[1:])}".rstrip(".") + "."

"""The config files as text for readers: what each choice is, its options, defaults and comments.

Reads the YAML files alone; nothing is composed, and no part of the package is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fedclust.commands.list import experiments
from fedclust.config.options import Option, options
from fedclust.config.schema import keys
from fedclust.config.tree import choices, describe, groups

# groups whose files set other keys and have no options of their own
SETTINGS = ("case", "experiment")
_CHOICE = "a choice of the group [{group}]({group}.md)"


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
        f"| `{name}` | {_default(option.default)} | {_what(option)} |"
        for name, option in found.items()
    ]
    return "\n".join(["| option | default | what it is, and may be |", "|---|---|---|", *rows])


def _what(option: Option) -> str:
    """What an option is, and may be."""
    said = [_CHOICE.format(group=option.group)] if option.group else []
    return "; ".join([*said, *filter(None, [_cell(option.comment)])]) or _refers(option)


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

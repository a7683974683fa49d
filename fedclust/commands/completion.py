"""`fedclust completion`: what a shell may complete a command line with.

A shell calls `fedclust completion --line LINE` and gets lines: a word, a tab, what it is.
Keys need the config composed, which takes half a second. PyTorch is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedclust.commands import COMMANDS
from fedclust.commands.data import known
from fedclust.config import schema
from fedclust.config.parts import PARTS
from fedclust.config.tree import CONF, EXAMPLES, describe, groups, roots
from fedclust.helpers.errors import ConfigError, did_you_mean
from fedclust.launch.typed import Typed

SHELLS = ("bash", "zsh", "fish")  # each has its script beside this file
_FLAGS = {
    "-m": "a sweep",
    "--cfg": "show the config instead of running it",
    "--config-dir": "a folder with choices of your own",
    "--help": "the keys",
}
_SHOWN = ("job", "hydra", "all")  # by --cfg
_FREE_GROUPS = ("hydra/launcher", "hydra/sweeper")  # Hydra's, of which a user chooses
Candidates = Iterator[tuple[str, str]]


def command(arguments: Sequence[str]) -> None:
    """Print the script of a shell, else ConfigError, or the candidates for an unfinished line."""
    if arguments[:1] == ["--line"] and len(arguments) == 2:
        for word, meaning in candidates(arguments[1]):
            print(f"{word}\t{meaning}" if meaning else word)
        return
    shell = arguments[0] if arguments else ""
    if shell not in SHELLS:
        meant = did_you_mean(shell, SHELLS) or f"give one of {', '.join(SHELLS)}"
        raise ConfigError(f"fedclust completion knows no shell {shell!r}: {meant}")
    print(Path(__file__).with_suffix(f".{shell}").read_text(encoding="utf-8"), end="")


def candidates(line: str) -> list[tuple[str, str]]:
    """What the last word of a line, as far as the cursor, may become, each with what it is."""
    *before, word = line.split(" ")
    _, *given = [one for one in before if one] or [""]
    words = _argument(given[0], given[1:], word) if given else COMMANDS.items()
    return sorted({one: about for one, about in words if one.startswith(word)}.items())


def _argument(command: str, given: Sequence[str], word: str) -> Candidates:
    """What a word behind a command, and what is `given` already, may be."""
    match command:
        case "run" | "plan" | "tune" | "advise":
            yield from _run(given, word)
        case "list":
            yield from ((group, "") for group in groups(Typed.of(given).own))
        case "schema":
            yield from ((group, "") for group in groups(Typed.of(given).own) if group in PARTS)
        case "data":
            yield from known().items()
        case "example":
            yield from ((folder.name, "") for folder in EXAMPLES.glob("*/"))
        case "completion":
            yield from ((shell, "") for shell in SHELLS)


def _run(given: Sequence[str], word: str) -> Candidates:
    """What a word of `fedclust run` may be."""
    typed = Typed.of(given)
    own = typed.own
    if word.startswith("-"):
        yield from _FLAGS.items()
    elif given[-1:] == ["--cfg"]:
        yield from ((what, "") for what in _SHOWN)
    elif given[-1:] == ["--config-dir"]:
        return  # the shell knows folders
    else:
        overrides = [one for one in typed.texts if one[:1] != "-" and one not in _SHOWN]
        sign = word[: len(word) - len(word.lstrip("+~"))]
        key, is_value, value = word[len(sign) :].partition("=")
        if is_value:  # of a sweep with the values before
            sign += f"{key}={value[: value.rfind(',') + 1]}"
        words = _values(key, overrides, own) if is_value else _keys(key, overrides, own)
        yield from ((f"{sign}{one}", about) for one, about in words)


def _keys(begun: str, overrides: Sequence[str], own: Path | None) -> Candidates:
    """Keys that begin so, as far as the next dot: `solver.lr=`, `algorithm.warmup.`."""
    parent = begun[: begun.rfind(".") + 1]
    if not parent:
        for group in groups(own):
            yield f"{group}=", schema.SCHEMA[group].doc if group in schema.SCHEMA else ""
        for group in _FREE_GROUPS:
            yield f"{group}=", ""
    from fedclust.launch.compose import compose_or_none, node_at  # a tenth of a second

    config = compose_or_none(overrides, own)
    node = None if config is None else node_at(config, parent.rstrip("."))
    for name, value in node.items() if isinstance(node, dict) else ():
        if str(name).startswith("_"):
            continue
        about = schema.SCHEMA[name].doc if not parent and name in schema.SCHEMA else ""
        if isinstance(value, dict) and value:
            yield f"{parent}{name}.", about
        elif parent or name not in groups(own):
            yield f"{parent}{name}=", about or ("null" if value is None else str(value))


def _values(key: str, overrides: Sequence[str], own: Path | None) -> Candidates:
    """Values that a key or a group may have."""
    from fedclust.launch.compose import compose_or_none, names_of, node_at

    group = key.partition("@")[0]
    if group in groups(own) or group in _FREE_GROUPS:
        for name, file in names_of(group, own).items():
            yield name, "" if file is None else describe(file)
        return
    if key in schema.SCHEMA and (options := alternatives(schema.SCHEMA[key].doc)):
        yield from ((option, "") for option in options)
        return
    config = compose_or_none(overrides, own)
    value = None if config is None else node_at(config, key)
    if isinstance(value, bool):
        yield from (("true", ""), ("false", ""))
    elif config is not None and isinstance(value, str | int | float):
        parent, _, last = key.rpartition(".")
        for comment in _comments(node_at(config, parent), last, own):
            options = alternatives(comment)
            yield from ((option, "") for option in options)


def _comments(node: Any, last: str, own: Path | None) -> Iterator[str]:
    """What files of the config tree say of a key of a node: those with the same `_target_`."""
    target = node.get("_target_") if isinstance(node, dict) else None
    comment = re.compile(rf"^\s*{re.escape(last)}:[^#\n]*#(.*)", re.MULTILINE)
    for file in (file for root in roots(own) for file in sorted(root.rglob("*.yaml"))):
        text = file.read_text(encoding="utf-8")
        if file == CONF / "config.yaml" or (target and f"_target_: {target}\n" in text):
            yield from comment.findall(text)


def alternatives(comment: str) -> list[str]:
    """The words that a comment offers: `a, b` of "of x: a, b (rarely): what it is"; [] of others.

    A list stands between | or commas, words only, and ends at a colon, a semicolon or the end.
    """
    plain = re.sub(r"\([^)]*\)", "", comment)
    for part in re.split(r"[:;]\s|[:;]$", plain):
        words = [one.strip() for one in re.split(r"\||,", part)]
        if len(words) > 1 and all(re.fullmatch(r"[A-Za-z][\w+:-]*", one) for one in words):
            return [one for one in words if ":" not in one]  # cuda:N stands for others
    return []

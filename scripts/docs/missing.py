"""What a new part of the package still lacks, a line for each file that has to be written.

    python -m scripts.docs.missing [GROUP=NAME …] [--since REF]

A part is a choice of a group (`attack=mine`), a recorded number (`metric=mine`) or a word of `norm`
(`norm=mine`). Without any, those are looked at that have come since the branch `main`, committed or
not. The exit status is 1 where something is missing.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import get_object

from fedclust.config.about import KEYS, KINDS, READS
from fedclust.config.options import options
from fedclust.config.parts import PARTS
from fedclust.config.tree import CONF, describe
from fedclust.config.tree import choices as choices_of
from fedclust.core.norms import NORMS
from fedclust.metrics import METRICS
from fedclust.report.style import PALETTE, line
from scripts.docs import lists, methods, rows
from scripts.trust.mutants import LIST, read_list

ROOT = rows.ROOT
_MEANING = re.compile(r'^    "(\w+)": (?:Meaning|_[a-z]+)\(', re.MULTILINE)
_CODE = re.compile(r"`([^`]*)`")
_METRICS = "fedclust/metrics/__init__.py"
_WRITTEN = "`make lists` writes it"
# the folder below tests/ of a part whose package has none of its own
_FOLDERS = {"updates": "algorithms", "solver.py": "engines"}


def missing(group: str, name: str) -> Iterator[str]:
    """The lines of one part, each with the file to write."""
    if group in PARTS:
        yield from _of_file(group, name)
    yield from _of_pages(group, name)
    if group == "algorithm":
        yield from _of_method(name)
    yield from _of_tests(group, name)
    if not any(re.search(rf"\b{name}\b", code) for code in _CODE.findall(_unreleased())):
        yield f"CHANGELOG.md: a line below Unreleased that names `{group}={name}`"


def _of_file(group: str, name: str) -> Iterator[str]:
    """What its YAML file does not say."""
    node, file = _node(group, name), f"conf/{group}/{name}.yaml"
    if not describe(ROOT / file):
        yield f"{file}: the first line is no comment that says what it is"
    if "_target_" not in node:
        return
    kind: Any = None
    with suppress(Exception):  # hydra logs what it raises
        logging.disable()
        kind = get_object(node["_target_"])
    logging.disable(logging.NOTSET)
    if kind is None:
        yield f"{file}: _target_={node['_target_']} cannot be imported"
    elif "defaults" not in node:
        given = {*inspect.signature(kind).parameters}
        for key in sorted(given - node.keys() - {"in_shape", "num_classes", "vocabulary"}):
            yield f"{file}: the option {key} of the class"
    for key, option in options(group, name).items():
        if not (option.comment or option.group) and not option.default.startswith("${"):
            yield f"{file}: a comment behind {key} that says what it may be"
    if _without_space(group) == [name]:
        yield f"conf/space/{group}/{name}.yaml: what `fedclust tune` searches of its options"


def _without_space(group: str) -> list[str]:
    """The choices with options that `fedclust tune` knows no values of, where it knows some."""
    folder = CONF / "space" / group
    known = sorted(choices_of(group)) if folder.is_dir() else []
    having = [name for name in known if _node(group, name).keys() - {"_target_", "defaults"}]
    return [name for name in having if not (folder / f"{name}.yaml").is_file()]


def _of_pages(group: str, name: str) -> Iterator[str]:
    """Lists that are made of the files."""
    page = rows.TABLES.get(group)
    if page and name in rows.unlisted(group, (ROOT / page).read_text()):
        how = _WRITTEN if group != "norm" else "write it by hand"
        yield f"{page}: a row for {group}={name}; {how}"
    elif page and re.search(rf"^\| `{name}` \|.*\| +\|", (ROOT / page).read_text(), re.MULTILINE):
        yield f"{page}: the empty cells in the row of {group}={name}"
    readme = lists.README.read_text()
    if group in ("algorithm", "partition") and lists.counted(readme) != readme:
        yield f"README.md: the number of methods and partitions; {_WRITTEN}"


def _of_method(name: str) -> Iterator[str]:
    """What a method's file says of it, its lines in lists, and its golden rounds."""
    file, about = f"conf/algorithm/{name}.yaml", _node("algorithm", name).get("about") or {}
    for key in ("kind", "paper", "run", "look", "reads"):
        if key not in about:
            free = f"; free: {free_look()}" if key == "look" else ""
            yield f"{file}: about.{key}: {KEYS[key]}{free}"
    if about.get("kind", KINDS[0]) not in KINDS:
        yield f"{file}: about.kind={about['kind']} is not one of {', '.join(KINDS)}"
    if str(about.get("reads", READS[0])).split(", and")[0] not in READS:
        yield f"{file}: about.reads={about['reads']} does not begin with one of {', '.join(READS)}"
    if (owner := _looks().get(_line(about.get("look", (0, 0))), name)) != name and "look" in about:
        yield f"{file}: about.look={about['look']} is that of {owner}; free: {free_look()}"
    if not {"kind", "paper", "run", "reads"} <= about.keys():
        return  # the lists cannot be made
    if f"\n| `{name}` |" not in methods.PAGE.read_text():
        yield f"docs/methods.md: its row; {_WRITTEN}"
    for page in methods.COMPARISONS:
        text = page.read_text()
        if not re.search(rf"(?<![\w/]){name}\b", text):
            where = page.relative_to(ROOT)
            yield f"{where}: its place, or why it is `# left out:`; {_WRITTEN}"
    if name not in json.loads(methods.GOLDEN.read_text()):
        where = methods.GOLDEN.relative_to(ROOT)
        yield f"{where}: its first rounds; {_WRITTEN}"


def _of_tests(group: str, name: str) -> Iterator[str]:
    """A test of its own, and a mistake that this test notices."""
    if group not in PARTS:  # a metric, or a word of `norm`
        folder = {"metric": "metrics", "norm": "algorithms"}[group]
        if not re.search(rf"\b{name}\b", _tests()):
            yield f"tests/{folder}/test_{name}.py: a test that names {name}"
        return
    target = str(_node(group, name).get("_target_", ""))
    module, _, kind = target.rpartition(".")
    source = Path(f"{module.replace('.', '/')}.py")
    if not (ROOT / source).is_file():  # such as a network of torchvision
        return
    folder = source.parts[1]
    used = rf"import .*\b{kind}\b|\b{kind}\(|\b{group}={name}\b", rf"[\"']{name}[\"']"
    own = _FOLDERS.get(folder, folder)
    if not (re.search(used[0], _tests()) or re.search(used[1], _tests(own))):
        where = f"tests/{own}/test_{name}.py"
        yield f"{where}: a test that names {kind}, or {group}={name}"
    body = _class_of((ROOT / source).read_text(), kind)
    if not any(file == str(source) and before in body for file, before in _mistakes()):
        yield f"scripts/trust/mutants.yaml: a mistake in {kind} of {source} that its test notices"


def stale_mutants() -> list[str]:
    """Those whose text is not once in its file: a changed line, or a new one that repeats it."""
    return [
        f"scripts/trust/mutants.yaml: {before!r} is {count} times in {file}, and must be once"
        for file, before in _mistakes()
        if (count := _source(file).count(before)) != 1
    ]


def _class_of(text: str, kind: str) -> str:
    """The source of a class or function, or the whole file where it is the only public one."""
    parts = [n for n in ast.parse(text).body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    public = [part for part in parts if isinstance(part, ast.ClassDef) and part.name[0] != "_"]
    found = next((part for part in parts if part.name == kind), None)
    if found is None or public == [found]:
        return text
    return ast.get_source_segment(text, found) or text


def free_look() -> list[int]:
    """Colour and line that no method has, of the fewest dashes."""
    pairs = ([colour, turn] for turn in range(48) for colour in range(len(PALETTE)))
    return next(pair for pair in pairs if _line(pair) not in _looks())


def _line(look: Sequence[int]) -> tuple[str, ...]:
    colour, turn = look
    shown = line(int(colour) + len(PALETTE) * int(turn))
    return tuple(str(shown[key]) for key in ("color", "linestyle", "marker"))


def _looks() -> dict[tuple[str, ...], str]:
    """Who has each line; of two methods with the same, the first by name."""
    found: dict[tuple[str, ...], str] = {}
    for name in methods.NAMES:
        about = _node("algorithm", name).get("about") or {}
        if "look" in about:
            found.setdefault(_line(about["look"]), name)
    return found


@cache
def _node(group: str, name: str) -> dict[str, Any]:
    file = CONF / group / f"{name}.yaml"
    if not file.is_file():
        raise SystemExit(f"{group}={name}: there is no file conf/{group}/{name}.yaml")
    return dict(yaml.safe_load(file.read_text()) or {})


@cache
def _source(file: str) -> str:
    return (ROOT / file).read_text() if (ROOT / file).is_file() else ""


@cache
def _mistakes() -> tuple[tuple[str, str], ...]:
    """File and text of every mutant."""
    return tuple((mutant.file, mutant.before) for mutant in read_list(LIST))


@cache
def _tests(folder: str = "") -> str:
    return "\n".join(file.read_text() for file in sorted((ROOT / "tests" / folder).rglob("*.py")))


@cache
def _unreleased() -> str:
    return (ROOT / "CHANGELOG.md").read_text().partition("## Unreleased")[2].partition("\n## ")[0]


def new_parts(since: str) -> list[tuple[str, str]]:
    """The parts that a commit does not have, by group and name.

    Raises:
        SystemExit: if there is no such commit.
    """
    base = _git("merge-base", "HEAD", since).strip()
    added = _git("diff", "--name-only", "--diff-filter=A", "--no-renames", base, "--", "conf")
    untracked = _git("ls-files", "--others", "--exclude-standard", "--", "conf")
    files = [Path(file) for file in sorted({*added.split(), *untracked.split()})]
    found = [
        (file.parts[1], "/".join(file.with_suffix("").parts[2:]))
        for file in files
        if file.suffix == ".yaml" and len(file.parts) > 2 and file.parts[1] in PARTS
    ]
    before = set(_MEANING.findall(_git("show", f"{base}:{_METRICS}")))
    found += [
        ("metric", name)
        for name in _MEANING.findall((ROOT / _METRICS).read_text())
        if name not in before
    ]
    norms = _git("show", f"{base}:fedclust/core/norms.py")
    return found + [("norm", name) for name in NORMS if f'"{name}": ' not in norms]


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"name the parts, as in attack=mine: {done.stderr.strip()}")
    return done.stdout


def named(word: str) -> tuple[str, str]:
    """Group and name of a part that was typed.

    Raises:
        SystemExit: if there is none.
    """
    group, _, name = word.partition("=")
    there = {"metric": {*METRICS}, "norm": {*NORMS}}
    if group not in {*PARTS, *there} or not name:
        raise SystemExit(f"{word}: GROUP=NAME with one of {', '.join([*PARTS, *there])}")
    if group in there and name not in there[group]:
        raise SystemExit(f"{word} is not one of {', '.join(sorted(there[group]))}")
    return group, name


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lines; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", nargs="*", metavar="GROUP=NAME")
    parser.add_argument("--since", default="main", metavar="REF", help="default main")
    given = parser.parse_args(arguments)
    parts = [named(word) for word in given.part] or new_parts(given.since)
    found = list(dict.fromkeys(row for part in parts for row in missing(*part)))
    found += stale_mutants()
    number = f"{len(parts)} part{'s' * (len(parts) != 1)}"
    print("\n".join(found) or f"nothing is missing of {number}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

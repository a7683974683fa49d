"""Lists of the methods, made of their files: the tables of docs/methods.md, the comparisons of all
methods, and the golden rounds of new ones.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fedclust.config.about import KEYS, KINDS, about
from fedclust.config.tree import CONF
from scripts.docs.rows import what_it_is

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE, GOLDEN = ROOT / "docs/methods.md", ROOT / "tests/algorithms/golden.json"
# where all methods stand beside each other, and which do not by what a file says
_BENCHMARK = CONF / "experiment/benchmark/v1.yaml"
COMPARISONS = (
    CONF / "experiment/compare/mnist.yaml",
    *sorted((CONF / "experiment/benchmark").glob("*.yaml")),
)
_ALL_BUT = "# all but oracle"  # of lists of jobs: where there are no true groups
JOBS = sorted(
    file
    for file in (ROOT / "scripts/papers").glob("benchmark*.yaml")
    if _ALL_BUT in file.read_text(encoding="utf-8")
)
NAMES = sorted(file.stem for file in (CONF / "algorithm").glob("*.yaml"))
_SWEPT = re.compile(r"(?<=algorithm[:=])( ?)((?:\w+,){9,}\w+)")
_ORDER = re.compile(r"^(  order: \[)(.*)\]$", re.MULTILINE)
_TITLES = {
    "clusters": "Clustered: a model for every cluster",
    "personal": "Personalised: a model for every client",
    "one model": "One global model",
    "around any": "Additions to any method",
    "bound": "Reference points",
}


def page() -> str:
    """The page of the methods, with a row for every file below the heading of its kind."""
    rows: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in NAMES:
        rows[_about(name)["kind"]].append(_row(name))
    text = PAGE.read_text()
    for kind, title in _TITLES.items():
        table = "".join(f"{row}\n" for row in rows[kind])
        head = rf"(^## {re.escape(title)}\n\n\|.*\n\|.*\n)(\|.*\n)*"
        text = re.sub(head, lambda found, table=table: found[1] + table, text, flags=re.MULTILINE)
    return text


def _about(name: str) -> Mapping[str, str]:
    """What a method's file says of it, complete."""
    of = about(name)
    if missing := {"kind", "paper", "run", "look", "reads"} - of.keys():
        raise SystemExit(f"{name}: about.{min(missing)} is missing: {KEYS[min(missing)]}")
    if of["kind"] not in KINDS:
        raise SystemExit(f"{name}: about.kind={of['kind']} is not allowed: {', '.join(KINDS)}")
    return of


def _row(name: str) -> str:
    file = CONF / "algorithm" / f"{name}.yaml"
    what, of = what_it_is(file), _about(name)  # the paper has a column of its own
    columns = f"`{name}`", what, of["paper"], of["reads"], of["run"]
    return f"| {' | '.join(columns)} |"


def left_out(text: str) -> list[str]:
    """The methods that a comparison says it leaves out, each with why in brackets."""
    (told,) = re.findall(r"^# left out: (.*)", text, re.MULTILINE)
    return re.findall(r"\w+", re.sub(r"\(.*?\)", "", told))


def completed(text: str, aside: list[str]) -> str:
    """A comparison with what its lists forget at their end, and without the methods aside."""
    listed = {name for match in _SWEPT.finditer(text) for name in match[2].split(",")}
    gone = sorted(listed & set(aside))  # a title of a federation can be the name of a method

    def kept(names: list[str]) -> list[str]:
        rest = [name for name in names if name not in gone]
        return [*rest, *(name for name in NAMES if name not in {*rest, *aside})]

    def swept(match: re.Match[str]) -> str:
        return match[1] + ",".join(kept(match[2].split(",")))

    def order(match: re.Match[str]) -> str:
        return match[1] + ", ".join(kept(match[2].split(", "))) + "]"

    return _ORDER.sub(order, _SWEPT.sub(swept, text))


def main() -> None:
    """Write all of them."""
    PAGE.write_text(page())
    for file in COMPARISONS:
        text = file.read_text()
        file.write_text(completed(text, left_out(text)))
    aside = [*left_out(_BENCHMARK.read_text()), "oracle"]
    for file in JOBS:
        file.write_text(completed(file.read_text(), aside))
    missing = [name for name in NAMES if name not in json.loads(GOLDEN.read_text())]
    if missing:
        subprocess.run(
            [sys.executable, GOLDEN.with_name("golden.py"), *missing],
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])},
        )

"""Imports run downwards: what docs/architecture.md says of the folders holds for every file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fedclust"
# from the top; parts of one line do not import each other
LINES = (
    ("api",),
    ("__main__",),
    ("commands",),
    ("launch",),
    ("papers", "tuning"),
    ("runtime", "report"),
    ("config",),
    (
        *("engines", "algorithms", "cluster_metrics", "cluster_methods", "datasets", "partitions"),
        *(
            "scenarios",
            "metrics",
            "trackers",
            "tasks",
            "updates",
        ),
    ),
    # what configs and own methods import by these names stands in core
    ("types", "verbs", "solver"),
    ("core",),
    ("models",),
    ("helpers",),
)
LEVEL = {part: level for level, line in enumerate(LINES) for part in line}
# Hydra is the business of one folder; the search reads its grammar of values
KNOW_HYDRA = ("launch/", "commands/tune.py", "tuning/space.py")
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """The folder or file below the package that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


@cache
def _imports(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a file, wherever in it."""
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(file: Path, package: str = "fedclust") -> Iterator[str]:
    """The modules of a package that a file imports."""
    for node in _imports(file):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if f"{one.name}.".startswith(f"{package}."))
        elif node.module == package:
            yield from (f"{package}.{one.name}" for one in node.names)
        elif str(node.module).startswith(f"{package}."):
            yield str(node.module)


def test_every_folder_has_its_line() -> None:
    parts = {file.relative_to(PACKAGE).with_suffix("").parts[0] for file in FILES}
    assert parts - {"__init__"} == set(LEVEL)


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_imports_run_downwards(line: tuple[str, ...]) -> None:
    wrong = []
    for file in FILES:
        here = file.relative_to(PACKAGE).with_suffix("").parts[0]
        if here not in line:
            continue
        for there in {part_of(module) for module in imported(file)} & set(LEVEL) - {here}:
            if LEVEL[there] <= LEVEL[here]:
                wrong.append(f"{file.relative_to(PACKAGE)} imports {there}")
    assert wrong == []


@pytest.mark.parametrize("package", ["hydra", "hydra_plugins"])
def test_one_folder_imports_hydra(package: str) -> None:
    names = {str(file.relative_to(PACKAGE)): file for file in FILES}
    others = [name for name in names if not name.startswith(KNOW_HYDRA)]
    assert [name for name in others if list(imported(names[name], package))] == []


def test_the_page_names_places_that_are_there() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    places = re.findall(r"`([\w/]+\.py)` `(\w+)`", page.split("## Where to find")[1])
    missing = [
        (file, name)
        for file, name in places
        if not re.search(rf"(def|class) {name}\b", (PACKAGE / file).read_text(encoding="utf-8"))
    ]
    assert len(places) > 15
    assert missing == []

"""Imports run downwards: what docs/architecture.md says of the folders holds for every file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fedclust"
# from the top; parts of one line do not import each other
LINES = (
    ("__main__",),
    ("commands",),
    ("launch",),
    ("benchmark", "advise"),
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
            "clocks",
        ),
    ),
    # what configs and own methods import by these names stands in core
    ("types", "verbs", "solver"),
    ("core",),
    ("models",),
    ("helpers",),
)
LEVEL = {part: level for level, line in enumerate(LINES) for part in line}
# Hydra is the business of one folder; the search reads its grammar of values, one file names what
# Hydra does not promise
KNOW_HYDRA = ("launch/", "tuning/space.py", "helpers/overrides.py", "helpers/private.py")
FILES = sorted(PACKAGE.rglob("*.py"))
# lines of code that each part may have: what it had when it was last looked through, and 3 % of
# room. A commit that raises a number says in its body what a user gets for it; a new part of the
# kinds in CHOSEN needs none.
BUDGET = {
    "advise": 1295,
    "algorithms": 4290,
    "benchmark": 1510,
    "clocks": 155,
    "cluster_methods": 484,
    "cluster_metrics": 349,
    "commands": 1590,
    "config": 1945,
    "core": 2605,
    "datasets": 4420,
    "engines": 5925,
    "files": 222,
    "helpers": 1580,
    "launch": 2140,
    "metrics": 775,
    "models": 1923,
    "papers": 823,
    "partitions": 1909,
    "report": 5850,
    "runtime": 2690,
    "scenarios": 603,
    "tasks": 193,
    "trackers": 182,
    "tuning": 1320,
    "updates": 427,
}
# classes that the files below conf/ could choose then: with each class that has come since, a part
# may grow by the mean of its classes
CHOSEN = {
    "algorithms": 43,
    "clocks": 3,
    "cluster_methods": 8,
    "cluster_metrics": 9,
    "datasets": 15,
    "models": 9,
    "partitions": 23,
    "scenarios": 8,
    "tasks": 3,
    "trackers": 4,
    "updates": 21,
}


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


@pytest.mark.thinned
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


@pytest.mark.full
def test_no_two_files_import_each_other() -> None:
    # a package's __init__ passes names on, so that its importers wait for its files
    names = {
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file
        for file in FILES
        if file.name != "__init__.py"
    }
    needs = {
        name: {
            module
            for node in _imports(file)
            for module in _modules_of(node)
            if module in names and module != name
        }
        for name, file in names.items()
    }
    assert sum(map(len, needs.values())) > 500
    try:
        circle = []
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


def _modules_of(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """What a statement may import, modules and names in them alike."""
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    else:
        yield str(node.module)
        yield from (f"{node.module}.{one.name}" for one in node.names)


def code_lines(text: str) -> int:
    """Lines of a file that hold code: no comments, no docstrings, nothing empty."""
    idle = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in idle | {tokenize.ENDMARKER}:
            lines |= {*range(token.start[0], token.end[0] + 1)}
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines -= {*range(first.lineno, (first.end_lineno or first.lineno) + 1)}
    return len(lines)


def test_code_lines() -> None:
    assert (
        code_lines('"""What."""\n\n# why\nx = """a\nb"""  # c\n\n\ndef f():\n    """D."""\n') == 3
    )


@pytest.mark.full
def test_every_part_keeps_to_its_budget() -> None:
    found = dict.fromkeys(BUDGET, 0)
    for file in FILES:
        part = file.relative_to(PACKAGE).parts[0]
        found[part if part in BUDGET else "files"] += code_lines(file.read_text(encoding="utf-8"))
    over = {part: lines for part, lines in found.items() if lines > allowed(part, chosen())}
    assert over == {}


def chosen() -> Counter[str]:
    """How many classes of each part the files below conf/ can choose."""
    files = PACKAGE.with_name("conf").rglob("*.yaml")
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    named = set(re.findall(r"_target_: (fedclust\.[\w.]+)", text))
    return Counter(part_of(name) for name in named)


def allowed(part: str, classes: Mapping[str, int]) -> float:
    """Lines of code that a part may have with so many classes to choose."""
    then = CHOSEN.get(part, 1)
    return BUDGET[part] * max(then, classes.get(part, 0)) / then


def test_a_class_that_can_be_chosen_brings_room_for_its_lines() -> None:
    assert allowed("scenarios", {"scenarios": 8}) == BUDGET["scenarios"]
    assert allowed("scenarios", {"scenarios": 9}) == BUDGET["scenarios"] * 9 / 8
    assert (
        allowed("scenarios", {"scenarios": 7}) == BUDGET["scenarios"]
    )  # what is merged makes no room
    assert allowed("report", {}) == BUDGET["report"]
    assert chosen()["scenarios"] == len(list((PACKAGE.with_name("conf") / "scenario").iterdir()))


def test_a_budget_is_no_more_than_what_is_there_and_some_room() -> None:
    parts = {file.relative_to(PACKAGE).parts[0] for file in FILES if file.parent != PACKAGE}
    assert parts == {*BUDGET} - {"files"}


@pytest.mark.parametrize("package", ["hydra", "hydra_plugins"])
def test_one_folder_imports_hydra(package: str) -> None:
    names = {str(file.relative_to(PACKAGE)): file for file in FILES}
    others = [name for name in names if not name.startswith(KNOW_HYDRA)]
    assert [name for name in others if list(imported(names[name], package))] == []


def test_one_file_names_what_hydra_and_omegaconf_do_not_promise() -> None:
    private = re.compile(r"\bhydra\.(\w+\.)*_\w|\bomegaconf\.(\w+\.)*_\w|omegaconf\.basecontainer")
    found = [file for file in FILES if private.search(file.read_text(encoding="utf-8"))]
    assert [file.name for file in found] == ["private.py"]


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


def test_the_page_quotes_the_way_from_what_is_typed_to_the_first_round() -> None:
    """Which stands on one screen."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = (PACKAGE / "launch" / "command.py").read_text(encoding="utf-8")
    way = source[source.index("def launch(") : source.index("def _aside(")].rstrip()
    assert f"```python\n{way}\n```" in page
    assert len(way.splitlines()) <= 45

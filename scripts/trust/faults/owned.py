"""Series in time and LEAF's files with something wrong, which have clients of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from faults.case import Case
from faults.data import refused

Rows = list[list[object]]
SERIES = (
    "num_clusters=2",
    "dataset=series",
    "dataset.path=curves",
    "dataset.time=hour",
    "dataset.length=8",
)
LEAF = ("dataset=leaf", "dataset.path=leaf")


def curve() -> Rows:
    """Eighty hours and what was loaded."""
    return [[i, float(i % 7)] for i in range(80)]


def changed(at: int, column: int, value: object) -> Callable[[], Rows]:
    """A curve with one entry changed."""

    def work() -> Rows:
        rows = curve()
        rows[at][column] = value
        return rows

    return work


# what is wrong with the series of a client, and with what is asked for
CURVES: Mapping[str, tuple[Callable[[], Rows], str]] = {
    "an hour is missing": (lambda: curve()[:9] + curve()[10:], ""),
    "an hour stands twice": (changed(9, 0, 8), ""),
    "an hour is a word": (changed(9, 0, "noon"), ""),
    "an hour is empty": (changed(9, 0, ""), ""),
    "a gap": (changed(9, 1, ""), ""),
    "a word": (changed(9, 1, "off"), ""),
    "an infinity": (changed(9, 1, "inf"), ""),
    "a number too large": (changed(9, 1, 1e300), ""),
    "too few hours": (lambda: curve()[:15], ""),
    "no hours": (list, ""),
    "a horizon longer than its test part": (curve, "dataset.horizon=21"),
    "a past longer than the series": (curve, "dataset.length=81"),
    "another column": (curve, "dataset.value=load"),
    "classes are asked for": (curve, "task=classification"),
}


def user(name: str, x: list[Any], y: list[Any]) -> dict[str, Any]:
    """A file of LEAF with one user."""
    return {"users": [name], "num_samples": [len(y)], "user_data": {name: {"x": x, "y": y}}}


GOOD = ([[float(i), 1.0] for i in range(20)], [i % 2 for i in range(20)])
# training and test files
FILES: Mapping[str, tuple[list[object], list[object]]] = {
    "text": ([user("a", ["the cat"] * 20, GOOD[1])], []),
    "no users": ([{"num_samples": [], "user_data": {}}], []),
    "another number of samples": ([user("a", *GOOD) | {"num_samples": [3]}], []),
    "inputs of two lengths": ([user("a", [[1.0], [1.0, 2.0]] * 10, GOOD[1])], []),
    "a gap": ([user("a", [[None, 1.0], *GOOD[0][1:]], GOOD[1])], []),
    "labels of fractions": ([user("a", GOOD[0], [0.5] * 20)], []),
    "one class": ([user("a", GOOD[0], [1] * 20)], []),
    "a user in two files": ([user("a", *GOOD), user("a", *GOOD)], []),
    "a class in the test only": ([user("a", *GOOD)], [user("a", GOOD[0][:1], [7])]),
    "a user in the test only": ([user("a", *GOOD)], [user("b", GOOD[0][:1], [1])]),
    "a list": ([[1, 2]], []),
    "no files": ([], []),
}


def wrong_series(what: str, folder: Path) -> tuple[str, str]:
    """Run on two clients, one of whom has something wrong."""
    make, option = CURVES[what]
    (folder / "curves").mkdir()
    for name, rows in (("good", curve()), ("odd", make())):
        lines = ["hour,value", *(",".join(map(str, row)) for row in rows)]
        (folder / "curves" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    options = ["dataset.horizon=4", "dataset.stride=4"]
    named = [one for one in options if one.split("=")[0] != option.split("=")[0]]
    own = [one for one in SERIES if one.split("=")[0] != option.split("=")[0]]
    return refused([*own, *named, *([option] if option else [])], folder)


def wrong_leaf(what: str, folder: Path) -> tuple[str, str]:
    """Run on files of LEAF with something wrong."""
    for part, files in zip(("train", "test"), FILES[what], strict=True):
        (folder / "leaf" / part).mkdir(parents=True)
        for i, content in enumerate(files):
            (folder / "leaf" / part / f"{i}.json").write_text(json.dumps(content))
    if not FILES[what][1]:
        (folder / "leaf" / "test").rmdir()
    return refused(LEAF, folder)


def cases(quick: bool) -> Iterator[Case]:
    """What clients bring that cannot be read."""
    few = 5 if quick else 1
    for what in list(CURVES)[::few]:
        yield Case("clients' own files", f"series: {what}", partial(wrong_series, what))
    for what in list(FILES)[::few]:
        yield Case("clients' own files", f"LEAF: {what}", partial(wrong_leaf, what))

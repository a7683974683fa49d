"""Series in time and LEAF's files with something wrong, which have clients of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faults.case import Case
from faults.data import Faults, refusals

Rows = list[list[object]]
SERIES = (
    "num_clusters=2",
    "dataset=series",
    "dataset.path=curves",
    "dataset.time=hour",
    "dataset.length=8",
    "dataset.horizon=4",
    "dataset.stride=4",
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


def wrong_series(fault: tuple[Callable[[], Rows], str], folder: Path) -> Sequence[str]:
    """The series of two clients, one of whom has something wrong."""
    make, option = fault
    (folder / "curves").mkdir()
    for name, rows in (("good", curve()), ("odd", make())):
        lines = ["hour,value", *(",".join(map(str, row)) for row in rows)]
        (folder / "curves" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    given = {one.partition("=")[0]: one for one in (*SERIES, *([option] if option else []))}
    return list(given.values())


def wrong_leaf(fault: tuple[list[object], list[object]], folder: Path) -> Sequence[str]:
    """Files of LEAF with something wrong."""
    for part, files in zip(("train", "test"), fault, strict=True):
        if files or part == "train":
            (folder / "leaf" / part).mkdir(parents=True)
        for i, content in enumerate(files):
            (folder / "leaf" / part / f"{i}.json").write_text(json.dumps(content))
    return LEAF


FAULTS: Faults = {"series: ": (CURVES, wrong_series), "LEAF: ": (FILES, wrong_leaf)}


def cases(quick: bool) -> Iterator[Case]:
    """What clients bring that cannot be read."""
    return refusals("clients' own files", FAULTS, 5 if quick else 1)

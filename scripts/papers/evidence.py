"""On how many independent runs the verdicts rest, and which way a table's differences go.

Numbers of one curve are one piece of evidence, and so are two methods whose curves are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from fedclust.helpers.prose import table
from fedclust.papers.published import mean_interval
from scripts.papers.cells import Cell
from scripts.papers.rules import (
    ALONE,
    CANNOT_TELL,
    CONJECTURE,
    CONSISTENT,
    OUTSIDE,
    REPRODUCED,
    SHOWN,
)
from scripts.papers.tables import signed

_OWN = {"JGL": "Joint"}  # how a paper's own methods begin; else with its name
_POINTS = ("percent", "percentage points")
_AGREEING = (REPRODUCED, CONSISTENT, ALONE)
_JUDGED = (*_AGREEING, CANNOT_TELL, SHOWN, CONJECTURE, OUTSIDE)


@dataclass(frozen=True)
class Signs:
    """Ours minus printed, over the numbers of a table in points.

    Attributes:
        numbers: how many.
        runs: independent ones behind them.
        mean: of the differences, each run counted once.
        half: half the width of its 95 % interval over runs; None of one run.
        rms: the root of the mean square over numbers.
        above: how many of ours lie above the printed number.
    """

    numbers: int
    runs: int
    mean: float
    half: float | None
    rms: float
    above: int

    def told(self) -> str:
        """As a sentence."""
        ends = "" if self.half is None else f" (95 % interval {self.ends()})"
        runs = "one independent run" if self.runs == 1 else f"{self.runs} independent runs"
        return (
            f"Ours minus printed, {self.numbers} numbers of {runs}: on the mean "
            f"{signed(round(self.mean, 2))} points{ends}, root mean square {self.rms:.2f}; "
            f"{self.above} of {self.numbers} lie above."
        )

    def ends(self) -> str:
        """The interval of the mean; "" of one run."""
        if self.half is None:
            return ""
        low, high = (signed(round(self.mean + side * self.half, 2)) for side in (-1, 1))
        return f"{low} to {high}"


def signs(cells: Sequence[Cell]) -> Signs | None:
    """Which way the differences of a table go; None without an accuracy on its own data."""
    known = [
        cell
        for cell in cells
        if is_counted(cell) and _is_accuracy(cell) and not math.isnan(cell.difference)
    ]
    if not known:
        return None
    by_run: dict[frozenset[str], list[float]] = {}
    for cell in known:
        by_run.setdefault(sources(cell), []).append(cell.difference)
    means = [fmean(some) for some in by_run.values()]
    mean = fmean(means)
    std = math.sqrt(fmean((one - mean) ** 2 for one in means))
    return Signs(
        len(known),
        len(means),
        mean,
        mean_interval(std, len(means), 0.95),
        math.sqrt(fmean(cell.difference**2 for cell in known)),
        sum(cell.difference > 0 for cell in known),
    )


def is_counted(cell: Cell) -> bool:
    """Whether a number is a result of runs on the paper's data."""
    return bool(cell.measured and cell.measured.sources) and cell.state in _JUDGED


def _is_accuracy(cell: Cell) -> bool:
    return cell.row["unit"] in _POINTS and cell.row["metric"].startswith("test_acc")


def sources(cell: Cell) -> frozenset[str]:
    """The runs behind a number."""
    return cell.measured.sources if cell.measured else frozenset()


def is_own(cell: Cell) -> bool:
    """Whether a number is about the method that its paper proposes."""
    paper = cell.row["paper"]
    return cell.row["algorithm"].startswith(_OWN.get(paper, paper))


def of_signs(cells: Sequence[Cell]) -> list[str]:
    """Every table's differences with their sign, as a part of the page."""
    tables: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        tables.setdefault((cell.row["paper"], cell.row["experiment"]), []).append(cell)
    rows = []
    for (paper, experiment), of in tables.items():
        if (told := signs(of)) is not None:
            row = [paper, experiment, told.numbers, told.runs, signed(round(told.mean, 2))]
            rows.append([*row, told.ends() or "–", f"{told.rms:.2f}", told.above])
    if not rows:
        return []
    head = ["paper", "table or figure", "numbers", "independent runs", "mean, points"]
    head += ["95 % interval", "root mean square", "above"]
    note = (
        "Ours minus printed, accuracies on the papers' data. Every independent run counts once in "
        "the mean and its interval."
    )
    return ["## Which way the differences go", note, table(head, rows, 2)]


def of_runs(cells: Sequence[Cell]) -> list[str]:
    """The numbers that agree, by paper: how many, of how many independent runs and seeds."""
    rows = []
    papers = dict.fromkeys(cell.row["paper"] for cell in cells)
    for paper in (*papers, ""):
        for state in _AGREEING:
            of = [c for c in cells if c.state == state and paper in ("", c.row["paper"])]
            if of:
                runs, seeds = independent(of)
                own = sum(map(is_own, of))
                rows.append([paper or "**all**", state, len(of), runs, seeds, own])
    if not rows:
        return []
    head = ["paper", "state", "numbers", "independent runs", "seeds", "of the paper's own method"]
    note = (
        "Numbers of one curve rest on one run, and so do two methods whose curves are equal. "
        "*Seeds* are those of all independent runs together."
    )
    return ["## What the agreeing numbers rest on", note, table(head, rows, 2)]


def independent(cells: Sequence[Cell]) -> tuple[int, int]:
    """How many different runs are behind some numbers, and how many seeds these have."""
    seeds: dict[str, int] = {}
    for cell in cells:
        for source in sources(cell):
            seeds[source] = max(seeds.get(source, 0), cell.measured.n if cell.measured else 0)
    return len(seeds), sum(seeds.values())

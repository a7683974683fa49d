"""How the pages about the papers write a number, and a table of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev

from scripts.papers.campaign import Entry
from scripts.papers.cells import Cell, matches
from scripts.papers.rules import Measured


def counted_seeds(number: int) -> str:
    """A number of seeds in words."""
    return "one seed" if number == 1 else f"{number} seeds"


def what(cell: Cell) -> str:
    """What a number is, in the words of its table."""
    row = cell.row
    names = [row["dataset"], row["model"], row["algorithm"], row["variant"]]
    setting = row["setting"].partition(";")[0]
    names += [setting, f"iteration {row['round']}" if row["round"].isdigit() else ""]
    if row["metric"] != "test_acc":
        names.append(row["metric"].replace("_", " "))
    return ", ".join(name for name in names if name)


def printed(cell: Cell) -> str:
    """A number as printed."""
    row = cell.row
    return f"{row['mean']} ± {row['std']}" if row["std"] else row["mean"] or "–"


def ours(cell: Cell) -> str:
    """Our number; "" where it was not run."""
    return "" if cell.measured is None else told(cell.measured)


def told(found: Measured) -> str:
    """A measured number, with its spread over seeds."""
    if math.isnan(found.value):
        return "not reached"
    plain = f"{found.value:.0f}" if found.value >= 1000 else f"{found.value:.4g}"
    if found.std is None:
        return plain
    if abs(found.value) < 1:
        return f"{found.value:.3g} ± {found.std:.2g}"
    return f"{found.value:.2f} ± {found.std:.2f}"


def signed(value: float) -> str:
    """A difference with its sign; "" for none."""
    if math.isnan(value):
        return ""
    return (f"{value:+.3g}" if abs(value) < 1000 else f"{value:+,.0f}").replace("-", "−")


def mean_and_std(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds."""
    return f"{fmean(values):.2f}" + (f" ± {pstdev(values):.2f}" if len(values) > 1 else "")


def each_commit(texts: Iterable[str]) -> str:
    """Every commit once; a job that was continued by another one names both."""
    return ", ".join(sorted({commit for text in texts for commit in text.split()}))


def machines(texts: Iterable[str]) -> str:
    """Every machine once, with "1 thread" in the singular."""
    return "; ".join(sorted({re.sub(r"\b1 threads\b", "1 thread", text) for text in texts}))


def first_entry(cell: Cell, entries: Sequence[Entry]) -> Entry | None:
    """The first experiment of the list that gives a number."""
    wanted = (entry for entry in entries if any(matches(cell.row, row) for row in entry.rows))
    return next(wanted, None)

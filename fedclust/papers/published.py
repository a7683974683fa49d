"""Numbers the papers print, and which of them belongs beside a measured one.

`published.csv` holds them with paper, table and cell: Gu et al. (LCFL, arXiv 2407.09360), Zhao et
al. (CFL-MGD, Electronics 2023, 12, 1972), Lin et al. (joint gradient and loss, arXiv 2311.13665),
Duan et al. (FlexCFL, arXiv 2108.09749), Kim et al. (CFL-GP, PMLR 235; of its released notebook),
Bhatia et al. (CLoVE, arXiv 2506.22427; quoted second-hand, as the column `source` says).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import ConfigError

# what a config choice is called in the papers, where letters and digits alone do not tell
_SYNONYMS = {
    "cflmgdmcfl": ("cflmgd", "mcfl"),
    "jointgradientloss": ("jgl", "joint", "jointgradientloss"),
    "flexcfletag": ("flexcfletag", "flexcflinter", "flexcflinter5"),
    "flexcflrcc": ("flexcflrcc", "rcc"),
    "flexcflrac": ("flexcflrac", "rac"),
    "clove": ("clove", "cloverandom"),
    "cfls": ("sattlercfl",),
    "ifca": ("ifca", "ifcaflex", "ifcarandom"),
    "femnist": ("femnist", "femnist10", "emnist"),
    "synthetic": ("synthetic", "synthetic11"),
}


_LEVEL = 0.95  # of the intervals
FEWEST = 3  # seeds of a reproduced number
# how far a number may lie from the printed one, by unit; else 5 % of the printed one
_MARGIN = {"percent": 1.0, "percentage points": 1.0, "round": 1.0}
_SHARE = 0.05
_SHARE_OF_SAMPLES = 0.01  # sizes of clients are drawn
WIDEST = 2.0  # margins, of an interval that tells something
_FIRST = re.compile(r"first_round_test_acc_ge_(\d+)")


@dataclass(frozen=True)
class Published:
    """A printed number.

    Attributes:
        mean: its value, in the unit of the table (percent for accuracies).
        std: its standard deviation, or None where none is printed.
        rounding: how far rounding may have moved the mean (`rounding`).
        margin: how far another number may lie from it (`margin`).
    """

    mean: float
    std: float | None
    rounding: float = field(default=0.0, compare=False)
    margin: float = field(default=_MARGIN["percent"], compare=False)

    def agrees(self, values: NDArray[np.float64]) -> bool | None:
        """Whether values measured with some seeds [S] agree with it; None where they cannot tell.

        They agree if the 90 % interval of their mean lies within the margin (three seeds or more),
        or if the number lies within the 95 % interval of one more run and this is no wider than two
        margins to each side. They cannot tell if it is wider, or if a single seed lies within the
        margin. So more noise never makes values agree. It marks cells of a job's report; the score
        of docs/results (`scripts/papers/rules.py`) has the same limits.
        """
        std, seeds = float(values.std()), len(values)
        gap = abs(float(values.mean()) - self.mean) - 1e-9
        of_mean, of_one = mean_interval(std, seeds), interval(std, seeds, self.std)
        if of_mean is None or of_one is None:
            return None if gap <= self.margin else False
        if seeds >= FEWEST and gap + of_mean <= self.margin:
            return True
        if gap > max(of_one, self.rounding):
            return False
        return True if of_one <= WIDEST * self.margin else None


def margin(row: Mapping[str, str]) -> float:
    """How far a number may lie from the printed one of a row, at least what rounding takes away."""
    share = _SHARE_OF_SAMPLES if row["unit"] == "samples" else _SHARE
    return max(_MARGIN.get(row["unit"], share * abs(float(row["mean"]))), rounding(row["mean"]))


def lead(points: float) -> Published:
    """A printed lead in points."""
    last = rounding(str(points))
    return Published(points, None, last, max(_MARGIN["percentage points"], last))


def mean_interval(std: float | None, seeds: int, level: float = 0.9) -> float | None:
    """Half the width of the interval of a mean over seeds, t s / sqrt(n), s as in `interval`; None
    where fewer than two seeds tell nothing of the spread.
    """
    if std is None or seeds < 2:
        return None
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(seeds - 1, (1 + level) / 2)) * std / math.sqrt(seeds - 1)


def interval(std: float | None, seeds: int, printed: float | None = None) -> float | None:
    """Half the width of the interval in which a printed number is expected; None where fewer than
    two seeds tell nothing of the spread.

    One printed run: t s sqrt(1 + 1 / n). A printed mean and spread: t sqrt(s² / n + s'² / n), taken
    to be over as many runs as ours. s is the standard deviation of our seeds with n - 1 below,
    while `std` has n = `seeds` below; s' is the `printed` one.
    """
    if std is None or seeds < 2:
        return None
    from scipy.special import stdtrit  # slow to import

    square = std**2 * seeds / (seeds - 1)
    t = float(stdtrit(seeds - 1, (1 + _LEVEL) / 2))
    if printed is not None:
        return t * math.sqrt((square + printed**2) / seeds)
    return t * math.sqrt(square * (1 + 1 / seeds))


def rounding(printed: str) -> float:
    """Half a unit of the last digit of a number as it is printed: 0.05 for "87.9"."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2])


@cache
def _rows() -> tuple[Mapping[str, str], ...]:
    with files("fedclust.papers").joinpath("published.csv").open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def table(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of one table, "<paper>/<table>"; ConfigError when there is no such table."""
    paper, _, experiment = name.partition("/")
    rows = tuple(r for r in _rows() if r["paper"] == paper and r["experiment"] == experiment)
    if not rows:
        known = dict.fromkeys(f"{r['paper']}/{r['experiment']}" for r in _rows())
        raise ConfigError(
            f"report.published={name} is not allowed: one of {', '.join(known)}, or null"
        )
    return rows


def lookup(
    name: str,
    algorithm: str,
    choices: Mapping[str, str],
    iteration: int,
    *,
    whole: bool,
    metric: str = "test_acc",
) -> Published | None:
    """The number printed for an arm, or None where there is none or no unique one.

    Args:
        name: "<paper>/<table>".
        choices: its config group choices, and "classes": how many a client has; dataset, model,
            scenario, case and classes tell equal rows apart.
        iteration: 1-based iteration of the measured number.
        whole: whether it scores the whole run, and so meets a table that prints one number per run.
        metric: the metric's name in the table.
    """
    rows = [r for r in table(name) if r["metric"] == metric and _same(r["algorithm"], algorithm)]
    rows = [r for r in rows if _matches("dataset", r["dataset"], choices)]
    if len({r["model"] for r in rows}) > 1:
        rows = [r for r in rows if _matches("model", r["model"], choices)]
    # a table that is about one kind of shift does not name it
    if len({kind for r in table(name) if "=" not in (kind := _kind(r["setting"]))}) > 1:
        rows = [r for r in rows if _matches("setting", r["setting"], choices)]
    if not whole or len({r["round"] for r in rows}) > 1:
        rows = [r for r in rows if r["round"] == str(iteration)]
    cells = {(r["mean"], r["std"]): r for r in rows if r["mean"]}
    if len(cells) != 1:
        return None
    ((mean, std), row) = cells.popitem()
    return Published(float(mean), float(std) if std else None, rounding(mean), margin(row))


def thresholds(name: str | None) -> list[int]:
    """The accuracies, in percent, of which a table prints the first iteration to reach them."""
    rows = table(name) if name else ()
    return sorted({int(found[1]) for r in rows if (found := _FIRST.fullmatch(r["metric"]))})


def _plain(text: str) -> str:
    """Letters and digits of a name, without what is in brackets and without "rotated"."""
    text = re.sub(r"\((?!MCFL).*?\)", "", text).lower().replace("rotated", "")
    return re.sub(r"[^a-z0-9]", "", text)


def _same(printed: str, choice: str) -> bool:
    plain, wanted = _plain(printed), _plain(choice)
    return plain == wanted or wanted in _SYNONYMS.get(plain, ())


def _kind(setting: str) -> str:
    """What a setting is called, without its parameters."""
    return setting.partition(";")[0]


def _matches(column: str, printed: str, choices: Mapping[str, str]) -> bool:
    """Whether a cell's dataset, model or setting is the one chosen."""
    if column == "dataset":
        return _same(printed, choices.get("dataset", ""))
    if column == "model":  # "MLP" is mlp128 on one dataset and mlp512 on another
        return _plain(printed) in _plain(choices.get("model", ""))
    classes = re.match(r"(\d+)\b.* classes per client", printed)
    if classes:
        return classes[1] == choices.get("classes")
    plain, scenario = _plain(_kind(printed)), _plain(choices.get("scenario", ""))
    # a kind of shift, or one of several federations
    return plain.startswith(scenario or "?") or _plain(choices.get("case", "")).endswith(plain)

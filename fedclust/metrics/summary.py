"""The one-look summary of a job: last and best value of every metric, per seed and over seeds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.files import atomic_write
from fedclust.metrics import METRICS, headline_of
from fedclust.metrics.meanings import read_meanings


def write_summary(folder: Path) -> None:
    """Writes `summary.csv` from `rounds.csv` of the job's folder.

    Columns: metric, value (`last` or `best`, best in the metric's own direction, absent where it
    has none), seed (or `mean`, `std` with ddof=0, `n`), number. Reads line by line; memory does not
    grow with rounds.
    """
    read_meanings(folder)
    last: dict[tuple[str, int], float] = {}
    best: dict[tuple[str, int], float] = {}
    for row in _of_csv(folder / "rounds.csv"):
        key, value = (row["metric"], int(row["seed"])), float(row["value"])
        last[key] = value
        known = METRICS.get(row["metric"])  # not where metrics.json was lost
        if known is None or known.better == "neither" or math.isnan(value):
            continue
        best[key] = (max if known.better == "higher" else min)(best.get(key, value), value)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["metric", "value", "seed", "number"])
    for kind, values in (("last", last), ("best", best)):
        writer.writerows(_rows(kind, values))
    atomic_write(folder / "summary.csv", out.getvalue())


def over_seeds(folder: Path) -> dict[str, float]:
    """The numbers over seeds of a finished job's `summary.csv`: `last/accuracy` and `best/accuracy`
    for means, `last/accuracy_std` and `best/accuracy_std` for standard deviations.
    """
    return {
        f"{row['value']}/{row['metric']}{'_std' * (row['seed'] == 'std')}": float(row["number"])
        for row in _of_csv(folder / "summary.csv")
        if row["seed"] in ("mean", "std")
    }


def last_by_seed(folder: Path) -> dict[str, NDArray[np.float64]]:
    """Of every metric of a finished job the last values of its seeds, from `summary.csv`."""
    numbers: dict[str, list[float]] = {}
    for row in _of_csv(folder / "summary.csv"):
        if row["value"] == "last" and row["seed"].isdecimal():
            numbers.setdefault(row["metric"], []).append(float(row["number"]))
    return {metric: np.array(values) for metric, values in numbers.items()}


def objective(folder: Path, metric: str | None) -> float:
    """What a finished job returns to a sweeper: the mean over seeds of a metric's last value; None
    is the headline of the task, on validation examples where there are any.

    Raises:
        ConfigError: if the job has not recorded the metric, or no client has a model at its end.
    """
    try:
        numbers = over_seeds(folder)
    except (OSError, KeyError, ValueError):  # gone or damaged; it follows from rounds.csv
        write_summary(folder)
        numbers = over_seeds(folder)
    means = [name.removeprefix("last/") for name in numbers if name.startswith("last/")]
    known = ", ".join(name for name in means if not name.endswith("_std"))
    if metric is None:
        own = headline_of(means)
        metric = f"validation_{own}" if f"validation_{own}" in means else own
    if f"last/{metric}" not in numbers and numbers.get("last/served") == 0:
        raise ConfigError(
            f"{folder} has tested nobody: the method gives no client a model at the end (its serve "
            "returns label -1 for all)"
        )
    require(f"last/{metric}" in numbers, "objective", metric, f"this job has recorded {known}")
    return numbers[f"last/{metric}"]


def _of_csv(file: Path) -> Iterator[dict[str, str]]:
    """The rows of a file, one after the other."""
    with file.open(newline="", encoding="utf-8") as opened:
        yield from csv.DictReader(opened)


def _rows(kind: str, values: dict[tuple[str, int], float]) -> Iterator[list[str]]:
    for metric in sorted({metric for metric, _ in values}):
        per_seed = {seed: value for (name, seed), value in sorted(values.items()) if name == metric}
        for seed, value in per_seed.items():
            yield [metric, kind, str(seed), repr(value)]
        numbers = np.array(list(per_seed.values()))
        with np.errstate(over="ignore", invalid="ignore"):  # a loss that explodes
            mean, std = float(numbers.mean()), float(numbers.std())
        yield [metric, kind, "mean", repr(mean)]
        yield [metric, kind, "std", repr(std)]
        yield [metric, kind, "n", str(len(numbers))]

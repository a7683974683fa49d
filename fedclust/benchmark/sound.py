"""Whether the numbers of a job hang together.

A job's files tell its score twice: in `rounds.csv` for every seed, and by client in
`clients.parquet`. What a slip or a hand has changed in one of them contradicts the other. Numbers
that were made up whole need `fedclust benchmark verify ARCHIVE --run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedclust.benchmark.frozen import Frozen, config_of
from fedclust.config.tree import choices
from fedclust.helpers.errors import DataError, counted
from fedclust.runtime.inputs import code_of
from fedclust.runtime.versions import files_changed_since

_NEAR = 1e-6  # a sum of float32 numbers
_SCORE, _ERROR = "accuracy", "mae"  # of which a task has one; all but errors are fractions
_RATE = "solver.lr"  # which a search may choose


def objection(bench: Frozen, job: Path) -> str | None:
    """The first reason why a job is none of a frozen benchmark, in words; None for none.

    Args:
        bench: the version.
        job: the folder of a job, or what an archive holds of one.

    Raises:
        DataError: for a file of the job that is missing or cannot be read.
    """
    return bench.difference(job) or next(_contradictions(job), None)


def _contradictions(job: Path) -> Iterator[str]:
    config = config_of(job)
    yield from _set_by_hand(config)
    rows = _read(job / "rounds.csv")
    yield from _of_rounds(rows, config)
    if not (job / "clients.parquet").is_file():
        return
    clients = _read(job / "clients.parquet")
    at_end = clients[clients["round"] == clients["round"].max()]
    for seed, left in (at_end["label"] < 0).groupby(at_end["seed"]).sum().items():
        if left:
            yield f"seed {seed} leaves {counted(left, 'client')} without a model in the last round"
    if (rows["metric"] == _SCORE).any():
        yield from _of_clients(rows, clients, job)


def _set_by_hand(config: Mapping[str, Any]) -> Iterator[str]:
    """A learning rate that was typed, and not found by a search."""
    typed = config.get("overrides")
    for text in map(str, typed if isinstance(typed, list) else ()):
        if text.lstrip("+").startswith(f"{_RATE}=") and not config.get("tuned"):
            yield f"{text} was typed, and only a search may choose it"


def _of_rounds(rows: pd.DataFrame, config: Mapping[str, Any]) -> Iterator[str]:
    """Scores that are missing in the last round, twice there, or no possible ones."""
    last = int(config["rounds"]) - 1
    known = set(rows["metric"])
    scores = [*(name for name in (_SCORE, _ERROR) if name in known), *(config.get("scores") or ())]
    if not scores:
        yield f"rounds.csv has neither {_SCORE} nor {_ERROR}"
    for name in scores:
        some = rows[rows["metric"] == name]
        if some.duplicated(["seed", "round"]).any():
            yield f"rounds.csv has a value of {name} twice"
        values = pd.to_numeric(some["value"], errors="coerce")
        at_end = values[some["round"] == last].set_axis(some["seed"][some["round"] == last])
        for seed in config["seeds"]:
            if not np.isfinite(at_end.get(seed, np.nan)):
                yield f"seed {seed} has no {name} in the last round, {last + 1}"
        most = np.inf if name == _ERROR else 1.0
        if not values.dropna().between(0.0, most).all():
            yield f"rounds.csv has a value of {name} that is not between 0 and {most:g}"


def _of_clients(rows: pd.DataFrame, clients: pd.DataFrame, job: Path) -> Iterator[str]:
    """Accuracies that are not those of the clients."""
    if not clients["correct"].between(0, clients["test_count"]).all():
        yield "clients.parquet has more right predictions than tests"
    told = rows[rows["metric"] == _SCORE].set_index(["seed", "round"])["value"].astype(float)
    sums = clients.groupby(["seed", "round"])[["correct", "test_count"]].sum()
    own = (sums["correct"] / sums["test_count"]).rename("clients")
    both = pd.concat([told, own], axis=1, join="inner").dropna().reset_index()
    if both.empty:
        yield f"rounds.csv and clients.parquet of {job.name} have no round in common"
    apart = both[(both["value"] - both["clients"]).abs() > _NEAR]
    for one in apart.to_dict("records"):
        yield (
            f"seed {one['seed']:g} has an accuracy of {100 * one['value']:.4g} % in round "
            f"{one['round'] + 1:g}, and {100 * one['clients']:.4g} % by its clients"
        )


def _read(file: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file.parent.name}/{file.name} cannot be read: {error}") from error


def lacks_code(jobs: Sequence[Path], method: str, own: Path | None) -> str | None:
    """Why the code of a method is not there as its jobs ran it, in words; None where it is.

    Args:
        jobs: folders of the method's jobs.
        method: its choice of `algorithm`.
        own: the folder of own code and configs; None for none.
    """
    if method not in choices("algorithm", own):
        return f"algorithm={method} is none of fedclust's, and its code is not there"
    for job in jobs:
        now = {} if own is None else code_of(config_of(job), own)
        if changed := files_changed_since(job / "versions.json", now):
            return f"{job.name} ran with another {changed[0]}"
    return None

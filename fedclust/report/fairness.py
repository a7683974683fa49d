"""How evenly every arm serves the clients at the end, from the rows of single clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.report.arms import Arm
from fedclust.report.statistics import fairness
from fedclust.report.table import Cell, Table
from fedclust.report.wording import plus_minus

_ALONE = "local"  # the method in which every client trains by itself
_COARSE = 20  # test examples; with fewer, one example is more than 5 points


@dataclass(frozen=True)
class Served:
    """The clients of one seed that were tested, in the order of their numbers.

    Attributes:
        client, group, correct, count: [M] int64 number, true group or -1, correct and all test
            examples.
    """

    client: NDArray[np.int64]
    group: NDArray[np.int64]
    correct: NDArray[np.int64]
    count: NDArray[np.int64]

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """[M] correct test examples / all."""
        return self.correct / self.count


def _company(arm: Arm) -> tuple[str, str]:
    """What an arm shares with training alone: the setting, and what its name says besides the
    algorithm, such as "tuned".
    """
    return arm.setting, arm.name.removeprefix(arm.algorithm)


def fairness_table(arms: Sequence[Arm]) -> Table | None:
    """Spread over clients, worst tenth, worst group and clients hurt, mean ± std over seeds; None
    where no run kept the test results of its clients.
    """
    served = {arm.label: _by_seed(arm) for arm in arms}
    shown = [arm for arm in arms if served[arm.label]]
    if not shown:
        return None
    alone = {_company(arm): served[arm.label] for arm in shown if arm.algorithm == _ALONE}
    measures: dict[str, Callable[[int, Served], float]] = {
        "std over clients": lambda _, one: 100 * fairness.spread(one.accuracy),
        "worst tenth": lambda _, one: 100 * fairness.worst_decile(one.accuracy),
        "worst group": lambda _, one: 100 * fairness.worst_group(one.correct, one.count, one.group),
    }
    rows, records = [], []
    for arm in shown:
        own = served[arm.label]
        columns = dict(measures)
        if alone:
            columns["hurt"] = partial(
                _hurt, {} if arm.algorithm == _ALONE else alone.get(_company(arm), {})
            )
        cells = [Cell(text=arm.label)]
        record: dict[str, Any] = {"arm": arm.label, "n": len(own)}
        for name, measure in columns.items():
            values = np.array([measure(seed, one) for seed, one in own.items()])
            values = values[~np.isnan(values)]
            cells.append(Cell(text=plus_minus(values)))
            if len(values):
                record |= {name: float(values.mean()), f"{name} std": float(values.std())}
        rows.append(tuple(cells))
        records.append(record)
    heads = {
        **{name: f"{name} (points)" if "std" in name else f"{name} (%)" for name in measures},
        **({"hurt": f"hurt against {_ALONE} (%)"} if alone else {}),
    }
    kept = [name for name in heads if any(name in record for record in records)]
    places = [0, *(1 + list(heads).index(name) for name in kept)]
    return Table(
        name="fairness",
        title="Fairness: test accuracy of single clients at the end",
        columns=("arm", *(heads[name] for name in kept)),
        rows=tuple(tuple(row[i] for i in places) for row in rows),
        records=tuple(records),
        notes=tuple(_notes(kept, served)),
    )


def _by_seed(arm: Arm) -> dict[int, Served]:
    """The tested clients of every seed that did not fail."""
    rows = arm.run.final_clients
    rows = rows[(rows["test_count"] > 0) & (rows["label"] >= 0)].sort_values("client")
    return {
        seed: Served(
            *(one[name].to_numpy(np.int64) for name in ("client", "group", "correct", "test_count"))
        )
        for seed in arm.run.seeds
        if seed not in arm.run.failed and len(one := rows[rows["seed"] == seed])
    }


def _hurt(alone: Mapping[int, Served], seed: int, own: Served) -> float:
    """Percent of the clients tested in both that do worse than alone; NaN where there are none."""
    other = alone.get(seed)
    if other is None:
        return np.nan
    _, here, there = np.intersect1d(own.client, other.client, return_indices=True)
    return 100 * fairness.hurt(own.accuracy[here], other.accuracy[there]) if len(here) else np.nan


def _notes(kept: Sequence[str], served: Mapping[str, Mapping[int, Served]]) -> list[str]:
    words = {
        "std over clients": "Std over clients: standard deviation of the clients' accuracies",
        "worst tenth": "Worst tenth: mean accuracy of the tenth of the clients that has the lowest",
        "worst group": "Worst group: the lowest accuracy of a true group, over all its test "
        "examples",
        "hurt": f"Hurt: clients more than {100 * fairness.MARGIN:g} points below what they reach "
        f"alone ({_ALONE}) in the same seed, in percent of all",
    }
    lines = [". ".join(words[name] for name in kept) + ". Each: mean ± std over seeds."]
    fewest = min(int(one.count.min()) for own in served.values() for one in own.values())
    if fewest < _COARSE:
        lines.append(
            f"Some clients have only {fewest} test examples, so their accuracy is coarse: part of "
            "the spread and of the worst tenth is chance."
        )
    return lines

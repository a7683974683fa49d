"""How evenly every arm serves the clients at the end, from the rows of single clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedclust.report.arms import Arm
from fedclust.report.columns import ARM, Column, over_seeds, tabulate
from fedclust.report.statistics import fairness
from fedclust.report.table import Table

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


def _hurt(own: Served, alone: Served | None) -> float:
    """Percent of the clients tested in both that do worse than alone; NaN where there are none."""
    if alone is None:
        return np.nan
    _, here, there = np.intersect1d(own.client, alone.client, return_indices=True)
    return 100 * fairness.hurt(own.accuracy[here], alone.accuracy[there]) if len(here) else np.nan


# name → head, what it means, and the number of one seed, beside training alone in the same seed
_MEASURES: dict[str, tuple[str, str, Callable[[Served, Served | None], float]]] = {
    "std over clients": (
        "std over clients (points)",
        "standard deviation of the clients' accuracies",
        lambda own, _: 100 * fairness.spread(own.accuracy),
    ),
    "worst tenth": (
        "worst tenth (%)",
        "mean accuracy of the tenth of the clients that has the lowest",
        lambda own, _: 100 * fairness.worst_decile(own.accuracy),
    ),
    "worst group": (
        "worst group (%)",
        "the lowest accuracy of a true group, over all its test examples",
        lambda own, _: 100 * fairness.worst_group(own.correct, own.count, own.group),
    ),
    "hurt": (
        f"hurt against {_ALONE} (%)",
        f"clients more than {100 * fairness.MARGIN:g} points below what they reach alone "
        f"({_ALONE}) in the same seed, in percent of all",
        _hurt,
    ),
}


def fairness_table(arms: Sequence[Arm]) -> Table | None:
    """Spread over clients, worst tenth, worst group and clients hurt, mean ± std over seeds; None
    where no run kept the test results of its clients.
    """
    served = {arm.label: by_seed for arm in arms if (by_seed := _by_seed(arm))}
    shown = [arm for arm in arms if arm.label in served]
    if not shown:
        return None
    # training alone in the same setting, and with the same options behind the algorithm's name
    alone = {_beside(arm): served[arm.label] for arm in shown if arm.algorithm == _ALONE}
    values: dict[tuple[str, str], NDArray[np.float64]] = {}
    for arm in shown:
        others = {} if arm.algorithm == _ALONE else alone.get(_beside(arm), {})
        for name, (_, _, measure) in _MEASURES.items():
            every = [measure(own, others.get(s)) for s, own in served[arm.label].items()]
            values[arm.label, name] = np.array([value for value in every if value == value])
    kept = [name for name in _MEASURES if any(len(values[arm.label, name]) for arm in shown)]
    columns = [ARM, Column(None, lambda arm: len(served[arm.label]), record="n")]
    for name in kept:
        read = partial(lambda name, arm: values[arm.label, name], name)
        columns.append(over_seeds(_MEASURES[name][0], name, read, suffix=" std"))
    title = "Fairness: test accuracy of single clients at the end"
    return tabulate("fairness", title, columns, shown, notes=_notes(kept, served))


def _beside(arm: Arm) -> tuple[str, str]:
    """What an arm shares with training alone: the setting, and what its name says besides the
    algorithm, such as "tuned".
    """
    return arm.setting, arm.name.removeprefix(arm.algorithm)


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


def _notes(kept: Sequence[str], served: Mapping[str, Mapping[int, Served]]) -> list[str]:
    meanings = (f"{name[0].upper()}{name[1:]}: {_MEASURES[name][1]}" for name in kept)
    lines = [". ".join(meanings) + ". Each: mean ± std over seeds."]
    fewest = min(int(one.count.min()) for own in served.values() for one in own.values())
    if fewest < _COARSE:
        lines.append(
            f"Some clients have only {fewest} test examples, so their accuracy is coarse: part of "
            "the spread and of the worst tenth is chance."
        )
    return lines

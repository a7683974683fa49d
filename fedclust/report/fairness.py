"""How evenly every arm serves the clients at the end, from the rows of single clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedclust.metrics import METRICS, headline_of
from fedclust.report.arms import Arm
from fedclust.report.columns import ARM, TableColumn, over_seeds, tabulate
from fedclust.report.formats import decimals, factor, in_percent, lower_is_better, sign
from fedclust.report.statistics import fairness
from fedclust.report.table import Table

_ALONE = "local"  # the method in which every client trains by itself
_IN_UNIT = ("std over clients", "worst tenth")  # of the score's own
_COUNTED = ("client", "group", "correct", "test_count")
_COARSE = 20  # test examples; with fewer, one example is more than 5 points


@dataclass(frozen=True)
class TestedClients:
    """The clients of one seed that were tested, in the order of their numbers.

    Attributes:
        client, group, correct, count: [M] int64 number, true group or -1, correct and all test
            examples.
        score: [M] headline of another task, its sign such that higher is better; None for accuracy.
        factor: what scores are multiplied by before they are shown.
    """

    client: NDArray[np.int64]
    group: NDArray[np.int64]
    correct: NDArray[np.int64]
    count: NDArray[np.int64]
    score: NDArray[np.float64] | None = None
    factor: float = 100.0

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """[M] correct test examples / all, or the score."""
        return self.correct / self.count if self.score is None else self.score


def _worst_group(own: TestedClients) -> float:
    """The lowest accuracy of a true group; NaN for scores that single clients' do not give."""
    if own.score is not None:
        return np.nan
    return fairness.worst_group(own.correct, own.count, own.group)


def hurt_clients(own: TestedClients, alone: TestedClients | None) -> float:
    """Percent of the clients tested in both that do worse than alone; NaN where there are none."""
    if alone is None:
        return np.nan
    _, rows, beside = np.intersect1d(own.client, alone.client, return_indices=True)
    margin = fairness.MARGIN if own.factor == 100.0 else 0.0
    both = own.accuracy[rows], alone.accuracy[beside]
    return 100 * fairness.hurt(*both, margin) if len(rows) else np.nan


# name → head, what it means, and the number of one seed, beside training alone in the same seed
_MEASURES: dict[str, tuple[str, str, Callable[[TestedClients, TestedClients | None], float]]] = {
    "std over clients": (
        "std over clients (points)",
        "standard deviation of the clients' accuracies",
        lambda own, _: own.factor * fairness.spread(own.accuracy),
    ),
    "worst tenth": (
        "worst tenth (%)",
        "mean accuracy of the tenth of the clients with the lowest accuracy",
        lambda own, _: own.factor * fairness.worst_decile(own.accuracy),
    ),
    "worst group": (
        "worst group (%)",
        "the lowest accuracy of a true group, over all its test examples",
        lambda own, _: 100 * _worst_group(own),
    ),
    "hurt": (
        f"hurt against {_ALONE} (%)",
        f"percentage of clients that are more than {100 * fairness.MARGIN:g} points below their "
        f"accuracy when training alone ({_ALONE}) in the same seed",
        hurt_clients,
    ),
}


def _words(text: str, own: str) -> str:
    """A head or a meaning of `_MEASURES` for the headline `own` of a task."""
    if own == "accuracy":
        return text
    name = own.replace("_", " ")
    text = text.replace("accuracies", f"{name} values").replace("accuracy", name)
    if own not in METRICS:
        return text
    if lower_is_better(own):
        text = text.replace("has the lowest", "has the highest")
        text = text.replace("points below", "points above")
    if not in_percent(own):
        text = text.replace(" (points)", "").replace("worst tenth (%)", "worst tenth")
        for side in ("above", "below"):
            text = text.replace(f"more than {100 * fairness.MARGIN:g} points {side}", side)
    return text


def fairness_table(arms: Sequence[Arm]) -> Table | None:
    """Spread, worst tenth, worst group and clients hurt; None without tested clients."""
    served = {arm.label: by_seed for arm in arms if (by_seed := tested_clients(arm))}
    heads = [headline_of(arm.run.curves) for arm in arms if arm.label in served]
    if not heads:
        return None
    own = Counter(heads).most_common(1)[0][0]  # of jobs of several tasks, the one that most have
    shown = [a for a in arms if a.label in served and headline_of(a.run.curves) == own]
    served = {arm.label: served[arm.label] for arm in shown}
    alone = [arm for arm in shown if arm.algorithm == _ALONE]
    values: dict[tuple[str, str], NDArray[np.float64]] = {}
    for arm in shown:
        match = None if arm.algorithm == _ALONE else _beside(arm, alone)
        others = {} if match is None else served[match.label]
        for name, (_, _, measure) in _MEASURES.items():
            every = [measure(own, others.get(s)) for s, own in served[arm.label].items()]
            values[arm.label, name] = np.array([value for value in every if value == value])
            if name == "worst tenth":  # scores are such that more is better
                values[arm.label, name] *= sign(own)
    kept = [name for name in _MEASURES if any(len(values[arm.label, name]) for arm in shown)]
    columns = [ARM, TableColumn(None, lambda arm: len(served[arm.label]), record="n")]
    for name in kept:
        read = partial(lambda key, arm: values[arm.label, key], name)
        digits = partial(decimals, own) if name in _IN_UNIT else 2
        head = _words(_MEASURES[name][0], own)
        columns.append(over_seeds(head, name, read, digits, suffix=" std"))
    title = _words("Fairness: test accuracy of single clients at the end", own)
    return tabulate("fairness", title, columns, shown, notes=_notes(kept, served, own))


def _beside(arm: Arm, alone: Sequence[Arm]) -> Arm | None:
    """Training alone in the same setting: with the same options behind the algorithm's name, such
    as "tuned", or else the only one with the same local work.
    """

    def options(one: Arm) -> str:
        return one.name.removeprefix(one.algorithm)

    here = [one for one in alone if one.setting == arm.setting]
    same = [one for one in here if options(one) == options(arm)]
    solver = arm.run.config.get("solver")
    alike = [one for one in here if solver and one.run.config.get("solver") == solver]
    found = same or alike
    return found[0] if len(found) == 1 else None


def tested_clients(arm: Arm) -> dict[int, TestedClients]:
    """The tested clients of every seed that did not fail."""
    rows = arm.run.final_clients
    rows = rows[rows["test_count"] > 0].sort_values("client")  # of those that are served
    own = headline_of(arm.run.curves)
    judged = own in rows
    rows = rows[rows[own].notna()] if judged else rows
    clients = {}
    for seed in arm.run.seeds:
        one = rows[rows["seed"] == seed]
        if seed not in arm.run.failed and len(one):
            client, group, correct, count = (one[name].to_numpy(np.int64) for name in _COUNTED)
            score = sign(own) * one[own].to_numpy(np.float64) if judged else None
            scale = factor(own) if judged else 100.0
            clients[seed] = TestedClients(client, group, correct, count, score, scale)
    return clients


def _notes(
    kept: Sequence[str], served: Mapping[str, Mapping[int, TestedClients]], own: str
) -> list[str]:
    meanings = (f"{name[0].upper()}{name[1:]}: {_words(_MEASURES[name][1], own)}" for name in kept)
    lines = [". ".join(meanings) + ". Each: mean ± std over seeds."]
    fewest = min(int(one.count.min()) for own in served.values() for one in own.values())
    if fewest < _COARSE:
        lines.append(
            f"Some clients have only {fewest} test examples, so their {_words('accuracy', own)} is "
            "coarse: part of the spread and of the worst tenth is chance."
        )
    return lines

"""What the jobs of the benchmark say: one result for each method, federation and track."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.benchmark.frozen import Frozen, choice_in
from fedclust.metrics import headline_of
from fedclust.report.arms import Arm
from fedclust.report.fairness import TestedClients, tested_clients
from fedclust.report.formats import factor, sign
from fedclust.report.reading import read_runs
from fedclust.report.same_data import redrawn
from fedclust.report.trivial import guessed

Floats = NDArray[np.float64]
KNOWING, ONE_FOR_ALL, ALONE = "oracle", "fedavg", "local"
COSTS = ("bytes", "gradient_steps")


@dataclass(frozen=True)
class Track:
    """Which jobs are compared with each other.

    Attributes:
        name: of the track.
        about: what its jobs may know, in words.
        tuned: whether a search has chosen their options.
        told: whether methods that need the number of groups may be given the true one.
        typed: what a user types for a job of this track.
    """

    name: str
    about: str
    tuned: bool
    told: bool
    typed: str


_SEARCHED = "options and number of clusters from a search"
_FOUND = "default options and the number of clusters found"
_GIVEN = "default options and the true number of groups"
# the first one that has results is the one that a reader meets
TRACKS = (
    Track("tuned", _SEARCHED, True, False, "tuned=outputs/benchmark/v1-tuning"),
    Track("number not told", _FOUND, False, False, "num_clusters=auto"),
    Track("number told", _GIVEN, False, True, ""),
)


@dataclass(frozen=True)
class Result:
    """One method in one federation.

    Attributes:
        method: its choice of `algorithm`.
        case: its federation's choice of `case`.
        title: what reports call the federation.
        metric: the score, such as accuracy.
        tuned: whether a search has chosen its options, beside the number of clusters.
        told: whether it was given a number of clusters; None for a method that needs none.
        seeds: [S] those that have a score.
        score: [S] in the last round; percent where it is a fraction; higher is better.
        clients: of every seed, how each client was served at the end.
        at: [R] rounds that were tested, counted from 1.
        curve: [R] the score, mean over seeds.
        spent: by cost, [R] how much was spent until then, mean over seeds.
        seconds: of all seeds together.
        search: what the search for its options cost, in runs like this one; 0 without one.
        guess: what a guess without inputs reaches, mean over seeds; NaN where it was not kept.
        redrawn: test / training examples where every seed splits the same rows anew, else 0.
        commit: of the program that ran it.
        machine: where it ran.
    """

    method: str
    case: str
    title: str
    metric: str
    tuned: bool
    told: bool | None
    seeds: tuple[int, ...]
    score: Floats
    clients: Mapping[int, TestedClients]
    at: NDArray[np.int64]
    curve: Floats
    spent: Mapping[str, Floats]
    seconds: float
    search: float
    guess: float
    redrawn: float
    commit: str
    machine: str

    def is_made_like(self, other: Result) -> bool:
        """Whether one version of the program made both on one machine."""
        return (self.commit, self.machine) == (other.commit, other.machine)

    def by_seed(self, seeds: Sequence[int]) -> Floats:
        """The score [S] of some seeds."""
        known = dict(zip(self.seeds, self.score, strict=True))
        return np.array([known[seed] for seed in seeds])

    def when(self, cost: str, amount: float) -> float:
        """The score when so much was spent: between two tests linear, at the end the last one."""
        return float(np.interp(amount, self.spent[cost], self.curve))

    def until(self, cost: str, score: float) -> float:
        """What was spent at the first test from which the score stays at least so high; inf."""
        above = np.minimum.accumulate(self.curve[::-1])[::-1] >= score
        return float(self.spent[cost][above.argmax()]) if above.any() else np.inf

    def plays_in(self, track: Track) -> bool:
        """Whether it is one of a track's jobs."""
        return self.tuned == track.tuned and (self.told is None or self.told == track.told)


def results(folders: Iterable[Path], bench: Frozen) -> list[Result]:
    """The finished jobs of some folders that are of a version of the benchmark."""
    found = []
    for folder in folders:
        for run in read_runs(folder):
            case = choice_in(run.config, "case")
            if run.status.get("state") == "done" and case in bench.federations:
                found.append(_result(Arm(run, choice_in(run.config, "algorithm"), case)))
    return found


def _result(arm: Arm) -> Result:
    config = arm.run.config
    metric = str((config.get("scores") or [headline_of(arm.run.curves)])[0])
    scale = factor(metric) * sign(metric)
    values = arm.by_seed(metric)
    shown = arm.curve(headline_of(arm.run.curves))
    assert shown is not None
    spent = {cost: _until(arm, cost, shown.rounds) for cost in COSTS}
    needs = _asks(config.get("algorithm") or {}) and arm.name != KNOWING
    tuned, found = kind_of(config)
    guess = guessed(arm, metric)
    own = headline_of(arm.run.curves)
    return Result(
        method=arm.name,
        case=arm.setting,
        title=str(arm.run.asked.get("case") or arm.setting),
        metric=metric,
        tuned=tuned,
        told=not found if needs else None,
        seeds=tuple(values),
        score=scale * np.array(list(values.values())),
        clients=tested_clients(arm),
        at=shown.rounds + 1,
        curve=factor(own) * sign(own) * shown.mean(),
        spent=spent,
        seconds=float(arm.total("seconds").sum()),
        search=_search_runs(config),
        guess=float(scale * guess.mean()) if len(guess) else np.nan,
        redrawn=ratio if isfinite(ratio := redrawn([arm]).get(arm.setting, 0.0)) else 0.0,
        commit=str(arm.run.versions.get("commit") or "unknown"),
        machine=str(arm.run.versions.get("device") or "unknown"),
    )


def kind_of(config: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether a search has chosen a job's options, and whether its number of clusters was found."""
    searched = _searched(config)
    found = config.get("num_clusters") == "auto" or "num_clusters" in searched
    return bool(searched.keys() - {"num_clusters"}), found


def _until(arm: Arm, cost: str, rounds: NDArray[np.int64]) -> Floats:
    """What was spent until the end of some rounds, mean over seeds."""
    curve = arm.curve(cost)
    if curve is None:
        return np.zeros(len(rounds))
    total = np.nan_to_num(curve.values).cumsum(axis=0).mean(axis=1)
    return np.asarray(total[np.searchsorted(curve.rounds, rounds, side="right") - 1])


def _asks(node: object) -> bool:
    """Whether a part of a method's config has a number of clusters."""
    if not isinstance(node, Mapping):
        return False
    return node.get("num_clusters") is not None or any(map(_asks, node.values()))


def _search_runs(config: Mapping[str, Any]) -> float:
    """The runs of a search, each with as many seeds as the job has; 0 without one."""
    search = config.get("search")
    if not isinstance(search, Mapping):
        return 0.0
    return int(search["trials"]) * len(search["seeds"]) / len(config["seeds"])


def _searched(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a search has chosen, by key."""
    search = config.get("search")
    values = search.get("values") if isinstance(search, Mapping) else None
    return values if isinstance(values, Mapping) else {}

"""What a guess without inputs reaches: a line of the tables, and which methods are below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import some_of
from fedclust.metrics import worse
from fedclust.report.arms import SEPARATOR, Arm, settings_of
from fedclust.report.spec import Spec

NAME = "no inputs"
MEANING = (
    "No inputs: a constant guess for each client, its most frequent training class or the mean of "
    "its training targets"
)
OF_SCORES = (
    "No inputs: a constant guess for each client, from its training targets. Scores of "
    "probabilities, such as Brier and AUROC, get the share of each class or label, scores of "
    "classes the most frequent class, and scores of numbers the mean"
)
_NAMED = 6  # methods


@dataclass(frozen=True)
class Guess:
    """A line of no method: its setting or "" for all, and `values` by metric of every seed [S]."""

    setting: str
    values: dict[str, NDArray[np.float64]]
    name: str = NAME

    @property
    def label(self) -> str:
        """Name and setting."""
        return SEPARATOR.join(part for part in (self.name, self.setting) if part)

    def last(self, metric: str) -> NDArray[np.float64]:
        """[S] what it reaches per seed."""
        return self.values.get(metric, np.empty(0))


def guessed(arm: Arm, metric: str) -> NDArray[np.float64]:
    """[S] what the guess reaches in the arm's seeds; empty where there is none or none was kept."""
    seeds = {s: about for job in arm.jobs for s, about in job.federation.get("seeds", {}).items()}
    kept = [about.get("trivial", {}) for about in seeds.values()]
    return np.array([guess[metric] for guess in kept if metric in guess])


def guesses(arms: Sequence[Arm], metrics: Sequence[str], *, by_setting: bool) -> list[Guess]:
    """The guess in each setting that has one; a single one where all agree, unless `by_setting`."""
    known = []
    for setting in settings_of(arms):
        own = [arm for arm in arms if arm.setting == setting]
        each = {m: max((guessed(arm, m) for arm in own), key=len) for m in metrics}
        known.append(Guess(setting, {m: v for m, v in each.items() if len(v)}))
    plain = [{m: v.tolist() for m, v in one.values.items()} for one in known]
    if not by_setting and all(one == plain[0] for one in plain):
        known = [Guess("", one.values) for one in known[:1]]
    return [one for one in known if one.values]


def below(spec: Spec, arms: Sequence[Arm]) -> list[str]:
    """What the guess is, and the arms that do not beat it; nothing for metrics that have none."""
    metric = spec.metric
    known = [(arm, guess) for arm in arms if len(guess := guessed(arm, metric))]
    named = [arm.label for arm, guess in known if worse(metric, arm.last(metric), guess)]
    lines = [f"{MEANING}."] if known else []
    if named:
        lines.append(f"Worse than this guess at the end: {some_of(named, _NAMED, '; ')}.")
    return lines

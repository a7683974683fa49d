"""From searches to advice: repetitions, evidence of the groups, verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedclust.advise.crossed import calibration, relations
from fedclust.advise.differences import differences
from fedclust.advise.evidence import agreed, agreement, p_value, together
from fedclust.advise.repetitions import Repetitions, Runner
from fedclust.advise.verdict import GROUPS, Evidence, verdict
from fedclust.advise.words import Advice
from fedclust.report.formats import in_percent
from fedclust.runtime.progress import Progress
from fedclust.tuning.one_search import Search

_MARGIN = 0.01  # of accuracies and scores in [0, 1]; of an error this part of its mean


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a user asks for beside the config.

    Attributes:
        budget: settings of each method.
        permutations: federations with exchanged rows; 0 for no test.
        margin: the least difference that matters, in the metric's unit; None for a hundredth.
        metric: what is measured on test rows; None for the task's, see `Runner`.
        quick: whether it is a first look only.
    """

    budget: int
    permutations: int
    margin: float | None = None
    metric: str | None = None
    quick: bool = False


def advise(
    searches: Sequence[tuple[str, Search]],
    folder: Path,
    asked: Asked,
    begun: Callable[[str, int], object],
    progress: Progress,
) -> Advice:
    """What the clients should train; see `Runner` for the arguments."""
    runner = Runner(searches, asked.budget, folder, asked.metric, begun, progress)
    one = runner.all()
    shares = together(one.labels)
    groups = agreed(shares)
    count = int(groups.max()) + 1
    found = agreement(one.labels) if len(one.seeds) > 1 else math.nan
    tested = {choice: runner.tested(one, choice) for choice in one.scores}
    evidence = Evidence(count, found, _permuted(runner, one, asked.permutations))
    if not evidence.agrees:
        groups = np.zeros_like(groups)  # nothing is told of groups that are chance
    margin = asked.margin or _usual_margin(one)
    scores = {choice: one.sign * values for choice, values in one.scores.items()}
    made = verdict(scores, one.redrawn, margin, evidence, one.rows)
    fed = next(iter(runner.federations.values()))
    names = list(fed.names.clients) or [str(client) for client in range(fed.num_clients)]
    in_use = runner.into_use(one.usual(made.choice))
    return Advice(
        verdict=made,
        repetitions=one,
        evidence=evidence,
        names=names,
        together=shares,
        groups=groups,
        trained=in_use.folder,
        in_use=in_use.clusters().numpy() if made.choice == GROUPS else None,
        margin=margin,
        remarks=[*dict.fromkeys(r for fed in runner.federations.values() for r in fed.remarks)],
        permutations=asked.permutations,
        differences=differences(fed, groups),
        relations=relations(tested[GROUPS], groups, one.redrawn),
        calibration={choice: calibration(own) for choice, own in tested.items()},
        quick=asked.quick,
    )


def _permuted(runner: Runner, one: Repetitions, count: int) -> float:
    """p of the permutation test; NaN unless groups have the best mean, without which nothing is
    claimed of them.
    """
    means = {choice: one.sign * float(values.mean()) for choice, values in one.scores.items()}
    if not count or max(means, key=means.__getitem__) != GROUPS:
        return math.nan
    null = runner.exchanged((one.usual(GROUPS), one.usual("one")), count)
    return p_value(means[GROUPS] - means["one"], null)


def _usual_margin(one: Repetitions) -> float:
    """A point of an accuracy, a hundredth of a score in [0, 1], a hundredth of a mean error."""
    if in_percent(one.metric) or one.better == "higher":
        return _MARGIN
    return _MARGIN * float(one.scores["one"].mean())

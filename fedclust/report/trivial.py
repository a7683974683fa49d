"""What a guess without inputs reaches, and which methods are below it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedclust.metrics import METRICS
from fedclust.report.arms import Arm
from fedclust.report.formats import listed, show
from fedclust.report.spec import Spec

_NAMED = 6  # methods and settings


def trivial_notes(spec: Spec, arms: Sequence[Arm]) -> list[str]:
    """A line on the guess in every setting, and one on the arms that do not beat it; nothing for
    metrics that have none, and for runs from before it was kept.
    """
    metric, reached, below = spec.metric, dict[str, str](), list[str]()
    sign = -1.0 if METRICS[metric].better == "lower" else 1.0
    for arm in arms:
        seeds = arm.run.federation.get("seeds", {}).values()
        guesses = [g[metric] for seed in seeds if metric in (g := seed.get("trivial", {}))]
        values = arm.last(metric)
        if not guesses:
            continue
        guess = float(np.mean(guesses))
        reached[arm.setting] = show(metric, guess)
        if len(values) and sign * values.mean() < sign * guess:
            below.append(arm.label)
    if not reached:
        return []
    alone = len(set(reached.values())) == 1
    each = [value if alone else f"{setting}: {value}" for setting, value in reached.items()]
    between = ", " if set(reached) == {""} else "; "  # names of settings have commas
    lines = [
        "A guess without inputs, by what each client's own training targets are on average or most "
        f"often: {listed(each, _NAMED, between)}."
    ]
    if below:
        lines.append(f"Worse than this guess at the end: {listed(below, _NAMED, between)}.")
    return lines

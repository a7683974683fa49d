"""What every arm has reached after the same simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedclust.report.arms import Arm, settings_of
from fedclust.report.columns import ARM, TableColumn, over_seeds, tabulate
from fedclust.report.formats import decimals, factor, in_percent, in_time, title
from fedclust.report.spec import TIME, Spec
from fedclust.report.table import Table

_PARTS = (0.25, 0.5, 1.0)  # of the time that all seeds of all arms of a setting have used


def equal_time_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """One row per arm with a clock: the metric at equal times; None where no two have one."""
    timed = [arm for arm in arms if arm.curve(TIME) and arm.curve(spec.metric)]
    if len(timed) < 2:
        return None
    shared = {
        setting: min(float(arm.total(TIME).min()) for arm in timed if arm.setting == setting)
        for setting in settings_of(timed)
    }
    metric, scale = spec.metric, factor(spec.metric)
    columns = [
        ARM,
        TableColumn("time", lambda arm: shared[arm.setting], in_time, "time"),
        *(
            over_seeds(
                f"after {part:.0%} of it" if part < 1 else "after all of it",
                f"{metric}_{part:.0%}".removesuffix("%"),
                partial(_after, metric, shared, part),
                partial(decimals, metric),
                factor=scale,
            )
            for part in _PARTS
        ),
    ]
    notes = (
        "Time: what every seed of every arm in the setting has used at least, as the clock "
        "computes it. Of each seed the last test within the time counts; nothing is interpolated. "
        "–: some seed had no test by then.",
    )
    heading = f"{title(metric)} at equal simulated time" + " (%)" * in_percent(metric)
    return tabulate("equal_time", heading, columns, timed, notes=notes)


def _after(metric: str, shared: dict[str, float], part: float, arm: Arm) -> NDArray[np.float64]:
    """[S] the value of the last test within this part of the time; none unless all seeds have one,
    since those with slow clients are the ones that lack it.
    """
    curve, spent = arm.curve(metric), arm.curve(TIME)
    assert curve is not None
    assert spent is not None
    ends = np.nancumsum(spent.values, axis=0)
    values = []
    for seed in curve.seeds:
        column, own = curve.seeds.index(seed), spent.seeds.index(seed)
        # a hair more, since sums of the same numbers may round apart
        within = spent.rounds[ends[:, own] <= part * shared[arm.setting] * (1 + 1e-9)]
        tested = curve.values[np.isin(curve.rounds, within), column]
        values += tested[~np.isnan(tested)][-1:].tolist()
    return np.array(values if len(values) == len(curve.seeds) else [])

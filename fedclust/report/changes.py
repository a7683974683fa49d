"""How clients fare whose data change: their fall, and how soon they are back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedclust.report.arms import Arm
from fedclust.report.columns import ARM, Column, over_seeds, per_seed, tabulate
from fedclust.report.formats import meant
from fedclust.report.table import Table

_SHARES = {
    "changed_before": "before, %",
    "changed_at_once": "at once, %",
    "changed_accuracy": "after, %",
}


def changes_table(arms: Sequence[Arm]) -> Table | None:
    """What the measured changes of a scenario did to every arm; None where there are none.

    Accuracies are means over changes, that after them over all rounds since the first. A change
    after which no accuracy before it is known, or which another one follows too soon, counts as not
    recovered.
    """
    measured = [arm for arm in arms if arm.curve("changed_clients") is not None]
    changes, recovered = _number_of("changed_clients"), _number_of("recovery_rounds")
    columns = [
        ARM,
        Column("changes in all seeds", changes, record="changes"),
        Column(None, recovered, record="recovered"),
        Column(
            "clients each", lambda arm: np.nanmean(_values(arm, "changed_clients")), "{:.1f}".format
        ),
        *(over_seeds(head, name, _means_of(name), factor=100) for name, head in _SHARES.items()),
        Column("recovered", lambda arm: f"{recovered(arm)} of {changes(arm)}"),
        over_seeds("rounds until then", "recovery_rounds", _means_of("recovery_rounds"), 1),
    ]
    note = ". ".join(meant(name) for name in (*_SHARES, "recovery_rounds")) + "."
    return tabulate("changes", "Clients whose data changed", columns, measured, notes=[note])


def _values(arm: Arm, metric: str) -> NDArray[np.float64]:
    """[R, S] values of a metric, NaN where there are none."""
    curve = arm.curve(metric)
    return curve.values if curve else np.empty((0, 0))


def _number_of(metric: str) -> Callable[[Arm], int]:
    """Reads how many values of a metric an arm has, in all rounds and seeds."""
    return lambda arm: int((~np.isnan(_values(arm, metric))).sum())


def _means_of(metric: str) -> Callable[[Arm], NDArray[np.float64]]:
    """Reads the mean over rounds [S] of every seed that has any value."""
    return lambda arm: per_seed(np.nanmean, _values(arm, metric))

"""Reports of errors, of which less is better and whose unit is the target's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedclust.metrics import METRICS, Meaning
from fedclust.report.arms import Arm
from fedclust.report.runs import Curve, Run


@pytest.fixture(autouse=True)
def mae(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headline of regression, as a run documents it."""
    monkeypatch.setitem(METRICS, "mae", Meaning("an error", "", "lower", "Mean absolute error"))


def arm(name: str, values: list[list[float]], setting: str = "", metric: str = "mae") -> Arm:
    """An arm with values [rounds][seeds]."""
    grid = np.array(values, dtype=float)
    curve = Curve(np.arange(len(grid)), tuple(range(grid.shape[1])), grid)
    return Arm(Run(Path(name), {}, {}, {metric: curve}), name, setting)


def test_the_best_error_over_rounds_is_the_least() -> None:
    values = [[1.0, 3.0], [0.25, 0.5], [0.5, 0.75]]
    assert arm("a", values).best("mae").tolist() == [0.25, 0.5]
    assert arm("a", values, metric="accuracy").best("accuracy").tolist() == [1.0, 3.0]

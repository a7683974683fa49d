"""Reports of errors, of which less is better and whose unit is the target's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedclust.metrics import METRICS, Meaning
from fedclust.report.against_best import rule, standings
from fedclust.report.arms import Arm
from fedclust.report.comparison import comparison_table, overall_table
from fedclust.report.formats import decimals
from fedclust.report.runs import Curve, Run
from fedclust.report.scores import scores_table
from fedclust.report.spec import Spec
from fedclust.report.tables import rounds_table


@pytest.fixture(autouse=True)
def mae(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headline of regression, as a run documents it."""
    monkeypatch.setitem(METRICS, "mae", Meaning("an error", "", "lower", "Mean absolute error"))


def arm(name: str, values: list[list[float]], setting: str = "", metric: str = "mae") -> Arm:
    """An arm with values [rounds][seeds]."""
    grid = np.array(values, dtype=float)
    rounds, seeds = np.arange(len(grid)), tuple(range(grid.shape[1]))
    curves = {metric: Curve(rounds, seeds, grid)}
    curves[f"{metric}_undefined"] = Curve(rounds, seeds, 0 * grid)
    return Arm(Run(Path(name), {}, {}, curves), name, setting)


def test_the_best_error_over_rounds_is_the_least() -> None:
    values = [[1.0, 3.0], [0.25, 0.5], [0.5, 0.75]]
    assert arm("a", values).best("mae").tolist() == [0.25, 0.5]
    assert arm("a", values, metric="accuracy").best("accuracy").tolist() == [1.0, 3.0]


@pytest.mark.parametrize("unit", [1e6, 1.0, 1e-6, 1e-9])
def test_every_table_has_four_digits_of_an_error_whatever_its_unit(unit: float) -> None:
    spec, plain = Spec(metric="mae"), {1e6: 0, 1.0: 4, 1e-6: 10, 1e-9: 13}[unit]
    arms = [arm("a", [[0.5 * unit], [0.25 * unit]]), arm("b", [[0.5 * unit], [0.375 * unit]])]
    for one, value in zip(arms, (0.25, 0.375), strict=True):
        for table in (rounds_table(spec, arms), scores_table(arms)):
            assert table is not None
            (row,) = [row for row in table.rows if row[0].text == one.name]
            assert row[1].text == f"{value * unit:.{plain}f}"
    table = comparison_table(spec, arms)
    assert table is not None
    assert [row[1].text for row in table.rows] == ["best", f"+{0.125 * unit:.{plain}f}"]


def test_a_score_near_zero_of_which_more_is_better_has_four_decimals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METRICS, "r2", Meaning("R²", "", "higher", "R²"))
    assert [decimals("r2", value) for value in (0.9, 0.001, -3.0)] == [4, 4, 3]


def test_an_error_is_worse_than_the_best_not_below_it() -> None:
    worse = [[1.0 + 0.01 * seed for seed in range(10)]]
    arms = [arm("a", [[0.5] * 10]), arm("b", worse)]
    table = comparison_table(Spec(metric="mae"), arms)
    assert table is not None
    assert [row[-1].text for row in table.rows] == ["the best mean", "worse than the best"]
    scores = {one.name: one.by_seed("mae") for one in arms}
    assert (
        "not significantly worse than it ("
        in rule(list(standings(scores, "mae").values()), "mae")[0]
    )


def test_over_several_federations_an_error_below_that_of_fedavg_counts_as_better() -> None:
    arms = [
        arm(name, [[value, value]], setting)
        for setting in ("one", "two")
        for name, value in (("a", 0.25), ("fedavg", 0.5), ("b", 0.75))
    ]
    table = overall_table(Spec(metric="mae"), arms)
    assert table is not None
    assert table.columns[2] == "IQM of lead over fedavg"
    assert [row[2].text for row in table.rows] == ["+0.2500", "+0.0000", "−0.2500"]
    assert "the score of fedavg in the same seed minus its own" in table.notes[1]
    table = overall_table(Spec(metric="mae"), [one for one in arms if one.name != "fedavg"])
    assert table is not None
    assert table.columns[2] == "IQM of −mean absolute error"
    assert [row[2].text for row in table.rows] == ["−0.2500", "−0.7500"]

"""Reports of errors, of which less is better and whose unit is the target's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import texts
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fedclust.metrics import METRICS, Meaning
from fedclust.report.against_best import rule, standings
from fedclust.report.arms import Arm
from fedclust.report.comparison import comparison_table, overall_table
from fedclust.report.curves import axis_of, draw_curve
from fedclust.report.fairness import fairness_table
from fedclust.report.federations import federation_table
from fedclust.report.formats import decimals, plus_minus
from fedclust.report.headline import headline
from fedclust.report.panels import heat
from fedclust.report.pivot import Pivot
from fedclust.report.relative import relative_table
from fedclust.report.runs import Curve, Run
from fedclust.report.scores import scores_table
from fedclust.report.spec import Spec
from fedclust.report.tables import rounds_table


@pytest.fixture(autouse=True)
def mae(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of regression, as a run documents them."""
    monkeypatch.setitem(METRICS, "mae", Meaning("an error", "", "lower", "Mean absolute error"))
    monkeypatch.setitem(METRICS, "r2", Meaning("R²", "", "higher", "R²"))


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
            (row,) = [row for row in table.rows if row[0].text == one.name]
            assert row[1].text == f"{value * unit:.{plain}f}"
    table = comparison_table(spec, arms)
    assert [row[1].text for row in table.rows] == ["best", f"+{0.125 * unit:.{plain}f}"]


def test_an_error_that_has_exploded_has_an_exponent() -> None:
    assert plus_minus(np.array([1.5e18, 2.5e18]), 0) == "2.000e+18 ± 5.000e+17"
    assert plus_minus(np.array([1.5e9, 2.5e9]), 0) == "2000000000 ± 500000000"


def test_a_score_near_zero_of_which_more_is_better_has_four_decimals() -> None:
    assert [decimals("r2", value) for value in (0.9, 0.001, -3.0)] == [4, 4, 3]


def test_an_error_is_worse_than_the_best_not_below_it() -> None:
    worse = [[1.0 + 0.01 * seed for seed in range(10)]]
    arms = [arm("a", [[0.5] * 10]), arm("b", worse)]
    table = comparison_table(Spec(metric="mae"), arms)
    assert table.rows[1][1].text == "+0.5450"  # as many decimals as 0.5000, though 1.045 has three
    assert [row[-1].text for row in table.rows] == ["the best mean", "worse than the best"]
    scores = {one.name: one.by_seed("mae") for one in arms}
    told = rule(list(standings(scores, "mae").values()), "mae")[0]
    assert "not significantly worse than it (" in told


def test_over_several_federations_an_error_below_that_of_fedavg_counts_as_better() -> None:
    arms = [
        arm(name, [[value, value]], setting)
        for setting in ("one", "two")
        for name, value in (("a", 0.25), ("fedavg", 0.5), ("b", 0.75))
    ]
    table = overall_table(Spec(metric="mae"), arms)
    assert table.columns[2] == "IQM of lead over fedavg"
    assert [row[2].text for row in table.rows] == ["+0.2500", "+0.0000", "−0.2500"]
    assert "the score of fedavg in the same seed minus its own" in table.notes[1]
    table = overall_table(Spec(metric="mae"), [one for one in arms if one.name != "fedavg"])
    assert table.columns[2] == "IQM of −mean absolute error"
    assert [row[2].text for row in table.rows] == ["−0.2500", "−0.7500"]


def test_a_federation_without_classes_has_its_quartiles_and_no_words_on_classes() -> None:
    sizes = {"total": 8, "mean": 4.0, "std": 1.0, "min": 3, "max": 5, "quartiles": [3.5, 4, 4.5]}
    seed = {"clients": 2, "groups": 0, "train": sizes, "test": sizes, "examples": {}}
    one = arm("a", [[1.0]])
    one.run.__dict__["federation"] = {"parameters": 3, "seeds": {"0": seed}}
    table = federation_table(Spec(metric="mae"), [one])
    assert (table.records[0]["train first quartile"], table.records[0]["test median"]) == (3.5, 4)
    assert "quartiles in the CSV" in table.notes[0]
    assert "classes" not in " ".join([*table.columns, *table.notes])


def test_tables_say_of_what_less_is_better() -> None:
    arms = [arm("a", [[0.5]])]
    table = scores_table(arms)
    assert "Less is better of mae." in table.notes[0]
    assert headline(Spec(metric="mae"), arms).notes[0].endswith("; less is better.")
    loss = [arm("a", [[0.5]], metric="test_loss")]
    assert "less is better" not in headline(Spec(metric="test_loss"), loss).notes[0]


def test_no_share_of_a_score_below_zero_is_shown() -> None:
    arms = [
        arm(name, [[value]], setting, "r2")
        for setting in ("one", "two")
        for name, value in (("oracle", -1.0), ("a", -2.0))
    ]
    fedavg = [arm("fedavg", [[-3.0]], setting, "r2") for setting in ("one", "two")]
    over = overall_table(Spec(metric="r2"), [*arms, *fedavg])
    assert over.columns[2] == "IQM of R² above fedavg"
    assert relative_table(Spec(metric="r2"), arms) is None  # a figure of nothing cannot be drawn
    table = comparison_table(Spec(metric="r2"), arms)
    assert "the best arm, R², " in table.title
    assert r"R$^2$" in table.latex()


def guessed(arms: list[Arm], guess: dict[str, list[float]]) -> list[Arm]:
    """The arms, whose federations are known to reach this without inputs, by setting."""
    for one in arms:
        seeds = {
            str(seed): {"trivial": {"mae": value}}
            for seed, value in enumerate(guess.get(one.setting, []))
        }
        one.run.__dict__["federation"] = {"seeds": seeds}
    return arms


def test_a_guess_that_beats_methods_is_a_line_of_every_setting() -> None:
    arms = [arm(name, [[2.0]], setting) for setting in ("x, y", "x, z") for name in "ab"]
    arms = guessed(arms, {"x, y": [1.5], "x, z": [2.5]})
    table = headline(Spec(metric="mae"), arms)
    assert table.columns == ("setting", "a", "b", "no inputs")
    assert texts(table) == [
        ["x, y", "2.000", "2.000", "1.500"],
        ["x, z", "2.000", "2.000", "2.500"],
    ]
    assert [record["no_inputs"] for record in table.records] == [1.5, 1.5, 2.5, 2.5]
    assert table.notes[-2].startswith("No inputs: a constant guess for each client")
    assert table.notes[-1] == "Worse than this guess at the end: a, x, y; b, x, y."


def test_the_guess_of_scores_is_called_what_is_judged_and_not_a_class() -> None:
    arms = guessed([arm("a", [[2.0]])], {"": [1.5]})
    table = scores_table(arms)
    assert "probabilities, such as Brier and AUROC, get the share of each class" in table.notes[-1]
    assert "scores of classes the most frequent class" in table.notes[-1]
    assert "its most frequent training class" in headline(Spec(metric="mae"), arms).notes[-2]


def test_a_guess_is_one_line_where_it_is_the_same_for_all() -> None:
    arms = guessed([arm(name, [[1.0, 3.0], [1.0, 2.0]]) for name in "ab"], {"": [2.0, 4.0]})
    table = headline(Spec(metric="mae", rounds=(1, 2)), arms)
    assert texts(table)[-1] == ["no inputs", "3.000 ± 1.000", "3.000 ± 1.000", "2"]
    assert len(texts(table)) == 3
    one = guessed([arm("a", [[1.0]], setting) for setting in "xy"], {"x": [2.0], "y": [4.0]})
    assert [row[0] for row in texts(headline(Spec(metric="mae"), one))] == [
        *("a, x", "a, y"),
        *("no inputs, x", "no inputs, y"),
    ]
    scores = scores_table(arms)
    assert texts(scores)[-1] == ["no inputs", "3.000 ± 1.000"]


def test_of_runs_that_kept_no_guess_there_is_no_line() -> None:
    some = guessed([arm("a", [[1.0]], setting) for setting in "xy"], {"x": [2.0]})
    table = headline(Spec(metric="mae"), some)
    assert [row[0] for row in texts(table)] == ["a, x", "a, y", "no inputs, x"]
    none = headline(Spec(metric="mae"), guessed([arm("a", [[1.0]])], {}))
    assert [row[0] for row in texts(none)] == ["a"]
    assert "inputs" not in none.markdown()
    assert "no_inputs" not in none.csv()


def test_jobs_of_several_tasks_are_reported_and_not_compared_in_fairness() -> None:
    sizes = {"total": 8, "mean": 4.0, "std": 1.0, "min": 3, "max": 5}
    seed = {"clients": 2, "groups": 0, "train": sizes, "test": sizes, "examples": {}}
    classes = {**seed, "classes": {"mean": 2.0, "min": 2, "max": 2}}
    arms = [arm("a", [[0.5]]), arm("b", [[1.0]], "numbers"), arm("c", [[0.5]], "x", "accuracy")]
    for one, about in zip(arms, (seed, seed, classes), strict=True):
        (name, *_) = one.run.curves
        curves = {**one.run.curves, f"{name}_client_mean": one.run.curves[name]}
        rows = {"seed": 0, "client": [0, 1], "group": -1, "label": 0, "correct": 1}
        final = pd.DataFrame({**rows, "test_count": 4, "mae": [0.25, 0.75]})
        if name == "accuracy":
            final = final.drop(columns="mae")
        one.run.__dict__.update(
            curves=curves,
            final_clients=final,
            federation={"parameters": 3, "seeds": {"0": about}},
            status={"seeds": {"0": "ok"}},
            config={"seeds": [0]},
        )
    table = federation_table(Spec(metric="mae"), arms)
    heads = table.columns.index("classes per client")
    assert [row[heads].text for row in table.rows] == ["–", "–", "2"]
    fair = fairness_table(arms)
    assert "mae" in fair.title
    assert [row[0].text for row in fair.rows] == ["a", "b, numbers"]


def test_losses_of_numbers_are_no_nats() -> None:
    numbers, classes = arm("a", [[1.0]]), arm("b", [[0.5]], metric="accuracy")
    for one, name in ((numbers, "mae"), (classes, "accuracy")):
        curves = {**one.run.curves, f"{name}_client_mean": one.run.curves[name]}
        one.run.__dict__["curves"] = curves
    assert axis_of([numbers], "train_loss") == "training loss"
    assert axis_of([classes], "train_loss") == "training loss, nats per example"


@pytest.mark.parametrize(("values", "low"), [([[-3.0, -1.0]], -3.0), ([[0.0, 1.0]], 0.0)])
def test_the_band_of_a_score_may_be_below_zero_where_the_score_is(
    values: list[list[float]], low: float
) -> None:
    axes = Figure().subplots()
    curve = arm("a", values, metric="r2").run.curves["r2"]
    draw_curve(axes, np.ones(1), curve, "r2", {"color": "black"}, "a")
    (band,) = axes.collections
    assert np.asarray(band.get_paths()[0].vertices)[:, 1].min() == low


@pytest.mark.parametrize(("metric", "best"), [("mae", 0.25), ("purity", 0.75)])
@pytest.mark.parametrize("alike", [False, True])
def test_the_best_cell_of_a_grid_is_light_and_its_number_is_read(
    metric: str, best: float, alike: bool
) -> None:
    places = {
        (row, col): (0.25 if (row, col) == ("1", "1") else 0.75) for row in "12" for col in "12"
    }
    arms = {k: arm("a", [[0.5 if alike else v]], metric=metric) for k, v in places.items()}
    figure = heat([Pivot("a", "x", "y", ("1", "2"), ("1", "2"), arms)], metric)
    axes = figure.axes[0]
    (image,) = axes.images
    for text in axes.texts:
        value = float(text.get_text())
        cell = np.mean(image.to_rgba(np.array([value]))[0, :3])
        assert abs(cell - np.mean(to_rgb(text.get_color()))) > 0.25
        if not alike:
            assert (cell > 0.5) == (value == best)

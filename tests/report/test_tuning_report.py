"""The page on searches: what tells them apart, and the score against every searched value."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
import yaml
from rich.console import Console

from fedclust.metrics import METRICS, Meaning
from fedclust.report.terminal import print_table
from fedclust.tuning.record import Trial, write_trials
from fedclust.tuning.report import _places, make_tuning_report, read_searches, tuning_table


def search(folder: Path, method: str, values: dict[str, list[object]], **choices: str) -> None:
    folder.mkdir(parents=True)
    about = {"algorithm": method, **choices}
    given = {"choices": about, "metric": "validation_accuracy", "rounds": 3, "seeds": [1]}
    (folder / "search.yaml").write_text(yaml.safe_dump(given))
    trials = [
        Trial(n, dict(zip(values, own, strict=True)), "complete", 0.5 + n / 10, 3, 1, {})  # type: ignore[arg-type]
        for n, own in enumerate(zip(*values.values(), strict=True))
    ]
    write_trials(folder, trials, list(values))


def test_a_case_tells_searches_apart_by_itself_and_values_have_a_figure(tmp_path: Path) -> None:
    rates: dict[str, list[object]] = {"solver.lr": [0.1, 0.001]}
    for case, model in (("turned", "mlp"), ("swapped", "cnn")):
        search(tmp_path / case, "fedavg", rates, case=case, model=model, partition="rotated")
    both = {**rates, "how": ["a", "b"]}
    search(tmp_path / "more", "ifca", both, case="turned", model="mlp", partition="rotated")
    make_tuning_report(tmp_path)
    table = pd.read_csv(tmp_path / "report" / "tuning.csv")
    assert table["search"].tolist() == ["ifca, turned", "fedavg, swapped", "fedavg, turned"]
    figures = {file.name for file in (tmp_path / "report" / "figures").glob("*.png")}
    names = ("tuning_0", "tuning_1")
    assert figures == {f"{name}{end}.png" for name in names for end in ("", "_values")}


def test_no_word_of_the_table_is_broken(tmp_path: Path) -> None:
    long = {"algorithm.cluster_method.max_clusters": [2, 4], "solver.weight_decay": [0.0, 1e-5]}
    for method in ("fedavg", "lcfl"):
        search(tmp_path / method, method, {key: list(v) for key, v in long.items()})
    table = tuning_table(read_searches(tmp_path))
    console = Console(file=io.StringIO(), width=80)
    print_table(table, console)
    words = console.file.getvalue().split()
    assert words.count("algorithm.cluster_method.max_clusters=4") == 2
    assert words.count("solver.weight_decay=1e-05") == 2
    assert {"default", "complete", "pruned", "failed", "budget"} <= set(words)
    assert table.html().count("<table") == 1


def test_a_tuned_gain_has_its_interval_over_the_seeds(tmp_path: Path) -> None:
    search(tmp_path / "a", "fedavg", {"solver.lr": [0.1, 0.2]})
    file = tmp_path / "a" / "search.yaml"
    file.write_text(file.read_text().replace("- 1\n", "- 1\n- 2\n- 3\n"))
    for number, values in enumerate([(0.50, 0.52, 0.48), (0.60, 0.63, 0.57)]):
        job = tmp_path / "a" / "trials" / f"00{number}"
        job.mkdir(parents=True)
        rows = [
            f"{seed},{t},validation_accuracy,{v * t / 2}"
            for seed, v in enumerate(values, 1)
            for t in (1, 2)
        ]
        (job / "rounds.csv").write_text("\n".join(["seed,round,metric,value", *rows]) + "\n")
    make_tuning_report(tmp_path)
    row = pd.read_csv(tmp_path / "report" / "tuning.csv").iloc[0]
    # differences 10, 11, 9 points: 10 ± 4.3027 / √3
    assert (row["gain_low"], row["gain_high"]) == pytest.approx((0.075159, 0.124841), abs=1e-6)
    assert "60.00 (+10.00, +7.52 to +12.48)" in (tmp_path / "report" / "tuning.md").read_text()


def test_an_error_has_four_digits_whatever_its_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meaning = Meaning("an error", "", "lower", "Mean absolute error, of validation examples")
    monkeypatch.setitem(METRICS, "validation_mae", meaning)
    folder = tmp_path / "a"
    search(folder, "fedavg", {"solver.lr": [0.1]})
    file = folder / "search.yaml"
    file.write_text(file.read_text().replace("validation_accuracy", "validation_mae"))
    trials = [
        Trial(n, {"solver.lr": n}, "complete", value, 3, 1, {})
        for n, value in enumerate((2.5e-7, 2e-7, 1e300))
    ]
    write_trials(folder, trials, ["solver.lr"])
    table = tuning_table(read_searches(tmp_path))
    assert "of tuning seed 1; less is better." in table.notes[0]
    (row,) = table.rows
    assert [row[1].text, row[2].text, row[4].text] == ["0.0000002500", "0.0000002000", "2"]
    assert row[2].detail == "−0.0000000500"


@pytest.mark.parametrize(
    ("values", "places", "log"),
    [
        (["0.1", "0.001"], [0.1, 0.001], True),
        (["1", "5", "10"], [1.0, 5.0, 10.0], False),
        (["0.0", "1.0"], [0.0, 1.0], False),
        (["b", "a", "b"], [0.0, 1.0], False),
    ],
)
def test_values_lie_where_they_are_or_in_their_order(
    values: list[str], places: list[float], log: bool
) -> None:
    found = _places(values)
    assert (list(found.of.values()), found.log) == (places, log)

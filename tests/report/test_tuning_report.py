"""The page on searches: what tells them apart, and the score against every searched value."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml

from fedclust.report.tuning import _places, make_tuning_report
from fedclust.tuning.record import Trial, write_trials


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

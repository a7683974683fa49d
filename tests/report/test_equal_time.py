"""What arms have reached after the same simulated time, and figures over it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import found, plain, texts

from fedclust.papers.reports import contents
from fedclust.report.figures import figure
from fedclust.report.formats import in_time


def add_time(folder: Path, times: Sequence[float]) -> None:
    """Seconds of every round, the same for all seeds."""
    table = pd.read_csv(folder / "rounds.csv")
    rows = [
        {"seed": seed, "round": t, "metric": "simulated_seconds", "value": value}
        for seed in table.seed.unique()
        for t, value in enumerate(times)
    ]
    pd.concat([table, pd.DataFrame(rows)]).to_csv(folder / "rounds.csv", index=False)


def two_arms(folder: Path, *, timed: int = 2) -> None:
    curves = {
        "slow": [[0.5, 0.5], [0.6, 0.6], [0.7, 0.7], [0.8, 0.8]],
        "quick": [[0.4, 0.5], [0.45, 0.5], [0.5, 0.5], [0.55, 0.5]],
    }
    times = {"slow": [10, 10, 10, 10], "quick": [4, 4, 4, 8]}
    for name, values in list(curves.items()):
        plain(folder / name, values, name)
    for name in list(curves)[:timed]:
        add_time(folder / name, times[name])


def test_what_is_reached_at_equal_times(tmp_path: Path) -> None:
    """The quick one has used 20 seconds; the slow one has then been tested twice."""
    two_arms(tmp_path)
    report = contents(tmp_path)
    table = found(report, "equal_time")
    rows = {row[0]: row[1:] for row in texts(table)}
    assert rows["slow"] == ["20 s", "–", "50.00 ± 0.00", "60.00 ± 0.00"]
    assert rows["quick"] == ["20 s", "45.00 ± 5.00", "47.50 ± 2.50", "52.50 ± 2.50"]
    recorded = {row["arm"]: row for row in table.records}
    assert recorded["slow"]["accuracy_100"] == pytest.approx(0.6)
    costs = {row["arm"]: row for row in found(report, "cost").records}
    assert costs["slow"]["simulated_seconds"] == pytest.approx(40)


def test_an_arm_with_a_seed_that_was_not_tested_in_time_has_no_number(tmp_path: Path) -> None:
    nan = float("nan")
    plain(tmp_path / "slow", [[nan, 0.5], [0.6, 0.6]], "slow")
    plain(tmp_path / "quick", [[0.4, 0.5], [0.5, 0.5]], "quick")
    for name, times in (("slow", [10, 10]), ("quick", [5, 5])):
        add_time(tmp_path / name, times)
    rows = {row[0]: row[1:] for row in texts(found(contents(tmp_path), "equal_time"))}
    assert rows["slow"] == ["10 s", "–", "–", "–"]
    assert rows["quick"] == ["10 s", "–", "45.00 ± 5.00", "50.00 ± 0.00"]


def test_the_time_is_an_axis(tmp_path: Path) -> None:
    two_arms(tmp_path)
    report = contents(tmp_path)
    drawn = figure(report.spec, report.arms, "accuracy", "simulated_seconds")
    axes = drawn.axes[0]
    assert axes.get_xlabel() == "simulated time, s"
    lines = {line.get_label(): np.asarray(line.get_xdata()).tolist() for line in axes.get_lines()}
    assert lines["slow"] == [10, 20, 30, 40]
    assert lines["quick"] == [4, 8, 12, 20]


def test_without_clocks_nothing_is_said_of_time(tmp_path: Path) -> None:
    two_arms(tmp_path, timed=0)
    report = contents(tmp_path)
    assert "equal_time" not in [table.name for table in report.tables]
    assert "simulated" not in json.dumps([table.records for table in report.tables], default=str)
    assert "simulated time" not in found(report, "cost").columns


def test_units_of_time() -> None:
    assert [in_time(x) for x in (0.5, 90, 120, 7199, 7200, 200_000)] == [
        *("0.5 s", "90 s", "2 min", "120 min", "2 h", "2.31 days")
    ]

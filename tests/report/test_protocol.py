"""What was changed on the command line, and that nobody is told a verdict on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from made_up import found, plain

from fedclust.papers.reports import contents
from fedclust.report.write import Contents

CHOICES = {"experiment": "clove/label_skew", "case": "clove/mnist_skew_1"}
CURVE = [[0.5], [0.8]]


def reported(folder: Path, given: Sequence[str], **choices: str) -> Contents:
    claims = [
        {"kind": "order_at_end", "best_to_worst": order} for order in (["b", "a"], ["a", "b"])
    ]
    for name, curve in (("a", CURVE), ("b", [[0.1], [0.2]])):
        chosen = {**CHOICES, **choices}
        plain(folder / name, curve, choices=chosen, overrides=given, report={"claims": claims})
    return contents(folder)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        # its own sweep, its own values, how it is computed, and what is said elsewhere
        (["case=clove/mnist_skew_1", "seeds=[0]", "threads=1"], []),
        (["rounds=100", "solver.epochs=1", "common.aggregation=by_samples"], []),
        (["eval_every=10", "dataset=npz", "dataset.path=x.npz", "scale=laptop"], []),
        (["rounds=2", "solver.epochs=3"], ["rounds=2", "solver.epochs=3"]),
        (["+algorithm.tau=0.5", "partition.used=1"], ["algorithm.tau=0.5", "partition.used=1"]),
    ],
)
def test_what_is_not_the_experiments_own(
    tmp_path: Path, given: Sequence[str], told: Sequence[str]
) -> None:
    report = reported(tmp_path, given)
    said = [line for line in report.banners if "protocol" in line]
    expected = f"not the experiment's protocol: {', '.join(told)} on the command line"
    assert said == ([expected] if told else [])
    claims = found(report, "claims")
    verdicts = [row[2].text for row in claims.rows]
    assert verdicts == (["cannot tell" if told else "one seed"] * 2)
    for row in claims.rows:
        assert ("not the experiment's protocol" in row[1].text) == bool(told)
    assert {arm.comparable for arm in report.arms} == {not told}


def test_other_rounds_leave_a_rounds_numbers_comparable(tmp_path: Path) -> None:
    assert all(arm.comparable for arm in reported(tmp_path, ["rounds=2"]).arms)


def test_nobody_knows_the_protocol_of_an_experiment_of_ones_own(tmp_path: Path) -> None:
    report = reported(tmp_path, ["rounds=2"], experiment="mine")
    assert not any("protocol" in line for line in report.banners)

"""Every kind of claim on curves small enough to judge by eye."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedclust.report.arms import Arm
from fedclust.report.claims import check, claim
from fedclust.report.jobs import Curve, Job


def arm(name: str, values: list[list[float]], setting: str = "", metric: str = "accuracy") -> Arm:
    """An arm whose accuracies are values [rounds][seeds]."""
    grid = np.array(values, dtype=float)
    curve = Curve(np.arange(len(grid)), tuple(range(grid.shape[1])), grid)
    return Arm(Job(Path(name), {}, {}, {metric: curve}), name, setting)


def verdict(entry: dict[str, Any], *arms: Arm) -> tuple[bool | None, int, int]:
    ((_, result),) = check([claim(entry)], arms)
    return result.holds, result.seeds, result.of


LEFT = arm("a", [[0.1, 0.1], [0.5, 0.4], [0.8, 0.9]])
RIGHT = arm("b", [[0.1, 0.1], [0.5, 0.6], [0.7, 0.95]])


def test_equal_until() -> None:
    entry = {"kind": "equal_until", "left": "a", "right": "b"}
    assert verdict(entry | {"iteration": 1}, LEFT, RIGHT) == (True, 2, 2)
    assert verdict(entry | {"iteration": 2}, LEFT, RIGHT) == (False, 1, 2)
    assert verdict(entry | {"iteration": 4}, LEFT, RIGHT) == (None, 0, 0)


def test_order_at_end_is_judged_on_means_and_counts_seeds() -> None:
    entry = {"kind": "order_at_end", "best_to_worst": ["a", "b"]}
    assert verdict(entry, LEFT, RIGHT) == (True, 1, 2)
    assert verdict(entry | {"best_to_worst": ["b", "a"]}, LEFT, RIGHT) == (False, 1, 2)


def test_order_of_a_metric_that_should_be_low() -> None:
    low = arm("a", [[0.2]], metric="test_loss")
    high = arm("b", [[0.3]], metric="test_loss")
    entry = {"kind": "order_at_end", "best_to_worst": ["a", "b"], "metric": "test_loss"}
    assert verdict(entry, low, high) == (True, 1, 1)


def test_overtakes_needs_to_be_behind_first() -> None:
    entry = {"kind": "overtakes", "left": "a", "right": "b"}
    assert verdict(entry | {"between": [2, 3]}, LEFT, RIGHT) == (True, 0, 2)
    assert verdict(entry | {"between": [1, 3]}, LEFT, RIGHT) == (False, 0, 2)
    assert verdict(entry | {"between": [2, 9]}, LEFT, RIGHT) == (None, 0, 0)


@pytest.mark.parametrize(("iteration", "holds"), [(1, False), (2, True), (3, True)])
def test_reaches_allows_one_iteration_more(iteration: int, holds: bool) -> None:
    entry = {"kind": "reaches", "arm": "a", "value": 0.8, "iteration": iteration}
    assert verdict(entry, LEFT)[0] is holds


def test_reaches_cannot_be_told_before_its_iteration() -> None:
    assert verdict({"kind": "reaches", "arm": "a", "value": 0.99, "iteration": 9}, LEFT) == (None, 0, 0)


def test_at_least_and_a_metric_that_was_not_recorded() -> None:
    assert verdict({"kind": "at_least", "arm": "a", "value": 0.85}, LEFT) == (True, 1, 2)
    assert verdict({"kind": "at_least", "arm": "a", "metric": "purity", "value": 1.0}, LEFT)[0] is None


def test_a_seed_that_stopped_early_is_left_out() -> None:
    stopped = arm("a", [[0.1, 0.1], [0.9, np.nan]])
    assert verdict({"kind": "at_least", "arm": "a", "value": 0.5}, stopped) == (True, 1, 1)


def test_claims_are_checked_in_every_setting() -> None:
    arms = [
        arm("a", [[0.9]], "n=1"),
        arm("b", [[0.8]], "n=1"),
        arm("a", [[0.7]], "n=2"),
        arm("b", [[0.8]], "n=2"),
        arm("c", [[0.1]]),
    ]
    entry = {"kind": "order_at_end", "best_to_worst": ["a", "b", "c"]}
    assert [(setting, v.holds) for setting, v in check([claim(entry)], arms)] == [
        ("n=1", True),
        ("n=2", False),
    ]
    whole_label = {"kind": "at_least", "arm": "a n=2", "value": 0.7}
    assert [(setting, v.holds) for setting, v in check([claim(whole_label)], arms)] == [("", True)]
    assert check([claim({"kind": "at_least", "arm": "nobody", "value": 0.7})], arms) == []

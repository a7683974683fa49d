"""Every kind of claim on curves small enough to judge by eye."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedclust.helpers.errors import ConfigError
from fedclust.papers.claims import check, claim
from fedclust.papers.reports import contents, spec_of
from fedclust.report.arms import Arm
from fedclust.report.runs import Curve, Run
from fedclust.report.unmatched import unmatched


def arm(name: str, values: list[list[float]], setting: str = "", metric: str = "accuracy") -> Arm:
    """An arm whose accuracies are values [rounds][seeds]."""
    grid = np.array(values, dtype=float)
    curve = Curve(np.arange(len(grid)), tuple(range(grid.shape[1])), grid)
    return Arm(Run(Path(name), {}, {}, {metric: curve}), name, setting)


def verdict(entry: dict[str, Any], *arms: Arm) -> tuple[bool | None, int, int]:
    ((_, result),) = check([claim(entry)], arms)
    return result.holds, result.seeds, result.of


def said_of(entry: dict[str, Any], *arms: Arm) -> tuple[bool | None, str]:
    ((_, result),) = check([claim(entry)], arms)
    return result.holds, result.measured


LEFT = arm("a", [[0.1, 0.1], [0.5, 0.4], [0.8, 0.9]])
RIGHT = arm("b", [[0.1, 0.1], [0.5, 0.6], [0.7, 0.95]])


def test_equal_until() -> None:
    entry = {"kind": "equal_until", "left": "a", "right": "b"}
    assert verdict(entry | {"round": 1}, LEFT, RIGHT) == (True, 2, 2)
    assert verdict(entry | {"round": 2}, LEFT, RIGHT) == (False, 1, 2)
    assert verdict(entry | {"round": 4}, LEFT, RIGHT) == (None, 0, 0)


def test_order_at_end_is_judged_on_means_and_counts_seeds() -> None:
    entry = {"kind": "order_at_end", "best_to_worst": ["a", "b"]}
    assert verdict(entry, LEFT, RIGHT) == (True, 1, 2)
    assert verdict(entry | {"best_to_worst": ["b", "a"]}, LEFT, RIGHT) == (False, 1, 2)


def test_order_of_a_metric_that_should_be_low() -> None:
    low = arm("a", [[0.2]], metric="test_loss")
    high = arm("b", [[0.3]], metric="test_loss")
    entry = {"kind": "order_at_end", "best_to_worst": ["a", "b"], "metric": "test_loss"}
    assert verdict(entry, low, high) == (True, 1, 1)
    assert said_of(entry, high, low)[1] == "a 0.200 < b 0.300"


def test_arms_that_end_alike_are_shown_as_equal() -> None:
    alike = [arm(name, [[0.5, 0.5]]) for name in "ab"]
    entry = {"kind": "order_at_end", "best_to_worst": ["a", "b", "c"]}
    found = said_of(entry, *alike, arm("c", [[0.25, 0.25]]))
    assert found == (False, "a 50.00 % = b 50.00 % > c 25.00 %")


def test_an_error_reaches_a_value_from_above_and_leads_by_being_less() -> None:
    low = arm("a", [[0.9], [0.4], [0.5]], metric="test_loss")
    high = arm("b", [[0.9], [0.8], [0.45]], metric="test_loss")
    loss = {"metric": "test_loss", "arm": "a", "value": 0.45}
    assert verdict({"kind": "reaches", **loss, "round": 2}, low) == (True, 1, 1)
    late = {**loss, "arm": "b"}
    assert verdict({"kind": "reaches", **late, "round": 1}, high) == (False, 0, 1)
    pair = {"metric": "test_loss", "left": "a", "right": "b"}
    swapped = {**pair, "left": "b", "right": "a"}
    overtakes = {"kind": "overtakes", **swapped, "between": [2, 3]}
    assert verdict(overtakes, high, low) == (True, 1, 1)
    fewer = {"kind": "fewer_rounds", **pair, "value": 0.45, "percent": 33}
    assert verdict(fewer, low, high) == (True, 1, 1)  # round 2 against 3
    assert verdict({"kind": "gain", **pair, "points": 0}, low, high) == (False, 0, 1)
    assert verdict({"kind": "gain", **pair, "points": 0, "score": "max"}, low, high) == (True, 1, 1)


def test_overtakes_needs_to_be_behind_first() -> None:
    entry = {"kind": "overtakes", "left": "a", "right": "b"}
    assert verdict(entry | {"between": [2, 3]}, LEFT, RIGHT) == (True, 0, 2)
    assert verdict(entry | {"between": [1, 3]}, LEFT, RIGHT) == (False, 0, 2)
    assert verdict(entry | {"between": [2, 9]}, LEFT, RIGHT) == (None, 0, 0)


def test_the_best_and_the_worst_at_the_end_are_so_among_all() -> None:
    third = arm("c", [[0.0, 0.0], [0.0, 0.0], [0.6, 0.85]])
    entry = {"arm": "b", "others": ["a", "c"]}
    assert verdict({"kind": "best_at_end", **entry}, RIGHT, LEFT, third) == (False, 1, 2)
    entry = {"arm": "c", "others": ["a", "b"]}
    assert verdict({"kind": "worst_at_end", **entry}, third, LEFT, RIGHT) == (True, 2, 2)
    low = arm("a", [[0.2]], metric="train_loss")
    high = arm("b", [[0.3]], metric="train_loss")
    loss = {"metric": "train_loss", "arm": "b", "others": ["a"]}
    assert verdict({"kind": "worst_at_end", **loss}, high, low) == (True, 1, 1)
    assert said_of({"kind": "worst_at_end", **loss}, high, low)[1] == "b 0.300, a 0.200"


def test_better_at_first_is_the_mean_of_the_first_rounds() -> None:
    entry = {"kind": "best_early", "arm": "b", "others": ["a"]}
    assert verdict(entry | {"round": 2}, RIGHT, LEFT) == (True, 1, 2)  # 0.3, 0.35 and 0.3, 0.25
    assert verdict(entry | {"round": 1}, RIGHT, LEFT) == (False, 0, 2)  # 0.1 each
    assert verdict(entry | {"round": 3}, RIGHT, LEFT) == (True, 1, 2)  # 0.433, 0.55 and 0.467
    assert verdict(entry | {"round": 4}, RIGHT, LEFT) == (None, 0, 0)


def test_the_steadiest_goes_up_and_down_least() -> None:
    smooth, rough = arm("a", [[0.1], [0.2], [0.3]]), arm("b", [[0.1], [0.5], [0.3]])
    entry = {"kind": "steadiest", "arm": "a", "others": ["b"]}
    assert said_of(entry, smooth, rough) == (True, "a ±10, b ±30")


def test_who_settles_first_stays_near_its_end() -> None:
    early = arm("a", [[0.5], [0.8], [0.805], [0.8]])
    late = arm("b", [[0.8], [0.5], [0.7], [0.8]])
    entry = {"kind": "settles_first", "arm": "a", "others": ["b"]}
    assert said_of(entry, early, late) == (True, "a round 2, b round 4")
    assert said_of(entry | {"within": 1.0}, early, late) == (False, "a round 1, b round 1")


def test_seeds_that_come_together() -> None:
    entry = {"kind": "spread_shrinks", "arm": "a"}
    assert verdict(entry, arm("a", [[0.1, 0.5], [0.2, 0.5], [0.6, 0.7], [0.8, 0.8]]))[0] is True
    assert verdict(entry, arm("a", [[0.5, 0.5], [0.2, 0.6]]))[0] is False
    assert verdict(entry, arm("a", [[0.5], [0.2]]))[0] is None


@pytest.mark.parametrize(("number", "holds"), [(1, False), (2, True), (3, True)])
def test_reaches_allows_one_round_more(number: int, holds: bool) -> None:
    entry = {"kind": "reaches", "arm": "a", "value": 0.8, "round": number}
    assert verdict(entry, LEFT)[0] is holds


def test_reaches_cannot_be_told_before_its_round() -> None:
    entry = {"kind": "reaches", "arm": "a", "value": 0.99, "round": 9}
    assert verdict(entry, LEFT) == (None, 0, 0)


def test_at_least_and_a_metric_that_was_not_recorded() -> None:
    assert verdict({"kind": "at_least", "arm": "a", "value": 0.85}, LEFT) == (True, 1, 2)
    unknown = {"kind": "at_least", "arm": "a", "metric": "purity", "value": 1.0}
    assert verdict(unknown, LEFT)[0] is None


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
    whole_label = {"kind": "at_least", "arm": "a, n=2", "value": 0.7}
    assert [(setting, v.holds) for setting, v in check([claim(whole_label)], arms)] == [("", True)]
    assert check([claim({"kind": "at_least", "arm": "nobody", "value": 0.7})], arms) == []


def test_fewer_rounds_is_the_reduction_of_the_seed_mean() -> None:
    entry = {"kind": "fewer_rounds", "left": "a", "right": "b", "value": 0.8}
    fast = arm("a", [[0.8, 0.9], [0.9, 0.9], [0.9, 0.9], [0.9, 0.9]])  # round 1
    slow = arm("b", [[0.1, 0.1], [0.1, 0.1], [0.1, 0.9], [0.8, 0.9]])  # round 4; 4 and 3
    assert verdict(entry | {"percent": 75}, fast, slow) == (True, 1, 2)
    assert verdict(entry | {"percent": 76}, fast, slow) == (False, 0, 2)
    told = "on the mean curve round 1 against 4: 75.0 %, in the median seed 70.8 %"
    assert said_of(entry | {"percent": 75}, fast, slow)[1] == told


def test_fewer_rounds_than_an_arm_that_never_gets_there_is_a_bound() -> None:
    entry = {"kind": "fewer_rounds", "left": "a", "right": "b", "value": 0.8}
    fast, never = arm("a", [[0.9], [0.9]]), arm("b", [[0.1], [0.1]])
    half, lost = entry | {"percent": 50}, arm("a", [[0.1], [0.1]])
    assert said_of(half, fast, never) == (True, "round 1 against more than 2: > 50.0 %")
    assert verdict(entry | {"percent": 60}, fast, never)[0] is None
    assert verdict(half, lost, arm("b", [[0.9], [0.9]]))[0] is False
    assert verdict(half, lost, never)[0] is None


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "equal_until", "left": "a", "right": "b", "round": 5},
        {"kind": "best_early", "arm": "a", "others": ["b"], "round": 5},
    ],
)
def test_what_was_never_evaluated_up_to_a_round_cannot_be_told(entry: dict[str, Any]) -> None:
    curves = {"accuracy": Curve(np.array([9]), (0,), np.ones((1, 1)))}
    late = [Arm(Run(Path(name), {}, {}, curves), name, "") for name in "ab"]
    assert said_of(entry, *late) == (None, "not evaluated up to round 5")


def test_a_gain_of_no_points_is_any_lead() -> None:
    entry = {"kind": "gain", "left": "a", "right": "b", "points": 0, "text": "a is above b"}
    low, high = arm("a", [[0.60], [0.61]]), arm("b", [[0.60], [0.6101]])
    ((_, said),) = check([claim(entry)], [low, high])
    assert (said.holds, said.claimed) == (False, "a is above b")
    turned = entry | {"left": "b", "right": "a"}
    assert verdict(turned, high, low)[0] is True


@pytest.mark.parametrize(
    ("leads", "points", "said"),
    [
        ([5.0, 5.2, 5.4], 5.9, (True, 3, 3)),  # the mean's 90 % interval, ± 0.34, within a point
        ([5.0, 5.2, 5.4], 6.2, (False, 0, 3)),  # one more run is expected within ± 0.99
        ([4.8, 5.2, 5.6], 6.9, (True, 3, 3)),  # within ± 1.99 of one more run, less than 2
        ([4.7, 5.2, 5.7], 6.9, (None, 0, 3)),  # within ± 2.48: too wide to tell
        ([0.0, 5.2, 10.4], 5.2, (None, 0, 3)),  # more noise never makes it hold
        ([5.2], 6.1, (True, 1, 1)),  # one seed within a point, see `outcome`
        ([5.2], 6.3, (False, 0, 1)),
        ([5.0, 5.2, 5.4], 0, (True, 3, 3)),
    ],
)
def test_a_gain_is_judged_like_any_printed_number(
    leads: list[float], points: float, said: tuple[bool | None, int, int]
) -> None:
    left = arm("a", [[0.5 + lead / 100 for lead in leads]])
    right = arm("b", [[0.5] * len(leads)])
    entry = {"kind": "gain", "left": "a", "right": "b", "points": points}
    assert verdict(entry, left, right) == said


def test_a_gain_by_the_best_rounds() -> None:
    left, right = arm("a", [[0.9], [0.7]]), arm("b", [[0.2], [0.6]])
    entry = {"kind": "gain", "left": "a", "right": "b"}
    assert verdict(entry | {"points": 10}, left, right)[0] is True
    assert verdict(entry | {"score": "max", "points": 30}, left, right)[0] is True
    assert verdict(entry | {"score": "max", "points": 61}, left, right)[0] is False


def test_cost_ratio_is_of_totals_and_within_two_percent() -> None:
    def sends(name: str, down: float, up: float) -> Arm:
        curves = {
            metric: Curve(np.arange(4), (0,), np.full((4, 1), value))
            for metric, value in (("models_down", down), ("models_up", up))
        }
        return Arm(Run(Path(name), {}, {}, curves), name, "")

    entry = {"kind": "cost_ratio", "left": "a", "right": "b"}
    left, right = sends("a", 30, 20), sends("b", 20, 20)
    assert verdict(entry | {"ratio": 1.25}, left, right) == (True, 1, 1)
    assert verdict(entry | {"ratio": 1.27}, left, right) == (True, 1, 1)
    assert verdict(entry | {"ratio": 1.29}, left, right) == (False, 0, 1)


@pytest.mark.parametrize(
    ("setting", "held"),
    [
        ("MNIST", ["MNIST-MLP, swap all"]),
        ("FEMNIST", ["FEMNIST-MLP, swap all", "FEMNIST-MLP, swap part"]),
        ("FEMNIST, swap all", ["FEMNIST-MLP, swap all"]),
        ("swap part", ["FEMNIST-MLP, swap part"]),
        ("swap all", ["MNIST-MLP, swap all", "FEMNIST-MLP, swap all"]),
        ("", ["MNIST-MLP, swap all", "FEMNIST-MLP, swap all", "FEMNIST-MLP, swap part"]),
        ("swap none", []),
        ("MLP", []),
    ],
)
def test_every_piece_of_a_claims_setting_begins_a_piece_of_the_title(
    setting: str, held: list[str]
) -> None:
    titles = ["MNIST-MLP, swap all", "FEMNIST-MLP, swap all", "FEMNIST-MLP, swap part"]
    entry = {"kind": "at_least", "arm": "a", "value": 0.8, "setting": setting}
    found = check([claim(entry)], [arm("a", [[0.9]], title) for title in titles])
    assert [title for title, _ in found] == held


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"kind": "gain", "left": "a", "right": "b", "points": 1, "score": "best"},
            "gain.score=best",
        ),
        (
            {"kind": "cost_ratio", "left": "a", "right": "b", "ratio": 1, "metric": "accuracy"},
            "metric=accuracy",
        ),
        ({"kind": "at_least", "arm": "a", "value": 1, "metric": "acc"}, "metric=acc"),
    ],
)
def test_a_mistake_in_a_claim_is_named(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        claim(entry)


def asked_of(**asked: Any) -> list[str]:
    arms = [arm("a", [[0.1]], "swap all"), arm("b", [[0.1]], "IID, swap all")]
    return unmatched(spec_of({"report": asked}), arms)


def test_names_that_no_arm_has_are_told_with_those_that_there_are() -> None:
    claims = [
        {"kind": "order_at_end", "best_to_worst": ["a", "x"]},
        {"kind": "at_least", "arm": "y", "value": 0.5},
        {"kind": "at_least", "arm": "x", "value": 0.6},
    ]
    assert asked_of(claims=claims, target={"arm": "z"}, order=["b", "c", "swap all", "IID"]) == [
        "No arm here is called so: report.claims names x, y; report.target names z; "
        "report.order names c. Arms: a, b."
    ]
    many = [f"m{i}" for i in range(20)]
    (told,) = asked_of(order=many)
    assert "m0, m1, m2, m3, m4, m5, m6, m7 and 12 more." in told


def test_names_that_are_all_known_need_no_word() -> None:
    assert asked_of() == []
    claims = [{"kind": "order_at_end", "best_to_worst": ["a", "b"]}]
    assert asked_of(claims=claims, target={"arm": "a"}, order=["a", "IID"]) == []
    assert asked_of(target={"value": 0.5}) == []


@pytest.mark.full
def test_a_report_says_which_names_it_does_not_know(sweep: Path) -> None:
    shutil.rmtree(sweep / "algorithm=ifca")  # as in a sweep on its way
    (table,) = (t for t in contents(sweep).tables if t.name == "table")
    assert table.notes[-2] == (
        "No arm here is called so: report.claims names ifca; report.order names ifca. "
        "Arms: lcfl, fedavg, local."
    )

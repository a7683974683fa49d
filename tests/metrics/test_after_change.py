"""What is recorded of clients whose data change, with accuracies made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from toys import evaluation_of, federation_of, pool_of, round_of

from fedclust.core.types import Evaluation, Federation, Round, Served
from fedclust.metrics import METRICS
from fedclust.metrics.after_change import AfterChange
from fedclust.metrics.recovery import share_error
from fedclust.tasks.regression import Regression

CLIENTS = 4


def federation(concepts: int = 2, index: list[list[int]] | None = None) -> Federation:
    """Four clients with two examples each, or the rows given."""
    image = torch.arange(8).repeat_interleave(concepts)
    x, y = torch.zeros(8, 1), torch.zeros(8 * concepts, dtype=torch.int64)
    pool = pool_of(x, y, image=image, concepts=concepts)
    return federation_of(pool, index or [[0, 1]] * CLIENTS)


def at(t: int, shifted: list[bool] | None = None) -> Round:
    rnd = round_of(federation())
    mask = torch.tensor(shifted or [False] * CLIENTS)
    return replace(rnd, t=t, shifted=mask, is_change=shifted is not None)


def result_of(correct: list[int]) -> Evaluation:
    """Of 100 test examples each."""
    right = torch.tensor(correct)
    return evaluation_of(0 * right, right, torch.full_like(right, 100))


def test_a_fall_and_a_recovery_are_told_of_the_clients_that_changed() -> None:
    after = AfterChange.nothing()
    assert after.evaluated(at(0), result_of([10, 20, 30, 40])) == {}
    assert after.evaluated(at(1), result_of([80, 60, 70, 90])) == {}
    fallen = after.change(at(2, [True, True, False, False]), result_of([20, 30, 70, 90]))
    assert fallen == {"changed_clients": 2, "changed_before": 0.7, "changed_at_once": 0.25}
    assert after.evaluated(at(2), result_of([50, 50, 71, 90])) == {"changed_accuracy": 0.5}
    assert after.evaluated(at(3), result_of([68, 69, 10, 10])) == {"changed_accuracy": 0.685}
    # within one point of 0.7, in the third round of training after the change
    assert after.evaluated(at(4), result_of([69, 69, 10, 10])) == {
        "changed_accuracy": 0.69,
        "recovery_rounds": 3,
    }
    assert after.evaluated(at(5), result_of([90, 90, 10, 10])) == {"changed_accuracy": 0.9}


def test_the_next_change_ends_the_count() -> None:
    after = AfterChange.nothing()
    after.evaluated(at(0), result_of([80, 80, 80, 80]))
    after.change(at(1, [True, False, False, False]), result_of([0, 80, 80, 80]))
    assert "recovery_rounds" not in after.evaluated(at(1), result_of([40, 80, 80, 80]))
    second = after.change(at(2, [False, True, False, False]), result_of([40, 10, 80, 80]))
    assert second == {"changed_clients": 1, "changed_before": 0.8, "changed_at_once": 0.1}
    assert after.evaluated(at(2), result_of([80, 20, 80, 80])) == {"changed_accuracy": 0.2}
    assert after.evaluated(at(3), result_of([0, 80, 0, 0]))["recovery_rounds"] == 2


def test_without_an_evaluation_before_there_is_no_level() -> None:
    after = AfterChange.nothing()
    first = after.change(at(1, [True] * CLIENTS), result_of([50] * CLIENTS))
    assert first == {"changed_clients": 4, "changed_at_once": 0.5}
    assert after.evaluated(at(1), result_of([90] * CLIENTS)) == {"changed_accuracy": 0.9}
    assert after.level == math.inf


def test_what_is_kept_continues_with_the_same_numbers() -> None:
    after = AfterChange.nothing()
    after.evaluated(at(0), result_of([80, 80, 80, 80]))
    again = AfterChange.of(after.state())
    change = at(1, [True, False, True, False]), result_of([10, 20, 30, 40])
    assert again.change(*change) == after.change(*change)
    again = AfterChange.of(after.state())
    assert again.evaluated(at(2), result_of([80] * 4)) == after.evaluated(
        at(2), result_of([80] * 4)
    )
    assert set(after.change(*change)) | {"changed_accuracy", "recovery_rounds"} <= set(METRICS)


@pytest.mark.parametrize(
    ("weight", "wanted"),
    [
        ([[0.5, 0.5], [0.0, 1.0]], 0.0),  # the models' names do not matter
        ([[1.0, 0.0], [0.0, 1.0]], 0.5),
        ([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], 0.25),  # a model too many has no partner
    ],
)
def test_shares_of_models_are_compared_with_those_of_concepts(
    weight: list[list[float]], wanted: float
) -> None:
    # client 0: half of its examples under each concept; client 1: all under concept 0
    fed = federation(index=[[0, 1, 2, 3], [0, 2, 4, 6]])
    rnd = round_of(fed)
    mixed = torch.tensor(weight)
    served = Served.mixture(torch.zeros(mixed.shape[1], 1), mixed, torch.tensor([True, True]))
    result = share_error(replace(result_of([0, 0]), served=served), rnd)
    assert result["share_error"] == pytest.approx(wanted)
    plain = replace(result_of([0, 0]), served=replace(served, weight=None))
    assert share_error(plain, rnd) == {}


@pytest.mark.parametrize("correct", [9, 12, 20, 31])
def test_a_fall_of_just_one_point_is_within_one_point_whatever_the_rounding(correct: int) -> None:
    after = AfterChange.nothing()
    after.evaluated(at(0), result_of([correct + 1] * CLIENTS))
    after.change(at(1, [True] * CLIENTS), result_of([0] * CLIENTS))
    assert after.evaluated(at(1), result_of([correct] * CLIENTS))["recovery_rounds"] == 1


def test_an_error_has_recovered_within_a_hundredth_of_itself() -> None:
    """Mean absolute errors before 10, at once 30, then 12, 10.2 and 10.1."""

    def with_numbers(rnd: Round) -> Round:
        pool = replace(rnd.fed.pool, task=Regression())
        return replace(rnd, fed=replace(rnd.fed, pool=pool))

    def errors(of_all: float) -> Evaluation:
        sums = torch.zeros(CLIENTS, 4, dtype=torch.float64)
        sums[:, 0] = 100 * of_all
        return replace(result_of([0] * CLIENTS), sums=sums)

    after = AfterChange.nothing()
    after.evaluated(with_numbers(at(0)), errors(10))
    fallen = after.change(with_numbers(at(1, [True] * CLIENTS)), errors(30))
    assert fallen == {"changed_clients": 4, "changed_mae_before": 10, "changed_mae_at_once": 30}
    found = [after.evaluated(with_numbers(at(t)), errors(e)) for t, e in ((1, 12), (2, 10.2))]
    assert [list(one) for one in found] == [["changed_mae"]] * 2
    assert after.evaluated(with_numbers(at(3)), errors(10.1))["recovery_rounds"] == 3
    kept = AfterChange.of(after.state())
    assert kept.sums.tolist() == after.sums.tolist()

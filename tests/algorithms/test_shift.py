"""Eq. (9) of FlexCFL by hand, in its three readings, and what it compares with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import wasserstein_distance
from toy_engine import toy_federation, toy_round

from fedclust.algorithms.cold_start import ShiftTest
from fedclust.core.types import Round

REFERENCE = torch.tensor([[6, 4, 0, 0, 0, 10]])  # examples of five labels, and n_i
READINGS: list[Any] = ["label_freq_l1", "label_count_l1", "released"]


def fires(
    reading: Any, now: list[int], reference: torch.Tensor = REFERENCE, **options: Any
) -> bool:
    test = ShiftTest(distance=reading, **options)
    return bool(test(torch.tensor([now]), reference)[0])


@pytest.mark.parametrize("reading", READINGS)
def test_unchanged_data_are_no_shift(reading: Any) -> None:
    assert not fires(reading, [6, 4, 0, 0, 0])


def test_the_threshold_by_hand() -> None:
    # one of ten examples changes its label: sum |p - p_ref| = 0.2, not above the fraction 0.2
    assert not fires("label_freq_l1", [5, 5, 0, 0, 0], fraction=0.2000001)
    assert fires("label_freq_l1", [5, 5, 0, 0, 0], fraction=0.1999999)
    assert fires("label_freq_l1", [4, 6, 0, 0, 0])
    gap = ShiftTest().gap(torch.tensor([[4, 6, 0, 0, 0]]), REFERENCE)
    assert float(gap[0]) == pytest.approx(0.4 / 5)


def test_a_gap_of_the_threshold_is_no_shift() -> None:
    """2 2 2 2 and 4 0 2 2 differ by 1 / 8 = 0.5 / 4 in the mean; 4 0 3 1 by 3 / 16."""
    reference = torch.tensor([[2, 2, 2, 2, 8]] * 2)
    now = torch.tensor([[4, 0, 2, 2], [4, 0, 3, 1]])
    for distance in ("label_freq_l1", "label_count_l1"):
        test = ShiftTest(distance=distance, fraction=0.5)  # type: ignore[arg-type]
        assert test.gap(now, reference).tolist() == [0.125, 0.1875]
        assert test(now, reference).tolist() == [False, True]


def test_swap_of_equally_many_other_labels_is_invisible_to_sorted_counts_only() -> None:
    swapped = [0, 0, 6, 4, 0]
    assert fires("label_freq_l1", swapped)
    assert fires("label_count_l1", swapped)
    assert not fires("released", swapped)
    assert float(ShiftTest(distance="released").gap(torch.tensor([swapped]), REFERENCE)[0]) == 0


def test_more_of_the_same_mixture_is_no_shift_of_frequencies() -> None:
    assert not fires("label_freq_l1", [12, 8, 0, 0, 0])
    assert fires("label_count_l1", [12, 8, 0, 0, 0])
    assert fires("released", [12, 8, 0, 0, 0])


@pytest.mark.parametrize("reading", ["label_freq_l1", "label_count_l1"])
def test_it_fires_above_a_tenth_of_other_labels(reading: Any) -> None:
    hundred = torch.tensor([[60, 40, 0, 0, 0, 100]])
    assert not fires(reading, [50, 40, 0, 10, 0], hundred, fraction=0.2000001)
    assert fires(reading, [49, 40, 0, 11, 0], hundred)


def test_counts_are_compared_with_the_present_size_and_the_released_ones_with_the_first() -> None:
    now = torch.tensor([[9, 5, 2, 0, 4]])
    mean = float((now - REFERENCE[:, :5]).abs().double().mean())
    assert float(ShiftTest(distance="label_count_l1").gap(now, REFERENCE)[0]) == pytest.approx(
        mean / 20
    )
    moved = torch.tensor([[3, 2, 0, 0, 0, 20]])  # n_i stays that of the start, whatever came since
    found = float(ShiftTest(distance="released").gap(now, moved)[0])
    apart = wasserstein_distance(now[0].numpy(), moved[0, :5].numpy())
    assert found == pytest.approx(apart / 20)


def followed(
    test: ShiftTest, label: list[int], reference: torch.Tensor, rnd: Round
) -> tuple[torch.Tensor, torch.Tensor]:
    moving, after = test.followed(torch.tensor(label), reference, rnd)
    assert after is not None
    return moving, after


def test_the_reference_is_what_the_client_had_when_it_joined_or_moved() -> None:
    before = toy_round(toy_federation([[0, 0], [0, 0, 1], [1, 1]], 2), [1])
    after = toy_round(toy_federation([[1, 1], [0, 1, 1], [0, 0, 0]], 2), [2], t=1)
    test = ShiftTest()
    reference = test.start(before, torch.tensor([0]))
    assert reference.tolist() == [[2, 0, 2], [0, 0, 0], [0, 0, 0]]
    nobody, reference = followed(test, [0, -1, -1], reference, before)
    assert nobody.tolist() == []
    assert reference.tolist() == [[2, 0, 2], [2, 1, 3], [0, 0, 0]]
    moving, reference = followed(test, [0, 0, -1], reference, after)
    assert moving.tolist() == [0, 1], "client 2 has no cluster to leave"
    assert reference.tolist() == [[0, 2, 2], [1, 2, 3], [3, 0, 3]]


def test_the_released_reference_is_that_of_the_start_until_the_first_move() -> None:
    before = toy_round(toy_federation([[0, 0, 0, 1], [0, 1]], 2), [0])
    smaller = toy_round(toy_federation([[1], [0, 0]], 2), [0, 1], t=1)
    test = ShiftTest(distance="released")
    reference = test.start(before, torch.tensor([], dtype=torch.int64))
    assert reference.tolist() == [[3, 1, 4], [1, 1, 2]]
    moving, reference = followed(test, [0, -1], reference, smaller)
    # sorted counts 0 1 against 1 3: (1 + 2) / 2 > 0.2 * 4 / 2, and n_i stays 4
    assert moving.tolist() == [0]
    assert reference.tolist() == [[0, 1, 4], [1, 1, 2]], "joining does not renew it"


def test_without_migration_nobody_is_looked_at() -> None:
    rnd = toy_round(toy_federation([[0], [1]], 2), [0])
    moving, reference = ShiftTest().followed(torch.tensor([0, 0]), None, rnd)
    assert (moving.tolist(), reference) == ([], None)


def test_a_client_without_data_is_no_nan() -> None:
    for reading in READINGS:
        gap = ShiftTest(distance=reading).gap(torch.zeros(1, 5, dtype=torch.int64), 0 * REFERENCE)
        assert gap.tolist() == [0.0]

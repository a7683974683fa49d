"""Eq. (9) of FlexCFL by hand, in its three readings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import wasserstein_distance

from fedclust.algorithms.shift import ShiftTest
from fedclust.errors import ConfigError

REFERENCE = torch.tensor([[6, 4, 0, 0, 0]])
READINGS: list[Any] = ["label_freq_l1", "label_count_l1", "scipy_counts"]


def fires(
    reading: Any, now: list[int], reference: torch.Tensor = REFERENCE, **options: Any
) -> bool:
    test = ShiftTest(distance=reading, **options)
    return bool(test(torch.tensor([now]), reference, torch.tensor([True]))[0])


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


def test_swap_of_equally_many_other_labels_is_invisible_to_sorted_counts_only() -> None:
    swapped = [0, 0, 6, 4, 0]
    assert fires("label_freq_l1", swapped)
    assert fires("label_count_l1", swapped)
    assert not fires("scipy_counts", swapped)
    assert float(ShiftTest(distance="scipy_counts").gap(torch.tensor([swapped]), REFERENCE)[0]) == 0


def test_more_of_the_same_mixture_is_no_shift_of_frequencies() -> None:
    assert not fires("label_freq_l1", [12, 8, 0, 0, 0])
    assert fires("label_count_l1", [12, 8, 0, 0, 0])
    assert fires("scipy_counts", [12, 8, 0, 0, 0])


def test_counts_are_compared_with_the_present_size_and_scipys_with_the_former() -> None:
    now = torch.tensor([[9, 5, 2, 0, 4]])
    mean = float((now - REFERENCE).abs().double().mean())
    assert float(ShiftTest(distance="label_count_l1").gap(now, REFERENCE)[0]) == pytest.approx(
        mean / 20
    )
    found = float(ShiftTest(distance="scipy_counts").gap(now, REFERENCE)[0])
    assert found == pytest.approx(wasserstein_distance(now[0].numpy(), REFERENCE[0].numpy()) / 10)


def test_the_oracle_silences_what_the_simulator_did_not_do() -> None:
    test = ShiftTest(oracle=True)
    now, reference = torch.tensor([[0, 5], [0, 5]]), torch.tensor([[5, 0], [5, 0]])
    assert test(now, reference, torch.tensor([False, True])).tolist() == [False, True]
    assert test(reference, reference, torch.tensor([True, True])).tolist() == [False, False]


def test_a_client_without_data_is_no_nan() -> None:
    for reading in READINGS:
        gap = ShiftTest(distance=reading).gap(torch.zeros(1, 5, dtype=torch.int64), 0 * REFERENCE)
        assert gap.tolist() == [0.0]


def test_wrong_options_name_their_key() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.shift\.fraction=-1"):
        ShiftTest(fraction=-1)
    with pytest.raises(ConfigError, match=r"algorithm\.shift\.distance=emd"):
        ShiftTest(distance="emd")  # type: ignore[arg-type]

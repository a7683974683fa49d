"""In what groups differ, of a federation whose numbers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedclust.advise.differences import differences
from fedclust.core.types import Federation, Names, Pool, Split


def federation(y: torch.Tensor) -> Federation:
    """Three clients of four rows each; the last one's second input is larger."""
    x = torch.zeros(12, 2)
    x[:, 0] = torch.tensor([1.0, -1.0] * 6)
    x[8:, 1] = 3.0
    pool = Pool(x=x, y=y, scale=torch.ones(1), shift=torch.zeros(1), num_classes=2)
    rows = torch.arange(12).split(4)
    return Federation(
        pool=pool,
        train=Split.of([own[:3] for own in rows]),
        test=Split.of([own[3:] for own in rows]),
        group=torch.full((3,), -1),
        names=Names(features=("age", "dose")),
    )


def test_the_largest_difference_of_inputs_comes_first_behind_the_label() -> None:
    y = torch.tensor([0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 0])
    label, dose, age = differences(federation(y), np.array([0, 0, 1]))
    assert (label.what, label.groups) == ("label", (0, 1))
    assert label.size == pytest.approx(3 / 4 - 3 / 8)
    assert math.isnan(label.chance)
    assert (dose.what, dose.groups) == ("dose", (1, 0))
    assert dose.size == pytest.approx(3 / math.sqrt(2))  # a third of 3: the variance is 2
    # of two inputs and one pair of groups
    assert dose.chance == pytest.approx(2.2414 * math.sqrt(1 / 8 + 1 / 4), rel=1e-4)
    assert age.size < age.chance
    assert (age.what, age.size) == ("age", pytest.approx(0))


def test_numbers_that_are_predicted_differ_by_their_means() -> None:
    y = torch.tensor([0.0] * 8 + [2.0] * 4).unsqueeze(1)
    label = differences(federation(y), np.array([0, 0, 1]))[0]
    assert label.groups == (1, 0)
    assert label.size == pytest.approx(2 / math.sqrt(8 / 9))


def test_one_group_differs_in_nothing() -> None:
    y = torch.zeros(12, dtype=torch.int64)
    assert differences(federation(y), np.zeros(3, dtype=np.int64)) == []

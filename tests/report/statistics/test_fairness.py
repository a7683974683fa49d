"""Measures of fairness on accuracies made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedclust.report.statistics.fairness import hurt


@pytest.mark.parametrize("correct", range(49))
def test_a_client_just_two_points_below_is_not_hurt_whatever_the_rounding(correct: int) -> None:
    own, alone = np.array([correct / 50]), np.array([(correct + 1) / 50])
    assert hurt(own, alone) == 0
    assert hurt(own - 0.001, alone) == 1


def test_without_a_margin_it_does_not_matter_how_large_scores_are() -> None:
    alone, own = np.array([-1.0, -1.0, -1.0, -1.0]), np.array([-1.001, -1.0, -0.9, -2.0])
    for unit in (1e9, 1.0, 1e-9):
        assert hurt(unit * own, unit * alone, 0.0) == 0.5

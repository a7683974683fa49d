"""Generated load curves of three types of households."""

from __future__ import annotations

import numpy as np
import pytest

from fedclust.core.federation import build
from fedclust.datasets.load import Load
from fedclust.helpers.errors import DataError
from fedclust.helpers.rng import Stream
from fedclust.partitions.natural import Natural


def days_of(kind: int, noise: float = 0.0) -> np.ndarray:
    curves = Load(noise=noise, days=140).curves([kind], Stream.of(3, "load"))
    return curves[0].reshape(140, 24)


def test_every_type_has_its_own_rule_of_the_next_day() -> None:
    commuters, shifts, heating = (days_of(kind) for kind in range(3))
    np.testing.assert_allclose(commuters[0], commuters[1])
    np.testing.assert_allclose(commuters[0], commuters[7])
    assert abs(commuters[4] - commuters[5]).max() > 0.3  # from Friday to Saturday
    np.testing.assert_allclose(shifts[3], shifts[5])
    assert np.corrcoef(shifts[3], shifts[4])[0, 1] < -0.3
    assert (heating.argmax(1) == heating[0].argmax()).all()
    heights = np.log(heating.max(1) - heating.min(1))
    assert 0.6 < np.corrcoef(heights[1:-1], heights[2:])[0, 1] < 0.95  # a day like the one before
    noisy = days_of(1, noise=0.2) / shifts
    assert noisy.std() == pytest.approx(0.2, abs=0.01)
    assert noisy.mean() == pytest.approx(1, abs=0.02)


def test_households_are_clients_and_types_their_groups() -> None:
    data = Load(households=7, days=40, data_seed=5).load()
    fed = build(data, Natural(), 0)
    assert fed.group.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert fed.train.count.tolist() == [29] * 7  # 30 days, the last of which nothing follows
    assert fed.test.count.tolist() == [10] * 7
    assert data.shape == (1, 1, 24)
    again = Load(households=3, days=40, data_seed=5).load()
    assert data.y_test[:10].tolist() == again.y_test[:10].tolist()
    with pytest.raises(
        DataError, match=r"client commuters 0 has 36 of 48 steps before its test part"
    ):
        Load(days=2).load()

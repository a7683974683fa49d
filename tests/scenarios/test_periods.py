"""Data that come period after period."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenario_toys import federation, play, rows_of

from fedclust.core.types import Federation
from fedclust.helpers.errors import ConfigError
from fedclust.scenarios.periods import Periods


def months(empty: bool = False) -> Federation:
    """Three clients of 12 to 14 training and 6 test examples, dealt to months 3, 7 and 12.

    The month is the second input; client 0 has nothing in month 7 if `empty`.
    """
    fed = federation(3, train=12, test=6, classes=None)
    month = torch.zeros(len(fed.pool.y))
    for split in (fed.train, fed.test):
        _, place = split.owner_and_place()
        month[split.index] = torch.tensor([3.0, 7.0, 12.0])[place % 3]
    if empty:
        own = fed.train.of_client(0)
        month[own[month[own] == 7]] = 12
    return replace(fed, pool=replace(fed.pool, x=torch.stack([fed.pool.x[:, 0], month], 1)))


def of(fed: Federation, split: str) -> set[float]:
    index = getattr(fed, split).index.long()
    return set(fed.pool.x[index, 1].tolist())


@pytest.mark.parametrize(
    ("options", "train", "test"),
    [
        ({}, [{3}, {7}, {12}, {12}], [{3}, {7}, {12}, {12}]),
        ({"test": "next"}, [{3}, {7}, {7}, {7}], [{7}, {12}, {12}, {12}]),
        ({"train": "all"}, [{3}, {3, 7}, {3, 7, 12}, {3, 7, 12}], [{3}, {7}, {12}, {12}]),
    ],
)
def test_a_period_has_its_own_examples(
    options: dict[str, str], train: list[set[int]], test: list[set[int]]
) -> None:
    fed = months()
    rounds = play(Periods(column=1, every=2, **options), fed, 8)  # type: ignore[arg-type]
    assert [of(rnd.fed, "train") for rnd in rounds[::2]] == train
    assert [of(rnd.fed, "test") for rnd in rounds[1::2]] == test
    changes = [2, 4] if options.get("test") != "next" else [2]
    assert [rnd.t for rnd in rounds if bool(rnd.shifted.any())] == changes
    assert [rnd.t for rnd in rounds if rnd.is_change] == changes
    for rnd in rounds:
        for mine, all_mine in zip(rows_of(rnd.fed.train), rows_of(fed.train), strict=True):
            assert set(mine) <= set(all_mine)
    first = rounds[0].fed.train.count.tolist()
    assert first == [4, 5, 5]


def test_who_has_nothing_in_a_period_is_not_sampled() -> None:
    rounds = play(Periods(column=1, every=1), months(empty=True), 3)
    assert [rnd.cohort.tolist() for rnd in rounds] == [[0, 1, 2], [1, 2], [0, 1, 2]]
    assert [rnd.shifted.tolist() for rnd in rounds][1] == [False, True, True]


def test_an_input_that_is_not_there_or_never_changes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scenario.column=2 is not allowed: 0 to 1, since an ex"):
        Periods(column=2).rounds(months(), 0)
    same = months()
    same = replace(same, pool=replace(same.pool, x=torch.ones_like(same.pool.x)))
    with pytest.raises(ConfigError, match=r"scenario.column=0 is not allowed: an input with sever"):
        Periods().rounds(same, 0)
    assert "first period" in Periods(every=5).remark(5)
    assert Periods(every=5).remark(6) == ""

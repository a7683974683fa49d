"""Data come in parts; in the released code's form they go."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from scenario_toys import federation, play, rows_of

from fedclust.helpers.errors import ConfigError
from fedclust.scenarios.incremental import Incremental


@pytest.mark.parametrize(
    ("shrink", "sizes"), [(False, [25, 50, 75, 100, 100]), (True, [25, 12.5, 9.375, 9.375, 9.375])]
)
def test_sizes_after_every_release(shrink: bool, sizes: list[float]) -> None:
    fed = federation(5, train=800)  # 800 to 804 examples
    rounds = play(Incremental(every=3, shrink_current=shrink), fed, 15)
    for t, rnd in enumerate(rounds):
        percent = 100 * rnd.fed.train.count / fed.train.count
        assert (percent - sizes[t // 3]).abs().max() < 0.4, "parts are rounded up to examples"
        assert int(rnd.fed.train.count[0]) == 8 * sizes[t // 3]
        assert rnd.fed.test is fed.test


def test_a_complete_start_is_taken_away_in_round_1() -> None:
    fed = federation(2, train=400)
    rounds = play(Incremental(every=3, complete_start=True), fed, 8)
    assert [int(r.fed.train.count[0]) for r in rounds] == [400, 100, 100, 200, 200, 200, 300, 300]
    assert [r.t for r in rounds if r.shifted.all()] == [1, 3, 6]


def test_parts_are_rounded_up_and_never_empty() -> None:
    fed = federation(5, train=1)  # 1 to 5 examples
    rounds = play(Incremental(every=1), fed, 4)
    assert [r.fed.train.count.tolist() for r in rounds] == [
        [1, 1, 1, 1, 2],
        [1, 1, 2, 2, 3],
        [1, 2, 3, 3, 4],
        [1, 2, 3, 4, 5],
    ]


def test_a_tenth_three_times_is_three_tenths() -> None:
    rounds = play(Incremental(fraction=0.1, every=1), federation(1, train=10), 12)
    assert [int(r.fed.train.count[0]) for r in rounds] == [*range(1, 11), 10, 10]


def test_parts_grow_by_adding_and_are_a_random_part() -> None:
    fed = federation(20, train=40)
    rounds = play(Incremental(every=1), fed, 4)
    for before, after in pairwise(rounds):
        for old, new in zip(rows_of(before.fed.train), rows_of(after.fed.train), strict=True):
            assert set(old) < set(new)
    assert rows_of(rounds[3].fed.train) == rows_of(fed.train)
    first = [fed.pool.y[rounds[0].fed.train.of_client(0)].float().mean() for _ in (0,)]
    assert 0 < first[0] < 1, "not the first examples, which alternate, nor one class"
    starts = [
        rows[0] - int(fed.train.of_client(i)[0])
        for i, rows in enumerate(rows_of(rounds[0].fed.train))
    ]
    assert len(set(starts)) > 2
    other = play(Incremental(every=1), fed, 1, seed=1)[0]
    assert rows_of(other.fed.train) != rows_of(rounds[0].fed.train)


@pytest.mark.parametrize(("shrink", "shifts"), [(False, {3, 6, 9}), (True, {3, 6})])
def test_a_release_is_a_shift_but_for_the_first(shrink: bool, shifts: set[int]) -> None:
    rounds = play(Incremental(every=3, shrink_current=shrink), federation(20, train=96), 15)
    assert {r.t for r in rounds if r.shifted.any()} == shifts
    assert all(rounds[t].shifted.all() for t in shifts)


@pytest.mark.parametrize(("key", "value"), [("fraction", 0.0), ("fraction", 1.1), ("every", 0)])
def test_what_cannot_be_released_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"Incremental.{key}={value}"):
        Incremental(**{key: value})  # type: ignore[arg-type]


def test_everything_at_once_is_no_change_of_the_sets() -> None:
    fed = federation()
    rounds = play(Incremental(fraction=1.0, every=2), fed, 6)
    assert all(rows_of(r.fed.train) == rows_of(fed.train) for r in rounds)
    assert not torch.stack([r.shifted for r in rounds]).any()

"""Clients under one concept after the other: tables, counts, and what stays as it is."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
import torch
from refusals import refused
from scenario_toys import federation, play
from torch import Tensor
from toys import federation_of, pool_of

from fedclust.core.types import Federation, Split
from fedclust.helpers.errors import ConfigError
from fedclust.scenarios.drift import Drift


def bank(num_clients: int = 10, concepts: int = 4, train: int = 12, test: int = 3) -> Federation:
    """Client i owns `train` and `test` examples, all under concept 0; labels are the concepts."""
    total = num_clients * (train + test)
    x, y = torch.arange(total).float().unsqueeze(1), torch.arange(concepts).repeat(total)
    image = torch.arange(total).repeat_interleave(concepts)
    pool = pool_of(x, y, concepts, image=image, concepts=concepts)
    rows = concepts * torch.arange(total)
    trained, tested = rows[: num_clients * train], rows[num_clients * train :]
    return federation_of(pool, trained.split(train), tested.split(test))


def share(fed: Federation, split: Split, concept: int) -> Tensor:
    """Part of every client's examples that is under a concept, [M]."""
    owner, _ = split.owner_and_place()
    hits = (fed.pool.y[split.index.long()] == concept).double()
    return torch.zeros(fed.num_clients).double().index_add(0, owner, hits) / split.count


def table_of(scenario: Drift, fed: Federation, steps: int) -> list[list[int]]:
    """Groups in the first round of every step."""
    rounds = play(scenario, fed, steps * scenario.every)
    return [rnd.fed.group.tolist() for rnd in rounds[:: scenario.every]]


def images(fed: Federation, split: Split) -> list[list[int]]:
    place = fed.pool.images(split.index.long())
    return [sorted(rows.tolist()) for rows in place.split(split.count.tolist())]


def test_two_steps_of_a_table_give_the_concepts_it_names() -> None:
    fed = bank(3)
    rounds = play(Drift(table=[[0, 1, 2], [3, 1, 0]], every=2), fed, 6)
    for t, rnd in enumerate(rounds):
        row = [0, 1, 2] if t < 2 else [3, 1, 0]
        assert rnd.fed.group.tolist() == row
        for i, concept in enumerate(row):
            assert float(share(rnd.fed, rnd.fed.train, concept)[i]) == 1
            assert float(share(rnd.fed, rnd.fed.test, concept)[i]) == 1
    assert [rnd.shifted.tolist() for rnd in rounds[1:4]] == [
        [False] * 3,
        [True, False, True],
        [False] * 3,
    ]
    assert [rnd.is_change for rnd in rounds] == [False, False, True, False, False, False]


def test_no_example_changes_its_image_and_going_back_restores_the_bits() -> None:
    fed = bank(4)
    rounds = play(Drift(table=[[0] * 4, [1, 2, 3, 0], [0] * 4], every=1), fed, 3)
    for rnd in rounds:
        assert images(rnd.fed, rnd.fed.train) == images(fed, fed.train)
        assert images(rnd.fed, rnd.fed.test) == images(fed, fed.test)
    assert torch.equal(rounds[0].fed.train.index, rounds[2].fed.train.index)
    assert torch.equal(rounds[0].fed.test.index, rounds[2].fed.test.index)
    assert not torch.equal(rounds[0].fed.train.index, rounds[1].fed.train.index)


@pytest.mark.parametrize(
    ("name", "concepts", "changes"),
    [
        # clients whose concept changes from row to row in the published files
        ("feddrift_a", 2, [1, 1, 3, 1, 4, 2, 3, 1, 0, 0]),
        ("feddrift_b", 4, [3, 3, 4, 3, 3, 4, 4, 4, 4, 0]),
        ("feddrift_c", 4, [6, 1, 5, 2, 3, 4, 5, 2, 4, 0]),
        ("feddrift_w", 2, [0, 2, 0, 3, 1, 2, 0, 2, 0, 0]),
    ],
)
def test_published_tables_are_those_of_ten_clients(
    name: str, concepts: int, changes: list[int]
) -> None:
    fed = bank(10, concepts)
    rows = table_of(Drift(table=name, every=1), fed, 12)  # type: ignore[arg-type]
    assert rows[0] == [0] * 10
    assert rows[10] == rows[11], "the last row stays"
    counted = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in pairwise(rows[:11])]
    assert counted == changes
    assert {concept for row in rows for concept in row} == set(range(concepts))
    rounds = play(Drift(table=name, every=1), fed, 11)  # type: ignore[arg-type]
    assert [int(rnd.shifted.sum()) for rnd in rounds[1:]] == changes


@pytest.mark.parametrize("name", ["feddrift_a", "feddrift_b", "feddrift_c", "feddrift_w"])
def test_a_table_for_other_clients_is_one_line(name: str) -> None:
    with refused(ConfigError, rf"scenario.table={name} .* for 10 clients") as error:
        Drift(table=name).rounds(bank(12), 0)  # type: ignore[arg-type]
    assert "12" in str(error.value)


def test_a_table_of_concepts_that_are_not_there_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"feddrift_b .* names concept 3, .* has 0 to 1"):
        Drift(table="feddrift_b").rounds(bank(10, 2), 0)
    with pytest.raises(ConfigError, match=r"=.2 rows of 3 entries. .* for 3 clients, .* has 10"):
        Drift(table=[[0, 0, 0], [1, 1, 1]]).rounds(bank(10), 0)


@pytest.mark.parametrize("table", [[], [[]], [[0, 1], [0]]])
def test_a_ragged_table_is_refused_at_once(table: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match=r"at least 1 row, a step each, of equal length"):
        Drift(table=table)


def test_all_change_suddenly_in_the_middle_and_to_another_concept() -> None:
    rows = table_of(Drift(table="sudden", every=2, steps=6), bank(200), 6)
    assert rows[0] == rows[1] == rows[2] == [0] * 200
    assert rows[3] == rows[5]
    assert set(rows[3]) == {1, 2, 3}
    assert all(abs(rows[3].count(g) - 200 / 3) < 5 * (200 * 2 / 9) ** 0.5 for g in (1, 2, 3))


def test_staggered_clients_change_once_each_at_a_uniform_step() -> None:
    rows = torch.tensor(table_of(Drift(table="staggered", every=1, steps=5), bank(400), 5))
    changes = rows[1:] != rows[:-1]
    assert changes.sum(0).tolist() == [1] * 400
    at = changes.double().argmax(0).bincount(minlength=4)
    assert (at - 100).abs().max() < 5 * (400 * 3 / 16) ** 0.5


def test_recurring_concepts_come_back_after_all_of_them() -> None:
    rows = table_of(Drift(table="recurring", every=1, steps=9), bank(6, 4), 9)
    assert rows == [[s % 4] * 6 for s in range(9)]


def test_random_concepts_are_drawn_in_every_second_step() -> None:
    rows = table_of(Drift(table="random", every=1, steps=10), bank(300), 10)
    assert rows[0] == [0] * 300
    assert rows[::2] == rows[1::2]
    for before, after in pairwise(rows[::2]):
        same = sum(a == b for a, b in zip(before, after, strict=True))
        assert abs(same - 75) < 5 * (300 * 3 / 16) ** 0.5


def test_clients_begin_with_the_concept_of_their_data() -> None:
    fed = bank(6, 4)
    start = torch.tensor([0, 1, 2, 3, 2, 1])
    moved = [
        Split((s.index + start[s.owner_and_place()[0]]).int(), s.start)
        for s in (fed.train, fed.test)
    ]
    fed = Federation(pool=fed.pool, train=moved[0], test=moved[1], group=start)
    rows = table_of(Drift(table="recurring", every=1, steps=2), fed, 2)
    assert rows == [start.tolist(), ((start + 1) % 4).tolist()]


def test_a_gradual_change_rises_linearly_and_adds_up() -> None:
    fed = bank(5, 4, train=12, test=8)
    rounds = play(Drift(table=[[0] * 5, [1, 2, 3, 1, 2]], every=6, width=4), fed, 12)
    new = torch.tensor([1, 2, 3, 1, 2])
    for t, part in [(5, 0.0), (6, 0.25), (7, 0.5), (8, 0.75), (9, 1.0), (10, 1.0), (11, 1.0)]:
        rnd = rounds[t]
        for split in (rnd.fed.train, rnd.fed.test):
            for i in range(5):
                assert float(share(rnd.fed, split, int(new[i]))[i]) == part
                assert float(share(rnd.fed, split, 0)[i]) == 1 - part
        assert rnd.fed.group.tolist() == (new.tolist() if part >= 0.5 else [0] * 5)
        assert rnd.shifted.all() == (6 <= t <= 9)
        assert rnd.is_change == (t == 6)
    concepts = [rnd.fed.pool.y[rnd.fed.train.index.long()] for rnd in rounds[5:10]]
    assert all(((b == a) | (b > 0)).all() for a, b in pairwise(concepts)), "nobody goes back"


def test_a_gradual_table_changes_over_the_step_in_the_middle() -> None:
    fed = bank(20, 2, train=10, test=10)
    rounds = play(Drift(table="gradual", every=5, steps=4), fed, 20)
    for t, part in [(9, 0.0), (10, 0.2), (11, 0.4), (12, 0.6), (13, 0.8), (14, 1.0), (19, 1.0)]:
        assert share(fed, rounds[t].fed.train, 1).tolist() == [part] * 20
    assert [t for t in range(20) if rounds[t].is_change] == [10]


def test_new_data_in_every_step_are_all_the_data() -> None:
    fed = bank(4, train=14)
    scenario = Drift(table=[[0] * 4, [1] * 4, [1] * 4, [0] * 4], every=2, new_data=True)
    rounds = play(scenario, fed, 10)
    steps = [images(rnd.fed, rnd.fed.train) for rnd in rounds[:8:2]]
    assert [len(step[0]) for step in steps] == [3, 4, 3, 4]
    for i in range(4):
        assert sorted(chain(*(step[i] for step in steps))) == images(fed, fed.train)[i]
    assert [bool(rnd.shifted.all()) for rnd in rounds] == [
        False,
        False,
        *[True, False] * 3,
        *[False] * 2,
    ]
    assert images(rounds[9].fed, rounds[9].fed.train) == steps[3]
    with pytest.raises(ConfigError, match=r"scenario.new_data=true .* 2 training examples for 4"):
        scenario.rounds(bank(4, train=2), 0)


def test_data_that_add_up_keep_the_concept_of_their_step() -> None:
    fed = bank(4, train=14)
    table = [[0] * 4, [1, 2, 3, 0], [2] * 4]
    scenario = Drift(table=table, every=2, new_data=True, train="all")
    rounds = play(scenario, fed, 8)
    alone = play(Drift(table=table, every=2, new_data=True), fed, 8)
    for step, size in enumerate((4, 9, 14)):
        rnd = rounds[2 * step]
        assert rnd.fed.train.count.tolist() == [size] * 4
        seen = [alone[2 * s].fed.train for s in range(step + 1)]
        for i in range(4):
            rows = torch.cat([split.of_client(i) for split in seen])
            assert torch.equal(rnd.fed.train.of_client(i).sort().values, rows.sort().values)
        assert rnd.fed.group.tolist() == table[step]
        assert [float(share(rnd.fed, rnd.fed.test, table[step][i])[i]) for i in range(4)] == [1] * 4
    assert rounds[2].shifted.all()
    assert torch.equal(rounds[7].fed.train.index, rounds[4].fed.train.index)
    for options in ({}, {"new_data": True, "width": 2}):
        with pytest.raises(ConfigError, match=r"scenario.train=all .* scenario.new_data=true"):
            Drift(train="all", **options)  # type: ignore[arg-type]


def test_training_or_test_data_that_do_not_change() -> None:
    fed, table = bank(3), [[0, 0, 0], [0, 1, 2], [3, 1, 2]]
    still = play(Drift(table=table, every=1, train="first"), fed, 4)
    for rnd, row in zip(still, [*table, table[2]], strict=True):
        assert torch.equal(rnd.fed.train.index, still[0].fed.train.index)
        assert rnd.fed.group.tolist() == [0, 0, 0]
        assert not rnd.shifted.any()
        assert [float(share(rnd.fed, rnd.fed.test, g)[i]) for i, g in enumerate(row)] == [1] * 3
    tested = play(Drift(table=table, every=1, test="first"), fed, 4)
    for rnd, row in zip(tested, [*table, table[2]], strict=True):
        assert share(rnd.fed, rnd.fed.test, 0).tolist() == [1] * 3
        assert rnd.fed.group.tolist() == row
    assert tested[1].shifted.tolist() == [False, True, True]
    fresh = play(Drift(table=table, every=1, train="first", new_data=True), fed, 3)
    assert fresh[2].fed.train.count.tolist() == [4, 4, 4], "the first part alone"


def test_diverging_clients_have_every_concept_once() -> None:
    rows = torch.tensor(table_of(Drift(table="diverging", every=1, steps=7), bank(60, 5), 7))
    assert rows[0].tolist() == [0] * 60
    assert (rows[:5].sort(0).values == torch.arange(5).unsqueeze(1)).all()
    assert torch.equal(rows[4], rows[6]), "then they stay"
    counts = rows[1].bincount(minlength=5)[1:]
    assert (counts - 15).abs().max() < 5 * (60 * 3 / 16) ** 0.5


def test_the_next_step_is_tested_where_that_is_asked_for() -> None:
    fed = bank(3)
    scenario = Drift(table=[[0, 0, 0], [0, 1, 2], [3, 1, 2]], every=2, test="next")
    rounds = play(scenario, fed, 6)
    for t, rnd in enumerate(rounds):
        now, ahead = ([0, 0, 0], [0, 1, 2]) if t < 2 else ([0, 1, 2], [3, 1, 2])
        assert rnd.fed.group.tolist() == now
        assert [float(share(rnd.fed, rnd.fed.test, g)[i]) for i, g in enumerate(ahead)] == [1] * 3
    assert rounds[2].shifted.tolist() == [False, True, True]
    assert not rounds[4].shifted.any(), "the last row is for testing only"
    for options in ({"width": 2}, {"table": "gradual"}):
        with pytest.raises(ConfigError, match=r"scenario.test=next .* changes at once only"):
            Drift(test="next", **options)  # type: ignore[arg-type]


def test_a_partition_without_concepts_and_slow_changes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"scenario=drift .* partition=label_map"):
        Drift().rounds(bank(4, concepts=1), 0)
    with pytest.raises(ConfigError, match=r"scenario.width=21 .* 1 to scenario.every=20"):
        Drift(width=21)


def test_clients_without_training_data_drift_too() -> None:
    rounds = play(Drift(every=1, steps=3), federation(empty=(2, 19)), 4)
    assert rounds[3].fed.group.tolist() == [1] * 20
    assert rounds[3].fed.train.count[[2, 19]].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("table", "first"),
    [("staggered", 3), ("sudden", 9), ("gradual", 9), ("random", 5), ("feddrift_w", 5)],
)
def test_a_run_that_ends_before_the_first_change_is_told(table: str, first: int) -> None:
    scenario = Drift(table=table, every=2, steps=8)  # type: ignore[arg-type]
    assert f"at round {first}; raise rounds" in scenario.remark(first - 1)
    assert scenario.remark(first) == ""
    assert "at round 5;" in Drift(table=[[0], [0], [1]], every=2).remark(4)


def test_clients_with_several_concepts_are_refused() -> None:
    fed = bank(2)
    mixed = fed.train.index.clone()
    mixed[0] += 1  # the first example of client 0 under concept 1
    train = Split(mixed, fed.train.start)
    fed = Federation(pool=fed.pool, train=train, test=fed.test, group=fed.group)
    with pytest.raises(ConfigError, match="examples of several concepts"):
        next(Drift(every=2).rounds(fed, 0))

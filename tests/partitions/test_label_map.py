"""Labels by the tables of concepts: which they are, and that nothing but labels differs."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import pytest
import torch
from fakes import fake
from refusals import refused

from fedclust.core.federation import build, label_histogram
from fedclust.core.types import Dataset
from fedclust.helpers.errors import ConfigError
from fedclust.partitions.class_subsets import ClassSubsets
from fedclust.partitions.iid import IID
from fedclust.partitions.label_map import LabelMap


def table(dataset: Dataset, **options: object) -> list[list[int]]:
    rows: list[list[int]] = LabelMap(base=IID(num_clients=8), **options).table(dataset).tolist()  # type: ignore[arg-type]
    return rows


def test_published_tables() -> None:
    digits = list(range(10))
    assert table(fake(20, 20), maps="fedrc") == [digits, digits[::-1], [*digits[1:], 0]]
    assert table(fake(20, 20), maps="feddrift4") == [
        digits,
        [0, 2, 1, 3, 4, 5, 6, 7, 8, 9],
        [0, 1, 2, 4, 3, 5, 6, 7, 8, 9],
        [0, 1, 2, 3, 4, 6, 5, 7, 8, 9],
    ]
    clove = torch.tensor(table(fake(20, 20), maps="clove"))
    assert clove.tolist() == [
        [3, 1, 2, 0, 4, 5, 6, 7, 9, 8],
        [0, 4, 2, 3, 1, 5, 9, 7, 8, 6],
        [0, 2, 1, 6, 4, 5, 3, 7, 8, 9],
        [0, 1, 2, 5, 7, 3, 6, 4, 8, 9],
    ]
    # one model for all groups is right for the commonest label of each class at best
    best = [torch.bincount(labels).max() / 4 for labels in clove.T]
    assert float(sum(best)) == pytest.approx(6.0)


def test_images_are_shared_and_labels_are_mapped() -> None:
    dataset = fake(300, 100)
    fed = build(dataset, LabelMap(base=IID(num_clients=12), maps="fedrc"), 0)
    assert len(fed.pool.x) == 400, "one copy of the images for three concepts"
    assert len(fed.pool.y) == 1200
    assert fed.pool.concepts == 3
    y = torch.cat([dataset.y_train, dataset.y_test])
    for g, row in enumerate(table(dataset, maps="fedrc")):
        rows = torch.arange(400) * 3 + g
        assert torch.equal(fed.pool.y[rows], torch.tensor(row)[y])
        assert fed.pool.images(rows).tolist() == list(range(400))
        assert torch.equal(
            fed.pool.inputs(rows), torch.cat([dataset.x_train, dataset.x_test]).float()
        )


def test_a_group_sees_its_own_table_in_training_and_test() -> None:
    dataset = fake(600, 200)
    base = IID(num_clients=12)
    partition = LabelMap(base=base, maps="fedrc")
    fed = build(dataset, partition, 7)
    assert fed.group.bincount().tolist() == [4, 4, 4]
    assert (fed.train.index % 3 == fed.group.repeat_interleave(fed.train.count)).all()
    assert (fed.test.index % 3 == fed.group.repeat_interleave(fed.test.count)).all()
    maps = partition.table(dataset)
    histogram = label_histogram(fed, torch.arange(12))
    for i, g in enumerate(fed.group.tolist()):
        plain = dataset.y_train[fed.train.of_client(i) // 3].bincount(minlength=10)
        assert torch.equal(histogram[i][maps[g]], plain)


def test_groups_are_assigned_across_the_clusters_of_the_base() -> None:
    base = ClassSubsets(num_clients=40, subsets=[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    fed = build(fake(2000, 400), LabelMap(base=base, maps="fedrc"), 0)
    first = fed.group[:20].bincount(minlength=3)
    assert fed.group.bincount().tolist() == [14, 13, 13]
    assert (first > 0).all()
    assert first.tolist() != [14, 6, 0]
    drawn = build(
        fake(2000, 400), LabelMap(base=IID(num_clients=900), assignment="uniform"), 0
    ).group.bincount(minlength=3)
    assert (drawn - 300).abs().max() < 5 * (900 * 2 / 9) ** 0.5
    assert drawn.tolist() != [300, 300, 300]


def test_concepts_have_their_shares_of_the_clients() -> None:
    def sizes(shares: list[float], num_clients: int = 10) -> list[int]:
        partition = LabelMap(base=IID(num_clients=num_clients), maps="fedrc", assignment=shares)
        fed = build(fake(200, 40), partition, 0)
        assert fed.group.tolist() != sorted(fed.group.tolist())
        return list(fed.group.bincount().tolist())

    assert sizes([0.5, 0.3, 0.2]) == [5, 3, 2]
    assert sizes([0.55, 0.26, 0.19]) == [5, 3, 2]  # 5.5, 2.6 and 1.9: the largest remainders
    assert sizes([0.7, 0.2, 0.1], 20) == [14, 4, 2]
    for wrong in ([0.5, 0.5], [0.5, 0.3, 0.3], [1.0, 0.0, 0.0], [0.98, 0.01, 0.01]):
        with pytest.raises(ConfigError, match=r"partition\.assignment"):
            sizes(wrong)


@pytest.mark.parametrize("moved", [None, 2, 4])
def test_random_tables_differ_and_move_as_many_classes_as_asked(moved: int | None) -> None:
    rows = table(fake(20, 20), maps="random", num_concepts=9, moved=moved, data_seed=3)
    assert len({tuple(row) for row in rows}) == 9
    assert rows[0] == list(range(10))
    for row in rows[1:]:
        assert sorted(row) == list(range(10))
        if moved:
            assert sum(new != y for y, new in enumerate(row)) == moved
    assert table(fake(20, 20), maps="random", num_concepts=9, moved=moved, data_seed=4) != rows


@pytest.mark.parametrize("moved", [2, 3])
def test_a_pool_holds_all_orders_of_some_classes(moved: int) -> None:
    rows = table(fake(20, 20), maps="pool", moved=moved)
    assert len(rows) == factorial(moved)
    chosen = [y for y in range(10) if len({row[y] for row in rows}) > 1]
    assert len(chosen) == moved
    orders = {tuple(row[y] for y in chosen) for row in rows}
    assert orders == set(permutations(chosen))
    assert rows[0] == list(range(10))


def test_a_table_of_ones_own() -> None:
    dataset = fake(30, 30, num_classes=3)
    assert table(dataset, maps=[[0, 1, 2], [1, 2, 0]]) == [[0, 1, 2], [1, 2, 0]]
    with pytest.raises(ConfigError, match=r"partition.maps\[1\]=\[1, 2\] is not allowed: perm"):
        table(dataset, maps=[[0, 1, 2], [1, 2]])
    with pytest.raises(ConfigError, match=r"a table of two concepts or more"):
        LabelMap(base=IID(num_clients=2), maps=[[0, 1, 2]])


def test_what_does_not_fit_is_one_line() -> None:
    for name, classes in (("feddrift4", 6), ("clove", 9), ("feddrift4", 5)):
        with refused(ConfigError, rf"partition.maps={name} .* classes 0 to"):
            table(fake(20, 20, num_classes=classes), maps=name)
    with pytest.raises(ConfigError, match=r"partition.num_concepts=9 .* not so many"):
        table(fake(20, 20, num_classes=3), maps="random", num_concepts=9)
    with pytest.raises(ConfigError, match=r"partition.moved=None .* 2 to 5 with maps=pool"):
        LabelMap(base=IID(num_clients=2), maps="pool")
    with pytest.raises(ConfigError, match=r"partition.base.num_clients=2 .* at least 3"):
        build(fake(20, 20), LabelMap(base=IID(num_clients=2)), 0)
    with pytest.raises(ValueError, match=r"lower partition.base.num_clients"):
        build(fake(5, 5), LabelMap(base=IID(num_clients=6)), 0)


def test_maps_on_maps_have_the_outer_concept_as_group() -> None:
    dataset = fake(60, 30)
    inner = LabelMap(base=IID(num_clients=6), maps="fedrc")
    fed = build(dataset, LabelMap(base=inner, maps="feddrift4"), 0)
    assert fed.pool.concepts == 4
    assert len(fed.pool.x) == 90
    assert len(fed.pool.y) == 90 * 12
    one = int(fed.train.of_client(0)[0])
    outer, rest = one % 4, one // 4
    label = int(torch.cat([dataset.y_train, dataset.y_test])[rest // 3])
    label = inner.table(dataset)[rest % 3, label].item()
    assert int(fed.pool.y[one]) == table(dataset, maps="feddrift4")[outer][label]
    assert int(fed.group[0]) == outer

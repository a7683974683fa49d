"""Agreement of repetitions, and federations whose clients have exchanged their rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster

from fedclust.advise.evidence import agreed, agreement, exchanged, p_value, together, tree
from fedclust.core.types import Federation, Pool, Split

LABELS = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1]])


def test_shares_count_repetitions_whatever_groups_are_called() -> None:
    shares = together(LABELS)
    assert np.allclose(shares.diagonal(), 1)
    assert shares[0, 1] == pytest.approx(3 / 4)
    assert shares[2, 3] == pytest.approx(3 / 4)
    assert shares[0, 3] == 0
    assert shares[1, 2] == pytest.approx(2 / 4)


def test_agreed_groups_are_those_of_most_repetitions() -> None:
    assert agreed(together(LABELS)).tolist() == [0, 0, 1, 1]
    assert agreed(together(np.array([[2, 0, 0], [1, 0, 0]]))).tolist() == [0, 1, 1]
    halves = np.array([[0, 0], [0, 1]])  # together in half of them is not in most
    assert agreed(together(halves)).tolist() == [0, 1]


def test_agreement_is_the_mean_rand_index_of_pairs() -> None:
    assert agreement(LABELS[:2]) == 1
    # clients {0, 1} {2, 3} against {0, 1, 2} {3}: one pair together in both, of 2 and of 3
    expected = (1 - 2 * 3 / 6) / ((2 + 3) / 2 - 2 * 3 / 6)
    assert agreement(LABELS[[0, 2]]) == pytest.approx(expected)


def test_the_tree_joins_those_who_are_often_together_first() -> None:
    links = tree(together(LABELS))
    assert {frozenset(map(int, row[:2])) for row in links[:2]} == {
        frozenset({0, 1}),
        frozenset({2, 3}),
    }
    assert links[0, 2] == pytest.approx(1 / 4)
    assert len(set(fcluster(links, 2, "maxclust"))) == 2


def federation(unit_size: int = 1) -> Federation:
    """Four clients of 30, 20, 10 and 4 rows, the first quarter of each are tests."""
    pool = Pool(
        x=torch.zeros(64, 1),
        y=torch.zeros(64, dtype=torch.int64),
        scale=torch.ones(1),
        shift=torch.zeros(1),
        num_classes=2,
    )
    rows = torch.arange(64).split([30, 20, 10, 4])
    train = Split.of([own[len(own) // 4 // unit_size * unit_size :] for own in rows])
    test = Split.of([own[: len(own) // 4 // unit_size * unit_size] for own in rows])
    return Federation(pool=pool, train=train, test=test, group=torch.tensor([0, 0, 1, 1]))


def test_exchange_keeps_sizes_and_sides_and_forgets_groups() -> None:
    before, after = federation(), exchanged(federation(), 5)
    for name, split in before.splits.items():
        other = after.splits[name]
        assert torch.equal(split.count, other.count)
        assert torch.equal(split.index.sort().values, other.index.sort().values)
        assert not torch.equal(split.index, other.index)
    assert after.group.tolist() == [-1] * 4
    again = exchanged(federation(), 5)
    assert torch.equal(again.train.index, after.train.index)
    assert not torch.equal(exchanged(federation(), 6).train.index, after.train.index)


@pytest.mark.full
def test_exchanged_rows_come_from_all_clients_alike() -> None:
    owner = torch.repeat_interleave(torch.arange(4), torch.tensor([30, 20, 10, 4]))
    counts = np.zeros(4)
    for seed in range(300):
        counts += np.bincount(owner[exchanged(federation(), seed).train.of_client(2)], minlength=4)
    shares = federation().train.count.numpy() / federation().train.count.sum().item()
    assert counts / counts.sum() == pytest.approx(shares, abs=0.03)


def test_rows_of_a_unit_stay_side_by_side() -> None:
    unit = np.arange(64) // 2
    after = exchanged(federation(2), 1, unit)
    whose = unit[after.train.index.numpy()]
    assert (np.diff(whose) == 0).sum() == len(whose) // 2  # each pair is in one piece


def test_p_counts_the_measured_federation() -> None:
    null = np.arange(39) / 100
    assert p_value(0.5, null) == pytest.approx(1 / 40)
    assert p_value(0.38, null) == pytest.approx(2 / 40)
    assert p_value(-1.0, null) == 1

import numpy as np
import pytest

from fedclust.partitions.cut import consecutive, deal, even, grouped, hold_out, shuffled_classes


@pytest.mark.parametrize(("total", "parts"), [(10, 3), (7, 7), (3, 5), (0, 2)])
def test_even_equals_array_split(total: int, parts: int) -> None:
    assert even(total, parts).tolist() == [len(p) for p in np.array_split(np.arange(total), parts)]


def test_grouped_keeps_the_order_given() -> None:
    split = grouped(np.array([9, 8, 7, 6, 5]), np.array([2, 0, 2, 0, 2]), 4)
    assert [split.of_client(i).tolist() for i in range(4)] == [[8, 6], [], [9, 7, 5], []]


def test_consecutive_with_and_without_cap() -> None:
    for cap, owned in (
        (None, [[10, 11, 12], [], [13, 14], [15]]),
        (1, [[10], [], [13], [15]]),
    ):
        split = consecutive(np.arange(10, 16), np.array([3, 0, 2, 1]), cap)
        assert [split.of_client(i).tolist() for i in range(4)] == owned


def test_hold_out_keeps_clients_apart_and_rounds_down() -> None:
    sizes = np.array([10, 1, 0, 25])
    rows = np.arange(36)
    train, test = hold_out(rows, sizes, 0.9, np.random.default_rng(0))
    assert train.count.tolist() == [9, 0, 0, 22]
    assert test.count.tolist() == [1, 1, 0, 3]
    for client, (first, last) in enumerate([(0, 10), (10, 11), (11, 11), (11, 36)]):
        both = train.of_client(client).tolist() + test.of_client(client).tolist()
        assert sorted(both) == list(range(first, last))


def test_hold_out_is_uniform() -> None:
    held = np.zeros(10)
    for seed in range(2000):
        _, test = hold_out(np.arange(10), np.array([10]), 0.9, np.random.default_rng(seed))
        held[test.index.numpy()] += 1
    assert abs(held / 2000 - 0.1).max() < 0.03


def test_shuffled_classes_hold_every_row_of_their_class() -> None:
    y = np.array([2, 0, 2, 2, 0, 5])
    classes = shuffled_classes(y, 7, np.random.default_rng(0))
    assert [sorted(rows.tolist()) for rows in classes] == [[1, 4], [], [0, 2, 3], [], [], [5], []]
    one_each = shuffled_classes(y, 7, np.random.default_rng(0), 1)
    assert [len(rows) for rows in one_each] == [1, 0, 1, 0, 0, 1, 0]


def test_deal_takes_off_the_top_without_sharing() -> None:
    classes = [np.array([10, 11, 12]), np.array([20, 21])]
    rows, sizes = deal(np.array([[1, 0], [2, 1]]), classes)
    assert rows.tolist() == [10, 11, 12, 20]
    assert sizes.tolist() == [1, 3]

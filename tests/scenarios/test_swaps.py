"""Swaps move examples and lose none; how many, whose and when."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import chain, islice, pairwise

import pytest
import torch
from refusals import refused
from scenario_toys import CLASSES, federation, labels_of, play, rows_of

from fedclust.core.types import Federation
from fedclust.helpers.errors import ConfigError
from fedclust.scenarios.swap_all import SwapAll
from fedclust.scenarios.swap_part import SwapPart
from fedclust.scenarios.swaps import draw_labels, exchanged, exchanged_labels, is_swappable

BOTH = [SwapAll(probability=0.5), SwapPart(probability=0.5)]


def changed(before: Federation, after: Federation) -> list[int]:
    """Clients whose examples are others, as sets."""
    old = zip(rows_of(before.train), rows_of(before.test), strict=True)
    new = zip(rows_of(after.train), rows_of(after.test), strict=True)
    return [client for client, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]


@pytest.mark.parametrize("scenario", BOTH, ids=["all", "part"])
def test_no_example_is_lost_doubled_or_moved_between_training_and_test(
    scenario: SwapAll | SwapPart,
) -> None:
    fed = federation()
    last = play(scenario, fed, 30)[-1].fed
    assert changed(fed, last)
    for before, after in ((fed.train, last.train), (fed.test, last.test)):
        assert Counter(after.index.tolist()) == Counter(before.index.tolist())


@pytest.mark.parametrize("scenario", BOTH, ids=["all", "part"])
def test_shifted_names_the_clients_whose_data_changed(scenario: SwapAll | SwapPart) -> None:
    rounds = play(scenario, federation(), 30)
    assert not rounds[0].shifted.any()
    for before, after in pairwise(rounds):
        assert after.shifted.nonzero().squeeze(1).tolist() == changed(before.fed, after.fed)
    assert any(rnd.shifted.any() for rnd in rounds)


def test_a_pair_exchanges_everything_and_the_group_follows() -> None:
    fed = federation()
    after = exchanged(fed, torch.tensor([[2, 7], [19, 0]]))
    order = list(range(20))
    order[2], order[7], order[0], order[19] = 7, 2, 19, 0
    for old, new in ((fed.train, after.train), (fed.test, after.test)):
        assert all(torch.equal(new.of_client(i), old.of_client(order[i])) for i in range(20))
    assert after.group.tolist() == [fed.group[i] for i in order]
    twice = exchanged(after, torch.tensor([[2, 7], [19, 0]]))
    assert torch.equal(twice.train.index, fed.train.index)
    assert torch.equal(twice.train.start, fed.train.start)


def test_everybody_swaps_at_probability_one_and_nobody_at_zero() -> None:
    first, second = play(SwapAll(probability=1.0), federation(), 2)
    assert second.shifted.sum() == 20
    assert not any(r.shifted.any() for r in play(SwapAll(probability=0.0), federation(), 5))
    odd = play(SwapAll(probability=1.0), federation(21), 2)[1]
    assert odd.shifted.sum() == 20
    assert first.fed is not second.fed


@pytest.mark.parametrize("scenario", [SwapAll(probability=1, clients_per_round=4)])
def test_only_clients_sampled_before_swap(scenario: SwapAll) -> None:
    seen: set[int] = set()
    for rnd in play(scenario, federation(), 8):
        assert set(rnd.shifted.nonzero().squeeze(1).tolist()) <= seen
        assert int(rnd.shifted.sum()) == len(seen) // 2 * 2
        seen |= set(rnd.cohort.tolist())


@pytest.mark.full
def test_one_client_in_twenty_swaps_per_round() -> None:
    rounds = play(SwapAll(), federation(1000, train=1, test=1, classes=1), 201)
    swapped = sum(int(rnd.shifted.sum()) for rnd in rounds)
    # binomial: 500 pairs in 200 rounds, two clients each; five standard deviations
    assert abs(swapped - 0.05 * 1000 * 200) < 5 * 2 * (500 * 200 * 0.05 * 0.95) ** 0.5


@pytest.mark.full
def test_the_published_costs_of_migration_follow_from_these_swaps() -> None:
    """IFCA with migration, MNIST, 300 rounds: 13,725 clients swap in the mean, 5.43 times FedAvg's
    models.
    """
    scenario = SwapAll(clients_per_round=20, selection="round_robin_first")
    rounds = play(scenario, federation(1000, train=1, test=1, classes=1), 300)
    swapped = sum(int(rnd.shifted.sum()) for rnd in rounds)
    expected = 0.05 * (sum(20 * t for t in range(50)) + 250 * 1000)
    assert expected == 13_725
    assert abs(swapped - expected) < 5 * 2 * (expected / 2 * 0.95) ** 0.5
    clusters, cohort = 3, 20
    total = cohort * (clusters + 1) * 300 + clusters * expected
    assert total / (2 * cohort * 300) == pytest.approx(5.43, abs=0.005)


@pytest.mark.full
def test_a_single_pair_at_most_where_the_text_is_followed() -> None:
    rounds = play(SwapAll(probability=0.5, single_pair=True), federation(), 400)
    sizes = Counter(int(rnd.shifted.sum()) for rnd in rounds[1:])
    assert set(sizes) == {0, 2}
    assert abs(sizes[2] - 199.5) < 5 * (399 * 0.25) ** 0.5
    assert len({tuple(rnd.shifted.tolist()) for rnd in rounds}) > 100


def test_a_pair_gives_one_class_each_and_groups_stay() -> None:
    fed = federation()  # client 0 owns classes 0 and 1, client 3 classes 3 and 4
    after = exchanged_labels(fed, torch.tensor([[0, 3]]), torch.tensor([[1, 3]]))
    assert labels_of(after, 0) == [{0, 3}, {0, 3}]
    assert labels_of(after, 3) == [{1, 4}, {1, 4}]
    assert changed(fed, after) == [0, 3]
    assert torch.equal(after.group, fed.group)
    kept = [i for i in fed.train.of_client(0).tolist() if fed.pool.y[i] == 0]
    got = [i for i in fed.train.of_client(3).tolist() if fed.pool.y[i] == 3]
    assert after.train.of_client(0).tolist() == kept + got, "own examples keep their order"


def test_classes_are_drawn_from_those_the_other_lacks() -> None:
    fed = federation()
    rnd = play(SwapPart(), fed, 1)[0]
    pairs = torch.tensor([[0, 3], [0, 1], [0, 6], [2, 4]])
    drawn = [draw_labels(replace(rnd, t=t), pairs).tolist() for t in range(200)]
    by_pair = [{tuple(draw[i]) for draw in drawn} for i in range(4)]
    assert by_pair[0] == {(a, b) for a in (0, 1) for b in (3, 4)}, "disjoint classes: each of both"
    assert by_pair[1] == {(0, 2)}, "client 1 owns 1 and 2"
    assert by_pair[2] == {(-1, -1)}, "client 6 owns the same"
    assert by_pair[3] == {(a, b) for a in (2, 3) for b in (4, 5)}
    often = Counter(tuple(draw[0]) for draw in drawn)
    assert min(often.values()) > 25, "uniform: 50 each in the mean"


def test_a_class_missing_in_a_test_set_is_not_given() -> None:
    fed = federation(test=1)  # client 0 tests class 0 only, client 3 class 3 only
    rnd = play(SwapPart(), fed, 1)[0]
    drawn = {
        tuple(draw_labels(replace(rnd, t=t), torch.tensor([[0, 3]]))[0].tolist()) for t in range(50)
    }
    assert drawn == {(0, 3)}


def test_a_pair_with_nothing_to_give_is_passed_over_or_ends_the_round() -> None:
    fed = federation(40)
    rounds = {
        abort: play(SwapPart(probability=1.0, abort_round=abort), fed, 2)[1]
        for abort in (False, True)
    }
    skipped, aborted = (rounds[abort].shifted for abort in (False, True))
    assert (skipped | ~aborted).all(), "who swaps before the abort swaps without it too"
    assert 0 < int(skipped.sum()) < 40, "some pairs own the same classes"
    later = [play(SwapPart(probability=1.0, abort_round=True), fed, 2, seed=s)[1] for s in range(8)]
    passed = [play(SwapPart(probability=1.0), fed, 2, seed=s)[1] for s in range(8)]
    assert sum(int(r.shifted.sum()) for r in later) < sum(int(r.shifted.sum()) for r in passed)


def test_swaps_that_cannot_be_are_refused_at_once() -> None:
    with refused(ConfigError, r"scenario=swap_part .* a class the other lacks"):
        SwapPart().rounds(federation(classes=None, test=CLASSES), 0)
    with pytest.raises(ConfigError, match=r"partition.num_clients=1"):
        SwapAll().rounds(federation(1), 0)
    for probability in (-0.1, 1.5):
        for kind in (SwapAll, SwapPart):
            with pytest.raises(ConfigError, match=rf"^{kind.__name__}\.probability="):
                kind(probability=probability)


def test_classes_that_contain_each_other_cannot_be_swapped() -> None:
    fed = federation()
    assert is_swappable(fed)
    y = torch.zeros_like(fed.pool.y)
    # client 0 owns one class more
    y[fed.train.of_client(0)[0]] = y[fed.test.of_client(0)[0]] = CLASSES - 1
    nested = replace(fed, pool=replace(fed.pool, y=y))
    assert not is_swappable(nested)


@pytest.mark.full
@pytest.mark.parametrize(
    "scenario", [SwapAll(clients_per_round=20), SwapPart(clients_per_round=20)]
)
def test_a_long_run_is_replayed_in_seconds(scenario: SwapAll | SwapPart) -> None:
    fed = federation(1000, train=60, test=10)
    began = time.process_time()
    swapped = sum(int(r.shifted.sum()) for r in islice(scenario.rounds(fed, 0), 300))
    assert time.process_time() - began < 10  # under 2 s on one core; row by row it takes minutes
    assert swapped > 5000
    assert len(list(chain(*rows_of(fed.train)))) == len(fed.train.index)

"""CLoVE: the matching by hand, its limits FedAvg and Oracle, stability, costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    GROUPS,
    configured,
    federation,
    partition_of,
    rounds_of,
    simulate,
)

from fedclust.algorithms.parts.matching import matched
from fedclust.helpers.errors import ConfigError


def groups_of(loss: list[list[float]], *options: str) -> list[int]:
    """The clusters of participants with these losses."""
    algorithm: Any = configured("clove", f"num_clusters={len(loss[0])}", *options)
    found: torch.Tensor = algorithm._groups(torch.tensor(loss), rounds_of(federation(), 1)[0])
    return found.tolist()


def test_the_matching_parts_what_the_least_loss_joins() -> None:
    """Each alone would take the first model: 1.0 + 3.5 is less than 5.1 + 2.1."""
    loss = torch.tensor([[1.0, 5.1], [2.1, 3.5]])
    assert loss.argmin(1).tolist() == [0, 0]
    assert matched(loss).tolist() == [0, 1]
    assert groups_of([[1.0, 5.1], [2.1, 3.5]]) == [0, 1]
    assert groups_of([[1.0, 5.1], [2.1, 3.5], [1.1, 5.0], [2.2, 3.4]]) == [0, 1, 0, 1]


def test_copies_of_a_client_are_in_one_cluster() -> None:
    rows = [[2.31, 2.29, 2.30], [2.30, 2.33, 2.28], [2.27, 2.31, 2.34], [2.31, 2.31, 2.29]]
    found = groups_of(rows + rows)
    assert found[:4] == found[4:]
    # fewer different losses than clusters, and as many participants
    found = groups_of([rows[0], rows[1], rows[0]])
    assert found[0] == found[2] != found[1]
    for seed in range(10):
        draw = torch.randn(3, 5, generator=torch.Generator().manual_seed(seed))
        three = (2.3 + 0.01 * draw).tolist()
        found = groups_of([*three, *three[:2]])
        assert found[:2] == found[3:]
        assert len(set(found)) == 3


def test_square_roots_count_small_losses_more() -> None:
    """Losses 0, 1 and 3.61 are two groups by their distances: 1 < 2.61; their roots too, but 0,
    0.25 and 0.7 part between the first and the second: 0.5 > 0.34.
    """
    loss = [[0.0, 9.0], [0.25, 9.0], [0.7, 9.0]]
    plain, rooted = (
        groups_of(loss, f"algorithm.loss_transform={how}") for how in ("identity", "square_root")
    )
    assert plain[0] == plain[1] != plain[2]
    assert rooted[0] != rooted[1] == rooted[2]


def test_the_matching_sums_the_losses_of_all_clients() -> None:
    """Three and one: 3 * 1.0 + 1.2 < 3 * 1.1 + 1.0, but of means 1.0 + 1.2 > 1.1 + 1.0."""
    assert groups_of([[1.0, 1.1]] * 3 + [[1.0, 1.2]]) == [0, 0, 0, 1]
    # 4 + 1 < 6 + 0, but of roots 2 + 1 > 2.45 + 0
    assert groups_of([[4.0, 6.0], [0.0, 1.0]], "algorithm.loss_transform=square_root") == [0, 1]


def test_whoever_moves_starts_the_count_of_calm_rounds_again() -> None:
    rounds = rounds_of(federation(), 6)
    algorithm: Any = configured("clove", "algorithm.stable_rounds=3")
    states, _ = simulate(algorithm, rounds[:3])
    for moved, calm in ((0, 3), (1, 0)):
        before = replace(states[-1], calm=2, label=states[-1].label.roll(moved))
        after, _ = simulate(algorithm, rounds[3:4], before)
        assert after[0].calm == calm


def test_random_groups_are_those_of_ifca() -> None:
    rounds = rounds_of(federation(), 1, participation=0.6)
    (clove,), _ = simulate(configured("clove_random"), rounds)
    (ifca,), _ = simulate(configured("ifca_random"), rounds)
    assert torch.equal(clove.label, ifca.label)
    assert torch.equal(clove.models, ifca.models)


def test_fewer_participants_than_clusters_take_the_least_loss() -> None:
    assert groups_of([[1.0, 2.0, 3.0], [1.5, 2.0, 3.0]]) == [0, 0]


@pytest.mark.parametrize("seed", [0, 1])  # from some starts it ends in other groups
def test_planted_groups_are_found_and_train_as_the_oracle(seed: int) -> None:
    fed = federation(seed)
    rounds = rounds_of(fed, 6, seed=seed)
    states, _ = simulate(configured("clove"), rounds)
    assert partition_of(states[2].label) == partition_of(fed.group)
    assert torch.equal(states[2].label, states[-1].label)
    oracle: Any = configured("oracle", "common.aggregation=by_samples")
    first = torch.stack([states[2].label[fed.group == g][0] for g in range(GROUPS)])
    start = oracle.State(models=states[2].models[first])
    same, _ = simulate(oracle, rounds[3:], start)
    torch.testing.assert_close(states[-1].models[first], same[-1].models)


def test_a_random_first_round_leaves_no_model_out() -> None:
    rounds = rounds_of(federation(), 2, participation=0.25)
    states, reports = simulate(configured("clove", "algorithm.first_round=random"), rounds)
    assert sorted(states[0].label[rounds[0].cohort].tolist()) == [0, 1, 2]
    assert (reports[1].models_down, reports[1].scalars_up) == (3, 0)
    assert (reports[2].models_down, reports[2].scalars_up) == (3 * GROUPS, 3 * GROUPS)


def test_losses_are_asked_for_until_nobody_moves() -> None:
    fed, late = federation(), (2, 9)
    algorithm = configured("clove", "algorithm.stable_rounds=2")
    states, reports = simulate(algorithm, rounds_of(fed, 9, absent=late, until=7))
    calm = [state.calm for state in states]
    settled = calm.index(2) + 1  # the first round in which nobody is asked
    assert settled < 7
    for t, report in enumerate(reports[1:]):
        present = CLIENTS - 2 if t < 7 else CLIENTS
        models, numbers = present, 0
        if t < settled:
            models, numbers = GROUPS * present, GROUPS * present
        elif t == 7:  # the two that arrive choose
            models, numbers = present + 2 * GROUPS, 2
        assert (report.models_down, report.models_up) == (models, present)
        assert report.scalars_up == numbers
    assert partition_of(states[-1].label) == partition_of(fed.group)


@pytest.mark.full
def test_the_silhouette_finds_fewer_groups_than_models() -> None:
    options = ("algorithm.method.num_clusters=auto", "num_clusters=5")
    low, high = [2.0, 2.1, 3.0, 3.1, 3.2], [3.0, 3.1, 2.0, 2.1, 3.2]
    rows = [[x + shift for x in row] for shift in (0, 0.01, 0.02) for row in (low, high)]
    assert groups_of(rows, *options[:1]) == [0, 2] * 3
    states, _ = simulate(configured("clove", *options), rounds_of(federation(), 4))
    resting = sorted(set(range(5)) - set(states[-1].label.tolist()))
    assert len(resting) == 3
    assert torch.equal(states[-1].models[resting], states[-2].models[resting])


def test_the_silhouette_tries_no_more_groups_than_models_or_participants() -> None:
    """Eight pairs are eight groups; with five models they are at most five."""
    rows = [[10.0 * g + shift, (7.0 * g) % 30, 1, 1, 1] for g in range(8) for shift in (0, 0.01)]
    auto = "algorithm.method.num_clusters=auto"
    found = groups_of(rows, auto)
    assert len(set(found)) <= 5
    assert found[::2] == found[1::2]
    assert set(groups_of([row[:1] for row in rows], auto)) == {0}
    # four participants of two groups, and a bound above them
    few = groups_of([[1.0, 5.1, 9, 9, 9], [1.1, 5.0, 9, 9, 9], [2.1, 3.5, 9, 9, 9]], auto)
    assert few[0] == few[1] != few[2]


def test_more_groups_than_models_are_refused() -> None:
    few = configured("clove", "num_clusters=2", "algorithm.method.num_clusters=3")
    with pytest.raises(ConfigError, match="num_clusters=2 is not allowed: at least the 3 groups"):
        simulate(few, rounds_of(federation(), 1))

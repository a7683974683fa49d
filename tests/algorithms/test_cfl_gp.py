"""CFL-GP: the reduction in closed form, what is kept of gradients, planted groups, costs."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    GROUPS,
    configured,
    engine_for,
    federation,
    partition_of,
    rounds_of,
    simulate,
)

from fedclust.algorithms.cfl_gp import reduced
from fedclust.algorithms.parts.matching import matched, renumbered
from fedclust.core.front import Gradient
from fedclust.helpers.errors import ConfigError, DivergedError

FULL = "solver.batch_size=null"


def random_rows(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 4), (3, 5)])
def test_matching_is_the_best_of_all(shape: tuple[int, int]) -> None:
    for seed in range(5):
        cost = random_rows(*shape, seed).double()
        ways = permutations(range(shape[1]), shape[0])
        least = min(sum(float(cost[g, m]) for g, m in enumerate(way)) for way in ways)
        found = matched(cost)
        assert len(set(found.tolist())) == shape[0]
        assert float(cost.gather(1, found.unsqueeze(1)).sum()) == pytest.approx(least)


def test_more_groups_than_models_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="num_clusters=2 is not allowed: at least the 3 groups"):
        matched(torch.zeros(3, 2))


def test_groups_keep_the_numbers_that_most_of_their_clients_had() -> None:
    before = torch.tensor([2, 2, 2, 0, 0, 1, -1])
    same = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    assert renumbered(same, before, 3).tolist() == [2, 2, 2, 0, 0, 1, 1]
    moved = torch.tensor([0, 0, 1, 1, 1, 1, 0])
    assert renumbered(moved, before, 3).tolist() == [2, 2, 0, 0, 0, 0, 2]


def test_the_reduction_is_the_best_approximation_of_its_rank() -> None:
    profile = random_rows(7, 30)
    u, s, v = torch.linalg.svd(profile.double(), full_matrices=False)
    best = u[:, :3] @ s[:3].square().diag() @ u[:, :3].T
    place = reduced(profile, 3)
    torch.testing.assert_close(place @ place.T, best)
    torch.testing.assert_close(place.abs().flip(1), (profile.double() @ v[:3].T).abs())
    assert reduced(profile, 12).shape == (7, 7)


def test_gradients_that_are_not_finite_end_the_seed() -> None:
    with pytest.raises(DivergedError, match=r"solver\.lr"):
        reduced(torch.tensor([[1.0], [float("nan")]]), 1)


@pytest.mark.parametrize("gradients", ["all", "first", "own"])
def test_with_one_step_models_follow_the_mean_gradient(gradients: str) -> None:
    fed, rounds = federation(), rounds_of(federation(), 1)
    options = (FULL, "solver.epochs=1", f"algorithm.gradients={gradients}")
    algorithm: Any = configured("cfl_gp", *options)
    clients = engine_for(fed)
    start = algorithm.init(clients.at(rounds[0]), rounds[0])[0]
    (state,), _ = simulate(algorithm, rounds)
    gradient = clients.at(rounds[0]).grad(Gradient(start.models, state.label, rounds[0].cohort))
    for k in range(GROUPS):
        step = 0.5 * gradient[state.label == k].mean(0)
        torch.testing.assert_close(state.models[k], start.models[k] - step)


@pytest.mark.parametrize("gradients", ["all", "first"])
def test_planted_groups_are_found_in_the_first_round_and_train_as_the_oracle(
    gradients: str,
) -> None:
    fed = federation()
    rounds = rounds_of(fed, 3)
    options = (FULL, "algorithm.clusterings=1", f"algorithm.gradients={gradients}")
    states, reports = simulate(configured("cfl_gp", *options), rounds)
    assert partition_of(states[0].label) == partition_of(fed.group)
    assert reports[1].notes["num_clusters_found"] == GROUPS
    oracle, _ = simulate(configured("oracle", FULL), rounds)
    assert torch.equal(states[-1].models[states[-1].label], oracle[-1].models[fed.group])


def test_labels_move_at_clusterings_only_and_keep_their_numbers() -> None:
    fed = federation()
    options = ("algorithm.period=2", "algorithm.clusterings=2")
    states, _ = simulate(configured("cfl_gp", *options), rounds_of(fed, 6))
    assert states[-1].sent.tolist() == [2] * CLIENTS
    assert torch.equal(states[0].label, states[1].label)
    assert all(torch.equal(states[2].label, after.label) for after in states[3:])
    if partition_of(states[0].label) == partition_of(states[2].label):
        assert torch.equal(states[0].label, states[2].label)
    assert torch.equal(states[2].profile, states[-1].profile)


def test_accumulation_in_closed_form() -> None:
    fed = federation()
    rounds = rounds_of(fed, 4)
    clients = engine_for(fed)
    for how, beta in (("mean", [1, 1 / 2, 1 / 3]), ("released", [1, 1, 1 / 2])):
        options = (FULL, "num_clusters=3", "algorithm.period=1", f"algorithm.accumulation={how}")
        algorithm: Any = configured("cfl_gp", *options, "algorithm.gradients=first")
        states, _ = simulate(algorithm, rounds)
        start = algorithm.init(clients.at(rounds[0]), rounds[0])[0]
        kept = torch.zeros_like(states[0].profile)
        before = [start.models, states[0].models, states[1].models]
        for rnd, models, share in zip(rounds[:3], before, beta, strict=True):
            first = torch.zeros(CLIENTS, dtype=torch.int64)
            gradient = clients.at(rnd).grad(Gradient(models, first, rnd.cohort))
            kept = (1 - share) * kept + share * gradient
        torch.testing.assert_close(states[2].profile, kept)


def test_own_gradients_are_those_at_the_clients_models() -> None:
    """In batches of the solver; the second mean is of one at the first model and one at the own."""
    fed = federation()
    rounds = rounds_of(fed, 2)
    algorithm: Any = configured("cfl_gp", "algorithm.gradients=own", "algorithm.period=1")
    clients, ids = engine_for(fed), torch.arange(CLIENTS)
    states, _ = simulate(algorithm, rounds)
    start = algorithm.init(clients.at(rounds[0]), rounds[0])[0].models
    first = clients.at(rounds[0]).grad(Gradient(start, 0 * ids, ids, 12))
    torch.testing.assert_close(states[0].profile, first)
    assert len(states[0].label.unique()) == GROUPS
    second = clients.at(rounds[1]).grad(Gradient(states[0].models, states[0].label, ids, 12))
    torch.testing.assert_close(states[1].profile, (first + second) / 2)


def test_only_the_cohort_sends_gradients() -> None:
    rounds = rounds_of(federation(), 1, participation=0.5)
    (state,), _ = simulate(configured("cfl_gp", "algorithm.gradients=first"), rounds)
    sent = torch.zeros(CLIENTS, dtype=torch.int64).index_fill(0, rounds[0].cohort, 1)
    assert torch.equal(state.sent, sent)
    assert torch.equal((state.profile != 0).any(1), sent > 0)


@pytest.mark.parametrize(("given", "kept"), [("null", GROUPS), ("2", 2)])
def test_so_many_components_are_kept(
    monkeypatch: pytest.MonkeyPatch, given: str, kept: int
) -> None:
    asked = []

    def noted(profile: torch.Tensor, number: int) -> torch.Tensor:
        asked.append(number)
        return reduced(profile, number)

    monkeypatch.setattr("fedclust.algorithms.cfl_gp.reduced", noted)
    simulate(configured("cfl_gp", f"algorithm.num_components={given}"), rounds_of(federation(), 1))
    assert asked == [kept]


def test_few_clients_wait_and_later_ones_join_the_cheapest() -> None:
    fed = federation()
    rounds = rounds_of(fed, 7, participation=0.1)  # one client in a round, three clusters
    states, reports = simulate(configured("cfl_gp"), rounds)
    assert len(rounds[0].cohort) == 1
    assert "num_clusters_found" not in reports[1].notes
    assert states[0].label[rounds[0].cohort].tolist() == [0]
    late = (2, 9)
    options = (FULL, "algorithm.clusterings=1")
    states, reports = simulate(
        configured("cfl_gp", *options), rounds_of(fed, 4, absent=late, until=2)
    )
    assert partition_of(states[2].label) == partition_of(fed.group)
    assert (reports[3].models_down, reports[3].scalars_up) == (CLIENTS + 2 * GROUPS, 2)
    assert (reports[4].models_down, reports[4].scalars_up) == (CLIENTS, 0)


@pytest.mark.parametrize(
    ("gradients", "down", "up"),
    [("all", GROUPS, GROUPS + 1), ("first", 2, 2), ("own", 2, 2)],
)
def test_costs_of_a_clustering(gradients: str, down: int, up: int) -> None:
    fed = federation()
    algorithm = configured("cfl_gp", f"algorithm.gradients={gradients}")
    _, reports = simulate(algorithm, rounds_of(fed, 2))
    assert (reports[0].models_down, reports[0].models_up) == (0, 0)
    assert (reports[1].models_down, reports[1].models_up) == (down * CLIENTS, up * CLIENTS)
    assert (reports[2].models_down, reports[2].models_up) == (CLIENTS, CLIENTS)


def test_the_silhouette_tries_no_more_groups_than_models() -> None:
    fed = federation()
    few = ("algorithm.method.num_clusters=auto", "num_clusters=2")
    _, reports = simulate(configured("cfl_gp", FULL, *few), rounds_of(fed, 1))
    assert reports[1].notes["num_clusters_found"] <= 2

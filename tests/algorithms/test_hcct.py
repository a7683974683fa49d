"""HCCT: mergers against the sum they raise, its two limits, and who has never taken part."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.fedavg import FedAvg
from fedclust.algorithms.hcct import HCCT, merged


def utility(update: np.ndarray, size: np.ndarray, alpha: float, groups: list[list[int]]) -> float:
    """The sum of -alpha / n_c + cos(g_c, g_i), written out."""
    total = 0.0
    for group in groups:
        mean = (size[group, None] * update[group]).sum(0) / size[group].sum()
        for i in group:
            cos = mean @ update[i] / np.linalg.norm(mean) / np.linalg.norm(update[i])
            total += -alpha / size[group].sum() + cos
    return total


def step_by_step(update: np.ndarray, size: np.ndarray, alpha: float) -> list[list[int]]:
    """Mergers by the sum as it is written, the best first."""
    groups = [[i] for i in range(len(size))]
    while len(groups) > 1:
        now, best, chosen = utility(update, size, alpha, groups), 1e-12, None
        for a, b in combinations(range(len(groups)), 2):
            rest = [one for place, one in enumerate(groups) if place not in (a, b)]
            gain = utility(update, size, alpha, [*rest, groups[a] + groups[b]]) - now
            if gain > best:
                best, chosen = gain, (a, b)
        if chosen is None:
            break
        a, b = chosen
        groups[a] += groups.pop(b)
    return sorted(map(sorted, groups))


@pytest.mark.thinned
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("alpha", [5.0, 20.0])
def test_mergers_are_those_that_raise_the_written_sum(seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=(3, 6))
    update = middle[rng.integers(3, size=9)] + 0.7 * rng.normal(size=(9, 6))
    size = rng.integers(5, 60, size=9).astype(np.float64)
    label = merged(update @ update.T, size, alpha)
    found = sorted(np.flatnonzero(label == one).tolist() for one in range(label.max() + 1))
    assert found == step_by_step(update, size, alpha)
    assert label[0] == 0  # numbered in the order of their first clients
    assert 1 < len(found) < 9


def test_equal_updates_share_a_group_and_others_do_not() -> None:
    update = np.array([[1.0, 0], [0, 2], [1, 0], [-1, 0], [0, 1]])
    size = np.full(5, 10.0)
    assert merged(update @ update.T, size, 1.0).tolist() == [0, 1, 0, 2, 1]
    # two of cosine c with their mean gain alpha / n by size and lose 2 (1 - c)
    turn = np.radians(20)  # c = cos(10 degrees)
    pair = np.array([[1.0, 0], [np.cos(turn), np.sin(turn)]])
    least = 10 * 2 * (1 - np.cos(turn / 2))
    for alpha, groups in ((0.99 * least, [0, 1]), (1.01 * least, [0, 0])):
        assert merged(pair @ pair.T, size[:2], alpha).tolist() == groups
    # with nothing gained by size everybody stays alone, with everything all are one
    apart = update + 0.01 * np.random.default_rng(0).normal(size=update.shape)
    assert merged(apart @ apart.T, size, 0).tolist() == [0, 1, 2, 3, 4]
    assert merged(apart @ apart.T, size, 1e6).tolist() == [0] * 5
    assert merged(np.zeros((3, 3)), size[:3], 1.0).tolist() == [0, 0, 0]  # size decides


def test_groups_follow_the_last_updates_and_average_what_their_members_used() -> None:
    fed = toy_federation([[0]] * 4)
    pulls = torch.tensor([[1.0, 0], [0, 1], [1, 0], [0, 1]])
    clients = ToyEngine(pull=pulls, start=torch.zeros(1, 2))
    method = HCCT(solver=SOLVER, alpha=0.1)
    state, _ = method.init(clients, toy_round(fed, range(4)))
    state, _ = method.round(state, clients, toy_round(fed, range(4)))
    assert state.label.tolist() == [0] * 4  # the first round is FedAvg
    assert state.models.tolist() == [[0.5, 0.5]]
    state, _ = method.round(state, clients, toy_round(fed, range(4), 1))
    assert state.label.tolist() == [0, 1, 0, 1]
    assert state.models.tolist() == [[1.5, 0.5], [0.5, 1.5]]


def test_who_never_took_part_uses_the_mean_of_all() -> None:
    fed = toy_federation([[0]] * 4)
    pulls = torch.tensor([[1.0, 0], [0, 1], [1, 0], [0, 1]])
    clients = ToyEngine(pull=pulls, start=torch.zeros(1, 2))
    method = HCCT(solver=SOLVER, alpha=0.1)
    state, _ = method.init(clients, toy_round(fed, [0, 1]))
    state, _ = method.round(state, clients, toy_round(fed, [0, 1]))
    state, _ = method.round(state, clients, toy_round(fed, [0, 1], 1))
    assert state.label.tolist() == [0, 1, 2, 2]
    assert state.models.tolist() == [[1.5, 0.5], [0.5, 1.5], [0.5, 0.5]]
    state, _ = method.round(state, clients, toy_round(fed, [2], 2))
    assert state.models[state.label[2]].tolist() == [2.0, 1.0]  # from the mean of both groups
    state, _ = method.round(state, clients, toy_round(fed, [3], 3))
    assert state.label.tolist() == [0, 1, 0, 2]
    served = method.serve(state, clients, toy_round(fed, [3], 3))
    assert served.label.tolist() == [0, 1, 0, 2]


def test_with_all_the_worth_in_size_it_is_fedavg() -> None:
    fed = toy_federation([[0], [0, 0], [0, 0, 0]])
    pulls = torch.tensor([[1.0, 0], [0, 1], [3, 2]])
    clients = ToyEngine(pull=pulls, start=torch.zeros(1, 2))
    states = []
    for method in (HCCT(solver=SOLVER, alpha=1e9), FedAvg(solver=SOLVER)):
        state, _ = method.init(clients, toy_round(fed, range(3)))
        for t in range(3):
            state, _ = method.round(state, clients, toy_round(fed, range(3), t))
        states.append(state)
    assert torch.allclose(states[0].models, states[1].model)

"""OCFL: the temperature in closed form, when the clustering comes, its limit FedAvg."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.ocfl import OCFL, temperature
from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.helpers.ops import cosine

AXES = torch.eye(3)


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (AXES[[0, 0, 0]], 0.0),
        (AXES, 0.5),
        (torch.stack([AXES[0], -AXES[0]]), 1.0),
        (AXES[[0, 0, 0, 1, 1, 1]], 0.3873),  # 18 of 30 pairs are orthogonal
    ],
)
def test_temperature_in_closed_form(updates: torch.Tensor, expected: float) -> None:
    assert temperature(1 - cosine(updates, updates)) == pytest.approx(expected, abs=1e-4)


def toy(*pulls: list[float]) -> Any:
    """Four clients whose updates in a round are given, and the method that makes two clusters."""
    start = torch.zeros(1, 2)
    return [ToyEngine(pull=torch.tensor(pull).view(-1, 2), start=start) for pull in pulls]


def test_the_clustering_comes_when_the_temperature_first_rises() -> None:
    """Updates are orthogonal, then at 45 degrees, then orthogonal again; the rest has a cluster."""
    fed = toy_federation([[0]] * 4)
    method = OCFL(solver=SOLVER, method=Agglomerative(num_clusters=2), aggregation="uniform")
    apart, nearer = [1.0, 0, 1, 0, 0, 1, 0, 1], [1.0, 0, 1, 0, 1, 1, 1, 1]
    state, _ = method.init(
        ToyEngine(pull=torch.zeros(4, 2), start=torch.zeros(1, 2)), toy_round(fed, range(4))
    )
    for t, clients in enumerate(toy(apart, nearer)):
        state, cost = method.round(state, clients, toy_round(fed, range(4), t))
        assert not state.clustered
        assert state.label.tolist() == [0] * 4
        assert "num_clusters_found" not in cost.notes
    assert state.models.tolist() == [[1.5, 1.0]]
    (clients,) = toy(apart)
    state, cost = method.round(state, clients, toy_round(fed, range(4), 2))
    assert state.clustered
    assert state.label.tolist() == [0, 0, 1, 1]
    assert state.models.tolist() == [[2.5, 1.0], [1.5, 2.0]]
    assert cost.notes["num_clusters_found"] == 2
    # it is done once
    (warmer,) = toy([1.0, 0, -1, 0, 0, 1, 0, -1])
    state, cost = method.round(state, warmer, toy_round(fed, range(4), 3))
    assert state.label.tolist() == [0, 0, 1, 1]
    assert "num_clusters_found" not in cost.notes


def test_who_was_not_there_joins_the_cluster_of_least_loss() -> None:
    fed = toy_federation([[0]] * 4)
    method = OCFL(solver=SOLVER, method=Agglomerative(num_clusters=2))
    target = torch.tensor([[9.0, 0], [9, 0], [0, 9], [0, 9]])
    clients = ToyEngine(
        pull=torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]]),
        start=torch.zeros(1, 2),
        target=target,
    )
    rnd = toy_round(fed, [0, 2])
    state, _ = method.init(clients, rnd)
    state = replace(state, temperature=0.1)
    state, _ = method.round(state, clients, rnd)
    assert state.label.tolist() == [0, -1, 1, -1]
    assert method.serve(state, clients, rnd).label.tolist() == [0, 0, 1, 1]
    state, cost = method.round(state, clients, toy_round(fed, [0, 1], 1))
    assert state.label.tolist() == [0, 0, 1, 1]
    assert (cost.models_down, cost.scalars_up) == (2 + 2 * 2, 2)


def test_one_participant_decides_nothing() -> None:
    fed = toy_federation([[0]] * 2)
    method = OCFL(solver=SOLVER, method=Agglomerative(num_clusters=1))
    clients = ToyEngine(pull=torch.ones(2, 2), start=torch.zeros(1, 2))
    state, _ = method.init(clients, toy_round(fed, [0]))
    state = replace(state, temperature=0.2)
    state, _ = method.round(state, clients, toy_round(fed, [1]))
    assert (state.temperature, state.clustered) == (0.2, False)

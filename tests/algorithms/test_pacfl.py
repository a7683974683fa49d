"""PACFL: principal angles in closed form, planted subspaces, newcomers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    FEATURES,
    configured,
    engine_for,
    federation,
    partition_of,
    rounds_of,
    simulate,
)
from torch import Tensor
from toy_engine import SOLVER, ToyEngine, toy_federation, toy_round

from fedclust.algorithms.pacfl import PACFL, principal_angles, principal_vectors, signatures
from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.core.types import Federation


def planted_subspaces(noise: float = 0.05) -> Federation:
    """The planted federation, but inputs of group g lie near the plane of features 2 g, 2 g + 1."""
    fed = federation()
    x = fed.pool.x.clone()
    for client in range(CLIENTS):
        group = int(fed.group[client])
        outside = [f for f in range(FEATURES) if f // 2 != group]
        rows = torch.cat([fed.train.of_client(client), fed.test.of_client(client)])
        x[rows.unsqueeze(1), torch.tensor(outside)] *= noise
    return replace(fed, pool=replace(fed.pool, x=x))


def basis(*columns: Tensor) -> Tensor:
    return torch.stack(columns, 1)


def test_angles_in_closed_form() -> None:
    e = torch.eye(4)
    tilt = math.cos(0.5) * e[1] + math.sin(0.5) * e[2]
    a, b = basis(e[0], e[1]), basis(e[0], tilt)
    expected = torch.tensor([0.0, math.degrees(0.5)])
    torch.testing.assert_close(
        principal_angles(a[None], b[None])[0, 0], expected, atol=0.05, rtol=1e-4
    )
    across = principal_angles(a[None], basis(e[2], e[3])[None])[0, 0]
    torch.testing.assert_close(across, torch.tensor([90.0, 90.0]))


@pytest.mark.parametrize(("angle", "expected"), [("smallest", 10.0), ("sum", 50.0)])
def test_distance_is_the_smallest_angle_or_the_sum(angle: Any, expected: float) -> None:
    """Two planes at principal angles of 10 and 40 degrees."""
    e, small, large = torch.eye(4), math.radians(10), math.radians(40)
    a = basis(e[0], e[1])[None]
    b = basis(
        math.cos(large) * e[0] + math.sin(large) * e[2],
        math.cos(small) * e[1] + math.sin(small) * e[3],
    )[None]
    method = PACFL(solver=SOLVER, method=Agglomerative(num_clusters=1), angle=angle)
    assert float(method.distance(a, b)) == pytest.approx(expected, abs=0.05)


def test_a_newcomer_joins_by_the_mean_angle_to_the_members() -> None:
    """Three members at 20 degrees are nearer than one at 50, though their sum is larger."""
    degrees = [20.0, 20.0, 20.0, 50.0, 0.0]
    radians = torch.tensor(degrees).deg2rad()
    place = torch.stack([radians.cos(), radians.sin()], 1)  # [5, 2]
    fed = toy_federation([[0]] * 5)
    fed = replace(fed, pool=replace(fed.pool, x=place))
    rnd = toy_round(fed, [4])
    method = PACFL(solver=SOLVER, method=Agglomerative(num_clusters=2), num_vectors=1)
    signature = place.unsqueeze(2).clone()  # [5, 2, 1]
    signature[4] = 0
    label = torch.tensor([1, 1, 1, 0, -1])
    state = method.State(models=torch.zeros(2, 1), label=label, signature=signature)
    clients = ToyEngine(pull=torch.zeros(5, 1), start=torch.zeros(1, 1))
    after, cost = method.round(state, clients.at(rnd), rnd)
    assert after.label.tolist() == [1, 1, 1, 0, 1]
    assert cost.notes["signature_bytes"] == 4 * 2
    assert cost.floats_up == 2


def test_signs_order_and_rotation_of_a_basis_do_not_matter() -> None:
    draw = torch.Generator().manual_seed(0)
    u = torch.linalg.qr(torch.randn(3, 8, 3, generator=draw)).Q
    turn = torch.linalg.qr(torch.randn(3, 3, generator=draw)).Q
    torch.testing.assert_close(
        principal_angles(u @ turn, u), principal_angles(u, u), atol=0.1, rtol=1e-3
    )
    torch.testing.assert_close(principal_angles(-u, u), principal_angles(u, u), atol=0.1, rtol=1e-3)
    assert float(principal_angles(u @ turn, u).diagonal().max()) < 0.1


@pytest.mark.parametrize("count", [4, 30])
def test_vectors_are_the_leading_singular_ones(count: int) -> None:
    x = torch.randn(count, 9, generator=torch.Generator().manual_seed(1))
    found = principal_vectors(x, 3)
    expected = torch.linalg.svd(x.T).U[:, :3]
    torch.testing.assert_close((found * expected).sum(0).abs(), torch.ones(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.T @ found, torch.eye(3), atol=1e-5, rtol=0)


def test_vectors_past_the_rank_are_zero() -> None:
    x = torch.outer(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 0.0]))
    found = principal_vectors(x, 3)
    torch.testing.assert_close(found[:, 0].abs(), torch.tensor([0.6, 0.8, 0.0]))
    assert (found[:, 1:] == 0).all()
    assert (principal_vectors(torch.zeros(2, 3), 2) == 0).all()


def test_columns_past_the_rank_are_no_directions() -> None:
    """Two identical clients with two examples are at no angle, though they send three columns."""
    x = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]])
    two = principal_vectors(x, 3)
    three = principal_vectors(torch.eye(4)[[0, 2, 3]], 3)
    none = torch.zeros(4, 3)
    angles = principal_angles(two[None], torch.stack([two, three, none]))[0]
    # the planes share one direction and are at a right angle in the other; the mean is the third
    wanted = torch.tensor([[0.0, 0, 0], [0, 90, 45], [90, 90, 90]])
    torch.testing.assert_close(angles, wanted, atol=0.05, rtol=0)


@pytest.mark.parametrize("angle", ["smallest", "sum"])
def test_planted_subspaces_are_found_before_the_first_round(angle: str) -> None:
    fed = planted_subspaces()
    algorithm = configured("pacfl", "algorithm.num_vectors=2", f"algorithm.angle={angle}")
    states, reports = simulate(algorithm, rounds_of(fed, 2))
    assert partition_of(states[0].label) == partition_of(fed.group)
    distance = reports[0].arrays["distance"]
    together = fed.group.unsqueeze(1) == fed.group
    assert float(distance[together].max()) < float(distance[~together].min())
    assert reports[0].notes["num_clusters_found"] == 3
    assert reports[0].notes["signature_bytes"] == 4 * CLIENTS * FEATURES * 2
    assert (reports[0].models_down, reports[0].models_up) == (0, 0)
    assert reports[0].floats_up == CLIENTS * FEATURES * 2
    assert (reports[1].models_down, reports[1].models_up) == (CLIENTS, CLIENTS)


def test_groups_train_as_the_oracle() -> None:
    fed = planted_subspaces()
    rounds = rounds_of(fed, 3, participation=0.5)
    three, _ = simulate(configured("pacfl", "algorithm.num_vectors=2"), rounds)
    oracle, _ = simulate(configured("oracle"), rounds)
    assert torch.equal(three[-1].models[three[-1].label], oracle[-1].models[fed.group])


def test_newcomers_join_the_cluster_of_their_subspace() -> None:
    fed, late = planted_subspaces(), (2, 9)
    algorithm: Any = configured("pacfl", "algorithm.num_vectors=2")
    rounds = rounds_of(fed, 4, absent=late, until=2)
    states, reports = simulate(algorithm, rounds)
    assert (states[1].label[list(late)] == -1).all()
    assert partition_of(states[2].label) == partition_of(fed.group)
    rows = torch.tensor(late)
    sent = signatures(rows, 2, rounds[2])
    assert torch.equal(states[2].signature[rows], sent), "the next newcomers are compared with them"
    assert not states[1].signature[rows].any()
    assert reports[3].notes["signature_bytes"] == 4 * 2 * FEATURES * 2
    assert "signature_bytes" not in reports[4].notes
    served = algorithm.serve(states[2], engine_for(fed).at(rounds[2]), rounds[2])
    assert torch.equal(served.label, states[2].label)

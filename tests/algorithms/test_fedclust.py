"""FedClust: what is compared, its limits FedAvg and Local, newcomers, costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fronts import Front
from planted import (
    CLASSES,
    CLIENTS,
    FEATURES,
    STEPS,
    configured,
    federation,
    partition_of,
    rounds_of,
    simulate,
)

from fedclust.algorithms.parts.clustering import nearest_members
from fedclust.core.front import Train
from fedclust.core.types import Split
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.ops import distances
from fedclust.models.mlp import mlp

HIDDEN = 8
BODY, HEAD = (FEATURES + 1) * HIDDEN, (HIDDEN + 1) * CLASSES


def threshold(at: float) -> str:
    return f"algorithm.method.threshold={at}"


@pytest.mark.parametrize(("layers", "first"), [(1, BODY), (2, 0)])
def test_distances_are_of_the_last_layers_only(layers: int, first: int) -> None:
    fed = federation()
    rnd = rounds_of(fed, 1)[0]
    clients = Front(LoopEngine(mlp((FEATURES,), CLASSES, hidden=[HIDDEN]), fed.pool)).at(rnd)
    algorithm: Any = configured("fedclust", f"algorithm.layers={layers}")
    state, cost = algorithm.init(clients, rnd)
    zero = torch.zeros(CLIENTS, dtype=torch.int64)
    params = clients.train(
        Train(state.start, zero, rnd.cohort, algorithm.solver, purpose="before")
    ).params
    last = params[:, first:]
    assert torch.equal(state.uploaded.all(), last)
    torch.testing.assert_close(cost.arrays["distance"], torch.cdist(last, last), atol=1e-5, rtol=0)
    assert cost.floats_up == CLIENTS * (BODY + HEAD - first)
    assert (cost.models_down, cost.models_up) == (CLIENTS, 0)
    assert cost.gradient_steps == CLIENTS * STEPS


def test_below_the_least_distance_everybody_is_alone() -> None:
    rounds = rounds_of(federation(), 3)
    states, _ = simulate(configured("fedclust", threshold(1e-6)), rounds)
    local, _ = simulate(configured("local"), rounds)
    assert all(torch.equal(a.models, b.models.all()) for a, b in zip(states, local, strict=True))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_planted_groups_are_found_and_train_as_the_oracle(seed: int) -> None:
    fed = federation(seed)
    rounds = rounds_of(fed, 3, seed=seed, participation=0.5)
    states, _ = simulate(configured("fedclust"), rounds)
    assert partition_of(states[0].label) == partition_of(fed.group)
    oracle, _ = simulate(configured("oracle"), rounds)
    assert torch.equal(states[-1].models[states[-1].label], oracle[-1].models[fed.group])


def test_the_nearest_cluster_is_that_of_the_least_mean_distance() -> None:
    distance = torch.tensor([[1.0, 5.0, 2.0], [9.0, 0.0, 5.0]])
    assert nearest_members(distance, torch.tensor([0, 0, 1])).tolist() == [1, 0]


def test_newcomers_train_once_and_join_their_group() -> None:
    fed, late = federation(), (2, 9)
    states, reports = simulate(configured("fedclust"), rounds_of(fed, 4, absent=late, until=2))
    assert states[1].label[list(late)].tolist() == [-1, -1]
    assert bool((states[1].uploaded.all()[list(late)] == 0).all())
    assert partition_of(states[2].label) == partition_of(fed.group)
    size = states[0].uploaded.all().shape[1]
    assert (reports[3].models_down, reports[3].floats_up) == (CLIENTS + 2, 2 * size)
    assert reports[3].gradient_steps == (CLIENTS + 2) * STEPS
    assert (reports[4].models_down, reports[4].floats_up) == (CLIENTS, 0)
    shape = distances(states[2].uploaded.all(), states[2].uploaded.all())
    together = fed.group.unsqueeze(1) == fed.group
    assert float(shape[together].max()) < float(shape[~together].min())


def test_newcomers_train_at_the_rate_of_the_first() -> None:
    """Client 2 has the data of client 5 and arrives when the rate has fallen to a hundredth."""
    fed, decay = federation(), "solver.decay=0.1"
    full = ("solver.batch_size=null", "solver.epochs=1")
    rows = [fed.train.of_client(5 if i == 2 else i) for i in range(CLIENTS)]
    fed = replace(fed, train=Split.of(rows))
    early, complete = rounds_of(fed, 2, absent=(2,)), rounds_of(fed, 3)
    states, _ = simulate(configured("fedclust", decay, *full), [*early, complete[2]])
    sent = states[-1].uploaded.all()
    torch.testing.assert_close(sent[2], sent[5])

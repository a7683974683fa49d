"""FLUX: its limit FedAvg, planted groups, clients that come late or without labels, costs."""

from __future__ import annotations

from dataclasses import make_dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from planted import (
    CLASSES,
    CLIENTS,
    configured,
    engine_for,
    federation,
    partition_of,
    rounds_of,
    simulate,
)

from fedclust.algorithms.flux import Flux
from fedclust.core.types import Federation

SIZE = 2 * CLASSES * (1 + CLASSES)  # numbers of a descriptor
EARLY = ("algorithm.warmup=1",)
PLANTED = (*EARLY, "cluster_method@algorithm.method=kmeans")


def apart(*, equal: bool = True) -> Federation:
    """The planted federation, but group g sees inputs about 6 g, 1 + 2 g times as wide."""
    fed = federation(equal=equal)
    x = fed.pool.x.clone()
    for client in range(CLIENTS):
        rows = torch.cat([fed.train.of_client(client), fed.test.of_client(client)])
        group = int(fed.group[client])
        x[rows] = (1 + 2 * group) * x[rows] + 6.0 * group
    return replace(fed, pool=replace(fed.pool, x=x))


def unlabelled(fed: Federation, client: int) -> Federation:
    """The federation in which all training examples of a client have the same class."""
    y = fed.pool.y.clone()
    y[fed.train.of_client(client)] = 0
    return replace(fed, pool=replace(fed.pool, y=y))


@pytest.mark.full
def test_planted_groups_are_found_and_train_as_the_oracle_does_from_there() -> None:
    fed = apart()
    rounds = rounds_of(fed, 4, participation=0.5)
    states, reports = simulate(configured("flux", *PLANTED), rounds)
    assert partition_of(states[1].label) == partition_of(fed.group)
    oracle: Any = configured("oracle")
    start = oracle.State(models=states[0].models.repeat(3, 1))
    best, _ = simulate(oracle, rounds[1:], start)
    assert torch.equal(states[-1].models[states[-1].label], best[-1].models[fed.group])
    asked = reports[2]
    half = CLIENTS // 2
    assert (asked.models_down, asked.models_up) == (CLIENTS, half)
    assert asked.floats_up == CLIENTS * SIZE
    assert asked.notes["num_clusters_found"] == 3
    assert (reports[3].models_down, reports[3].floats_up) == (half, 0)
    assert torch.equal(states[-1].encoder, states[0].models)


def test_centroids_are_the_mean_descriptors_of_a_cluster() -> None:
    states, _ = simulate(configured("flux", *PLANTED), rounds_of(apart(), 2))
    centroid, label = states[1].centroid, states[1].label
    assert centroid.shape == (3, SIZE)
    weighted = (torch.bincount(label).unsqueeze(1) * centroid).sum(0)
    torch.testing.assert_close(weighted, torch.zeros(SIZE), atol=1e-3, rtol=0)  # about the mean


@pytest.mark.parametrize("client", [2, 9])
def test_a_newcomer_is_served_by_its_inputs_and_joins_in_its_first_round(client: int) -> None:
    fed = unlabelled(apart(), client)
    early, complete = rounds_of(fed, 3, absent=(client,)), rounds_of(fed, 4)
    algorithm: Any = configured("flux", *PLANTED)
    states, _ = simulate(algorithm, early)
    # it is there, but not in the cohort
    rnd = replace(complete[2], cohort=early[2].cohort)
    served = algorithm.serve(states[-1], engine_for(fed).at(rnd), rnd)
    others = torch.arange(CLIENTS) != client
    mates = (fed.group == fed.group[client]) & others
    assert served.label[client] == states[-1].label[mates][0]
    assert states[-1].label[client] == -1
    known = [replace(complete[3], fed=apart())]
    joined, reports = simulate(algorithm, known, states[-1])
    assert joined[-1].label[client] == served.label[client]
    assert (reports[0].models_down, reports[0].floats_up) == (CLIENTS + 1, SIZE)


def test_everybody_can_be_served_by_inputs_alone() -> None:
    fed = unlabelled(apart(), 4)
    algorithm: Any = configured("flux", *PLANTED, "algorithm.serve_by=inputs")
    rounds = rounds_of(fed, 2)
    states, _ = simulate(algorithm, rounds)
    swapped = states[-1].label.roll(1)
    state = replace(states[-1], label=swapped)
    clients = engine_for(fed).at(rounds[1])
    assert partition_of(algorithm.serve(state, clients, rounds[1]).label) == partition_of(fed.group)
    own: Any = configured("flux", *PLANTED)
    assert torch.equal(own.serve(state, clients, rounds[1]).label, swapped)


def test_whoever_joins_is_compared_by_labels_too() -> None:
    """Inputs are the first of two numbers; by them alone it would be the first cluster."""
    method: Any = SimpleNamespace(_profile=lambda *_: torch.zeros(1, 2))
    centroid = torch.tensor([[0.0, 9.0], [1.0, 0.0]])
    state: Any = make_dataclass("State", ["label", "centroid"])(torch.tensor([-1]), centroid)
    fed = SimpleNamespace(pool=SimpleNamespace(num_classes=1))
    rnd: Any = SimpleNamespace(cohort=torch.tensor([0]), fed=fed)
    clients: Any = None
    assert Flux._admit(method, state, clients, rnd)[0].label.tolist() == [1]

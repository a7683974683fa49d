"""LCFed: both pulls and the clusters of a round by hand, who joins."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from fronts import Front
from planted import (
    CLASSES,
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
from toy_engine import ToyEngine

from fedclust.core.front import Gradient, Train
from fedclust.core.types import Federation
from fedclust.engines.loop import LoopEngine
from fedclust.models.mlp import mlp
from fedclust.solver import Solver

HIDDEN = 4
BODY = (FEATURES + 1) * HIDDEN
DEEP = ("algorithm.layers=body",)


def deep(fed: Federation) -> Front:
    return Front(LoopEngine(mlp((FEATURES,), CLASSES, hidden=[HIDDEN]), fed.pool))


def test_two_steps_with_both_pulls_by_hand() -> None:
    """w <- w - lr (g(w) + mu (w - Omega) + lambda (phi - Phi) in the body)."""
    fed = federation()
    rnd, clients = rounds_of(fed, 1)[0], deep(fed)
    clients = clients.at(rnd)
    mu, lam, lr, ids = 0.7, 0.3, 0.1, torch.arange(3)
    method: Any = configured("lcfed", *DEEP, f"algorithm.mu={mu}", f"algorithm.lam={lam}")
    models = clients.init(rnd.stream("init"), 4)
    omega, common = models[:3], models[3:]
    mask = torch.arange(omega.shape[1]) < BODY
    solver = Solver(lr=lr, batch_size=None, epochs=2, proximal=mu + lam)
    work = method.pulls(omega, common, mask)
    w = omega
    for _ in range(2):
        step = clients.grad(Gradient(w, ids, ids)) + mu * (w - omega) + lam * (w - common) * mask
        w = w - lr * step
    found = clients.train(Train(omega, ids, ids, solver, work)).params
    torch.testing.assert_close(found, w, rtol=1e-5, atol=1e-6)
    alone = configured("lcfed", *DEEP, "algorithm.mu=0", "algorithm.lam=0")
    assert alone.pulls(omega, common, mask).anchor is None  # type: ignore[attr-defined]


def test_a_round_by_hand() -> None:
    """Directions of the models of the round, the largest cosine about their mean, plain means."""
    fed = federation(equal=False)
    rounds = rounds_of(fed, 2)
    options = (*DEEP, "algorithm.directions=2", "algorithm.refresh=1", "solver.lr=0.2")
    method: Any = configured("lcfed", *options, "common.aggregation=uniform")
    clients = deep(fed)
    state, _ = method.init(clients.at(rounds[0]), rounds[0])
    first, cost = method.round(state, clients.at(rounds[0]), rounds[0])
    assert len(first.models) == cost.notes["num_clusters_found"] == 3
    after, cost = method.round(first, clients.at(rounds[1]), rounds[1])

    mask = torch.arange(first.models.shape[1]) < BODY
    solver = replace(method.solver, proximal=method.mu + method.lam)
    work = method.pulls(first.models[first.label], first.common, mask)
    here, everybody = clients.at(rounds[1]), torch.arange(CLIENTS)
    local = here.train(Train(first.models, first.label, everybody, solver, work)).params
    middle = local.mean(0)
    _, _, v = torch.linalg.svd((local - middle).double(), full_matrices=False)
    torch.testing.assert_close(after.middle[0], middle)

    def seen(rows: Tensor) -> Tensor:
        z = (rows - middle).double() @ v[:2].T
        return z / z.norm(dim=1, keepdim=True)

    label = (seen(local) @ seen(first.models).T).argmax(1)
    assert torch.equal(after.label, label)
    for k in label.unique():  # type: ignore[no-untyped-call]
        torch.testing.assert_close(after.models[k], local[label == k].mean(0))
    torch.testing.assert_close(after.common[0], middle)
    assert (cost.models_down, cost.models_up) == (CLIENTS, CLIENTS)
    assert cost.floats_down == CLIENTS * BODY  # the common body


def test_models_are_seen_from_their_mean() -> None:
    """On one line all models lie on one side of zero, and on two sides of their mean."""
    method: Any = configured("lcfed")
    models = torch.tensor([[9.0, 5.0], [12.0, 5.0]])
    state = method.State(
        models=models,
        common=models[:1],
        label=torch.zeros(4, dtype=torch.int64),
        middle=torch.tensor([[10.0, 0.0]]),
        projection=torch.tensor([[1.0, 0.0]]),
    )
    toys: Any = ToyEngine(pull=models, start=models)
    params = torch.tensor([[9.5, 0.0], [11.0, 9.0], [10.5, 3.0], [1.0, 1.0]])
    assert method._nearest(state, toys, params).tolist() == [0, 1, 1, 0]


def test_the_planted_groups_are_found_and_directions_stay_until_refreshed() -> None:
    fed = federation()
    states, reports = simulate(configured("lcfed", "algorithm.refresh=3"), rounds_of(fed, 4))
    for state in states:
        assert partition_of(state.label) == partition_of(fed.group)
    kept = [states[0].projection, *(state.projection for state in states)]
    changed = [not torch.equal(a, b) for a, b in pairwise(kept)]
    assert changed == [False, False, False, True]
    assert len(states[0].projection) == CLIENTS - 1  # 50 are asked for
    assert reports[1].floats_down == 0  # the first model is the common one


def test_who_was_not_there_joins_the_cluster_of_least_loss() -> None:
    fed, late = federation(), 2
    rounds = rounds_of(fed, 2, absent=(late,))
    method: Any = configured("lcfed")
    states, _ = simulate(method, rounds)
    there = replace(
        rounds[1], present=torch.ones(CLIENTS, dtype=torch.bool), cohort=torch.tensor([late])
    )
    assert states[1].label[late] == -1
    clients = engine_for(fed).at(there)
    served = method.serve(states[1], clients, there)
    assert served.label[late] == clients.loss(states[1].models, there.cohort).argmin()
    after, cost = method.round(states[1], clients, there)
    assert (cost.models_down, cost.scalars_up) == (len(after.models) + 1, 1)
    others = torch.arange(CLIENTS) != late
    assert torch.equal(after.label[others], states[1].label[others])

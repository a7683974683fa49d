"""HCFL: its limits FedAvg and FL+HC, what clusters share by hand, what is compared."""

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
    engine_for,
    federation,
    partition_of,
    rounds_of,
    simulate,
)
from toy_engine import ToyEngine

from fedclust.algorithms.layers.with_server import WithServer
from fedclust.algorithms.parts.shared_layers import common_mean
from fedclust.core.calls import LocalResult
from fedclust.core.front import Train
from fedclust.core.server import Server
from fedclust.engines.loop import LoopEngine
from fedclust.models.mlp import mlp
from fedclust.updates.aggregations import Median
from fedclust.updates.servers import SGD

EARLY = ("algorithm.warmup=1",)
HIDDEN = 4


def test_without_pull_and_sharing_clusters_train_alone_from_the_common_model() -> None:
    fed = federation()
    rounds = rounds_of(fed, 4, participation=0.5)
    options = (*EARLY, "algorithm.mu=0", "algorithm.sharing=0")
    states, reports = simulate(configured("hcfl", *options), rounds)
    assert partition_of(states[1].label) == partition_of(fed.group)
    oracle: Any = configured("oracle")
    start = oracle.State(models=states[0].models.repeat(3, 1))
    best, _ = simulate(oracle, rounds[1:], start)
    assert torch.equal(states[-1].models[states[-1].label], best[-1].models[fed.group])
    half, size = CLIENTS // 2, states[0].models.shape[1]
    clustering = reports[2]
    assert (clustering.models_down, clustering.models_up) == (CLIENTS + half, half)
    assert clustering.floats_up == CLIENTS * size
    assert clustering.gradient_steps == (CLIENTS + half) * STEPS
    assert clustering.notes["num_clusters_found"] == 3


def test_the_share_falls_as_printed() -> None:
    method: Any = configured("hcfl", "algorithm.sharing=0.8", "algorithm.power=2")
    assert [method.share(r) for r in (0, 10)] == pytest.approx([0.8, 0.2])
    for_ever: Any = configured("hcfl", "algorithm.decay=0")
    assert for_ever.share(99) == 1


@pytest.mark.full
@pytest.mark.parametrize("layers", ["body", "all"])
def test_what_clusters_share_by_hand(layers: str) -> None:
    """In the first round after the clustering 0.25 of the mean of all, by examples."""
    fed = federation(equal=False)
    rounds = rounds_of(fed, 2)
    options = (*EARLY, f"algorithm.layers={layers}", "algorithm.sharing=0.25")
    algorithm: Any = configured("hcfl", *options)
    clients = Front(LoopEngine(mlp((FEATURES,), CLASSES, hidden=[HIDDEN]), fed.pool))
    state, _ = algorithm.init(clients.at(rounds[0]), rounds[0])
    first, _ = algorithm.round(state, clients.at(rounds[0]), rounds[0])
    after, cost = algorithm.round(first, clients.at(rounds[1]), rounds[1])
    start, label = first.models.repeat(len(after.models), 1), after.label

    pulled = replace(algorithm.solver, proximal=algorithm.mu)
    local = clients.at(rounds[1]).train(Train(start, label, rounds[1].cohort, pulled)).params
    count = fed.train.count.float().unsqueeze(1)
    body = (FEATURES + 1) * HIDDEN if layers == "body" else local.shape[1]
    common = (count * local).sum(0) / count.sum()
    for k in range(len(after.models)):
        mine = label == k
        mean = (count * local)[mine].sum(0) / count[mine].sum()
        wanted = mean.clone()
        wanted[:body] = 0.75 * mean[:body] + 0.25 * common[:body]
        torch.testing.assert_close(after.models[k], wanted)
    everybody = torch.arange(CLIENTS)
    once = clients.at(rounds[1]).train(
        Train(first.models, 0 * everybody, everybody, algorithm.solver, purpose="cover")
    )
    update = (once.params - first.models)[:, :body]
    unit = update / update.norm(dim=1, keepdim=True)
    torch.testing.assert_close(cost.arrays["distance"], 1 - unit @ unit.T, atol=1e-5, rtol=0)


def test_a_cluster_nobody_trains_keeps_its_model_and_newcomers_join() -> None:

    fed, late = federation(), 2
    rounds = rounds_of(fed, 3, absent=(late,))
    algorithm: Any = configured("hcfl", *EARLY)
    states, _ = simulate(algorithm, rounds[:2])
    only = replace(rounds[2], cohort=(states[1].label == 1).nonzero().squeeze(1))
    states, _ = simulate(algorithm, [only], states[1])
    assert torch.equal(states[0].models[0], simulate(algorithm, rounds[:2])[0][1].models[0])
    there = replace(only, present=torch.ones(CLIENTS, dtype=torch.bool))
    clients = engine_for(fed).at(there)
    served = algorithm.serve(states[0], clients, there)
    loss = clients.loss(states[0].models, torch.tensor([late]))
    assert served.label[late] == loss.argmin()
    _, cost = algorithm.round(states[0], clients, there)
    assert (cost.models_down, cost.scalars_up) == (len(only.cohort) + len(states[0].models), 1)


def test_a_robust_mean_of_all_is_that_of_updates() -> None:
    """One of nine sends nonsense: the median of the updates, from the mean of the models."""
    start = torch.tensor([[0.0, 0.0], [10.0, 20.0]])
    label = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1])
    moves = torch.tensor([[1.0, 2.0]]).repeat(9, 1)
    moves[0] = 1e6
    one = torch.ones(9)
    local = LocalResult(
        params=start[label] + moves, slots=None, loss=one, first_loss=one, steps=one.long()
    )
    clients: Any = ToyEngine(pull=moves, start=start)
    plain = common_mean(clients, local, start, label, None)
    assert torch.equal(plain, local.params.mean(0, keepdim=True))
    clients.server = Server(aggregation=Median())
    found = common_mean(clients, local, start, label, None)
    torch.testing.assert_close(found, torch.tensor([[10 / 3 + 1, 20 / 3 + 2]]))


def test_the_server_remembers_models_that_share() -> None:
    fed = federation()
    base = configured("hcfl", *EARLY)
    method: Any = WithServer(base=base, server=SGD(rate=1.0, momentum=0.5))
    states, _ = simulate(method, rounds_of(fed, 3))
    assert len(states[-1].server_memory) == len(states[-1].models) == 3

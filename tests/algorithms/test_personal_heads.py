"""FedPer and FedRep: the body is everybody's, the head is one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from planted import CLIENTS, configured, engine_for, federation, rounds_of, simulate, started

from fedclust.core.calls import LocalWork
from fedclust.core.front import Train
from fedclust.core.server import Server
from fedclust.updates.privacy import ClientDP
from fedclust.updates.servers import SGD

NAMES = ["fedper", "fedrep"]


@pytest.mark.parametrize("name", NAMES)
def test_bodies_are_averaged_and_heads_are_kept(name: str) -> None:
    fed = federation(equal=False)
    algorithm: Any = configured(name, "algorithm.aggregation=by_samples")
    rnd = rounds_of(fed, 1, participation=0.5)[0]
    clients = engine_for(fed, algorithm).at(rnd)
    start, _ = algorithm.init(clients, rnd)
    after, cost = algorithm.round(start, clients, rnd)
    cohort, head = rnd.cohort, clients.layout.mask(clients.layout.last_layers())
    assert int(head.sum()) == after.heads.shape[1]
    local = algorithm._train(start.model.repeat(len(cohort), 1), clients, rnd)
    share = fed.train.count[cohort] / fed.train.count[cohort].sum()
    body = (share.unsqueeze(1) * local.params).sum(0)
    torch.testing.assert_close(after.model[0, ~head], body[~head])
    assert torch.equal(after.model[0, head], start.model[0, head])
    assert torch.equal(after.heads[cohort], local.params[:, head])
    away = [i for i in range(CLIENTS) if i not in cohort.tolist()]
    assert torch.equal(after.heads[away], start.heads[away])
    sent = len(cohort) * int((~head).sum())
    assert (cost.floats_down, cost.floats_up, cost.models_down, cost.models_up) == (
        sent,
        sent,
        0,
        0,
    )


@pytest.mark.parametrize("name", NAMES)
def test_noise_and_memory_are_of_the_body(name: str) -> None:
    """Noise comes to the body alone, whose momentum the server still has in the next round."""
    option = "algorithm.aggregation=uniform"
    algorithm, start, clients = started(name, federation(), option)
    step, draw = SGD(rate=1.0, momentum=0.9), np.random.default_rng(0)
    private = {"privacy": ClientDP(), "num_drawn": 12.0, "draw": draw}
    server = Server(step=step, layout=clients.layout, **private)
    after, _ = algorithm.round(start, replace(clients, server=server), clients.rnd)
    head = clients.layout.mask(clients.layout.last_layers())
    assert torch.equal(after.model[0, head], start.model[0, head])
    moved = (after.model - start.model)[0, ~head]
    assert bool((moved != 0).all())
    (memory,) = server.memories(after.model).values()
    torch.testing.assert_close(memory[0, ~head], moved)


@pytest.mark.parametrize("name", NAMES)
def test_everybody_is_served_the_body_under_its_own_head(name: str) -> None:
    fed, algorithm = federation(), configured(name)
    rounds = rounds_of(fed, 2)
    states, _ = simulate(algorithm, rounds)
    clients = engine_for(fed, algorithm).at(rounds[1])
    head = clients.layout.mask(clients.layout.last_layers())
    served = algorithm.serve(states[1], clients, rounds[1])
    assert served.label.tolist() == list(range(CLIENTS))
    assert torch.equal(served.models[:, head], states[1].heads)
    assert torch.equal(served.models[:, ~head], states[1].model[:, ~head].expand(CLIENTS, -1))


def test_fedrep_trains_one_part_at_a_time() -> None:
    algorithm, start, clients = started("fedrep", federation(), "algorithm.head_epochs=3")
    rnd = clients.rnd
    head = clients.layout.mask(clients.layout.last_layers())
    own, models = torch.arange(CLIENTS), start.model.repeat(CLIENTS, 1)
    local = algorithm._train(models, clients, rnd)
    # the head is that of training with the body at rest, whatever the body does afterwards
    same: Any = configured("fedrep", "solver.epochs=3")
    still = LocalWork(frozen=~head)
    alone = clients.train(Train(models, own, own, same.solver, still, purpose="head"))
    assert torch.equal(alone.params[:, ~head], models[:, ~head])
    assert torch.equal(local.params[:, head], alone.params[:, head])
    assert (local.params[:, ~head] - models[:, ~head]).abs().max() > 1e-3
    assert int(local.steps[0]) == 2 * 3 + 2 * 2  # 24 examples in batches of 12

"""FedPer and FedRep: the body is everybody's, the head is one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from planted import CLIENTS, configured, engine_for, federation, rounds_of, simulate

from fedclust.core.calls import LocalWork
from fedclust.core.front import Train
from fedclust.core.server import Server
from fedclust.updates.privacy import ClientDP
from fedclust.updates.servers import SGD

NAMES = ["fedper", "fedrep"]


@pytest.mark.parametrize("name", NAMES)
def test_bodies_are_averaged_and_heads_are_kept(name: str) -> None:
    fed, algorithm = federation(equal=False), configured(name, "algorithm.aggregation=by_samples")
    rounds = rounds_of(fed, 1, participation=0.5)
    clients = engine_for(fed, algorithm).at(rounds[0])
    any_algorithm: Any = algorithm
    start, _ = any_algorithm.init(clients, rounds[0])
    after, cost = any_algorithm.round(start, clients, rounds[0])
    cohort, head = rounds[0].cohort, clients.layout.mask(clients.layout.last_layers())
    assert int(head.sum()) == after.heads.shape[1]
    local = any_algorithm._train(start.model.repeat(len(cohort), 1), clients, rounds[0])
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
    fed, algorithm = federation(), configured(name, "algorithm.aggregation=uniform")
    rnd = rounds_of(fed, 1)[0]
    clients, any_algorithm = engine_for(fed, algorithm).at(rnd), cast(Any, algorithm)
    start, _ = any_algorithm.init(clients, rnd)
    server = Server(
        privacy=ClientDP(),
        num_drawn=12.0,
        draw=np.random.default_rng(0),
        step=SGD(rate=1.0, momentum=0.9),
        layout=clients.layout,
    )
    clients = replace(clients, server=server)
    after, _ = any_algorithm.round(start, clients, rnd)
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
    fed = federation()
    algorithm: Any = configured("fedrep", "algorithm.head_epochs=3")
    rnd = rounds_of(fed, 1)[0]
    clients = engine_for(fed, algorithm).at(rnd)
    start, _ = algorithm.init(clients, rnd)
    head = clients.layout.mask(clients.layout.last_layers())
    own = torch.arange(CLIENTS)
    models = start.model.repeat(CLIENTS, 1)
    local = algorithm._train(models, clients, rnd)
    # the head is that of training with the body at rest, whatever the body does afterwards
    still, solver = LocalWork(frozen=~head), configured_head(algorithm)
    alone = clients.train(Train(models, own, own, solver, still, purpose="head"))
    assert torch.equal(alone.params[:, ~head], models[:, ~head])
    assert torch.equal(local.params[:, head], alone.params[:, head])
    assert (local.params[:, ~head] - models[:, ~head]).abs().max() > 1e-3
    assert int(local.steps[0]) == 2 * 3 + 2 * 2  # 24 examples in batches of 12


def configured_head(algorithm: Any) -> Any:
    one: Any = configured("fedrep", "solver.epochs=3")
    assert algorithm.head_epochs == one.solver.epochs
    return one.solver

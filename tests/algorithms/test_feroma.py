"""FEROMA: shares in closed form, its limits FedAvg and Local, drift, clients without labels."""

from __future__ import annotations

import math
from dataclasses import replace
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
    rounds_of,
    simulate,
)
from torch import Tensor

from fedclust.algorithms.feroma import Feroma, share_by
from fedclust.algorithms.parts.profiles import fitted, nearest, placed, random_halves, unlabelled
from fedclust.core.front import Train
from fedclust.core.types import Federation, Split

ONCE = ("algorithm.warmup=1", "algorithm.halves=null")
SIZE = 2 * CLASSES * (1 + CLASSES)  # numbers of a profile


def apart() -> Federation:
    """The planted federation, but group g sees its inputs about 3 g: that needs no labels."""
    fed = federation(equal=False)
    x = fed.pool.x.clone()
    for client in range(CLIENTS):
        rows = torch.cat([fed.train.of_client(client), fed.test.of_client(client)])
        x[rows] += 3.0 * int(fed.group[client])
    return replace(fed, pool=replace(fed.pool, x=x))


def given_rows(fed: Federation, client: int, source: int) -> Federation:
    """The federation in which a client has the training examples of another one."""
    rows = [fed.train.of_client(source if i == client else i) for i in range(CLIENTS)]
    return replace(fed, train=Split.of(rows))


def test_shares_in_closed_form() -> None:
    distance = torch.tensor([[0.0, 1.0], [1.0, 4.0], [2.0, 2.0]])
    inverse: Any = configured("feroma")
    torch.testing.assert_close(
        inverse.shares(distance), torch.tensor([[1.0, 1e-8], [0.8, 0.2], [0.5, 0.5]])
    )
    soft: Any = configured("feroma", "algorithm.weighting=softmax")
    first = 1 / (1 + math.exp(-3))
    assert soft.shares(distance)[1].tolist() == pytest.approx([first, 1 - first])
    cut: Any = configured("feroma", "algorithm.weighting=softmax", "algorithm.least_weight=0.1")
    assert cut.shares(distance)[1].tolist() == [1, 0]
    nobody: Any = configured("feroma", "algorithm.weighting=softmax", "algorithm.least_weight=1.1")
    assert nobody.shares(distance).tolist() == [[0.5, 0.5]] * 3
    assert share_by(torch.tensor([[0.8, 0.2]]), torch.tensor([1, 4])).tolist() == [[0.5, 0.5]]


def test_without_noise_clients_go_on_alone_while_their_data_stay() -> None:
    rounds = rounds_of(apart(), 4, participation=0.5)
    states, reports = simulate(configured("feroma", *ONCE, "algorithm.memory=9"), rounds)
    local: Any = configured("local", "algorithm.participants=cohort")
    seen = torch.zeros(CLIENTS, dtype=torch.bool)
    for before, after, rnd, cost in zip(
        states[:-1], states[1:], rounds[1:], reports[2:], strict=True
    ):
        old = rnd.cohort[seen[rnd.cohort]]
        alone, _ = simulate(local, [replace(rnd, cohort=old)], local.State(models=before.own))
        torch.testing.assert_close(after.own[old], alone[0].models[old], rtol=1e-3, atol=1e-4)
        first = rnd.t == 1  # when everybody begins at what describes the data
        sent = len(rnd.cohort) + (0 if first else len(rnd.cohort) - len(old))
        assert (cost.models_down, cost.models_up) == (sent, len(rnd.cohort))
        assert cost.floats_up == len(rnd.cohort) * SIZE
        seen[rnd.cohort] = True


def test_a_mix_by_hand() -> None:
    """All models of the round before, by examples and closeness, each trained further."""
    fed, rounds = apart(), rounds_of(apart(), 3)
    algorithm: Any = configured("feroma", "algorithm.warmup=1", "algorithm.halves=1")
    states, _ = simulate(algorithm, rounds)
    clients, everybody = engine_for(fed).at(rounds[2]), torch.arange(CLIENTS)
    times = random_halves(everybody, 1, rounds[2])
    blocks = algorithm.descriptor.blocks(states[0].model, everybody, clients, rounds[2], times)
    gap = torch.cdist(placed(blocks, states[1].scale), states[1].profile).double()
    share = fed.train.count / gap
    start = (share / share.sum(1, keepdim=True)).float() @ states[1].own.all()
    after = clients.train(Train(start, everybody, everybody, algorithm.solver)).params
    torch.testing.assert_close(states[2].own.all(), after, rtol=1e-3, atol=1e-4)
    inside = fed.group.unsqueeze(1) == fed.group
    assert float(gap[~inside].mean()) > 1.5 * float(gap[inside].mean())


def test_who_gets_other_data_goes_on_with_the_models_of_those_who_had_them() -> None:
    """From round 2 on client 5 has the examples of client 0, of another group."""
    fed, moved = apart(), given_rows(apart(), 5, 0)
    rounds, everybody = rounds_of(fed, 3), list(range(CLIENTS))
    as_client_0 = [*everybody[:5], 0, *everybody[6:]]
    shifted = torch.arange(CLIENTS) == 5
    last = replace(rounds[2], fed=moved, shifted=shifted, cohort=torch.tensor([0, 1, 2, 3, 8]))
    algorithm: Any = configured("feroma", *ONCE, "algorithm.memory=2")
    states, _ = simulate(algorithm, rounds[:2])
    clients = engine_for(fed)
    before = algorithm.serve(states[-1], clients.at(rounds[1]), rounds[1])
    assert before.label.tolist() == everybody
    at_once = algorithm.serve(states[-1], clients.at(last), last)
    assert at_once.label.tolist() == as_client_0
    after, _ = algorithm.round(states[-1], clients.at(last), last)
    served = algorithm.serve(after, clients.at(last), last)
    assert served.label.tolist() == as_client_0
    later = replace(last, t=3, shifted=~shifted & shifted, cohort=torch.arange(CLIENTS))
    trained, _ = algorithm.round(after, clients.at(later), later)
    assert algorithm.serve(trained, clients.at(later), later).label.tolist() == everybody
    torch.testing.assert_close(trained.profile[5], after.profile[0])


@pytest.mark.parametrize("known", [True, False])
def test_newcomers_are_served_without_their_labels(known: bool) -> None:
    fed = given_rows(apart(), 2, 5)
    if not known:
        own = torch.arange(len(fed.pool.y), len(fed.pool.y) + int(fed.train.count[2]))
        rows = fed.train.of_client(5)
        x, y = torch.cat([fed.pool.x, fed.pool.x[rows]]), torch.cat([fed.pool.y, 0 * rows])
        split = [own if i == 2 else fed.train.of_client(i) for i in range(CLIENTS)]
        fed = replace(fed, pool=replace(fed.pool, x=x, y=y), train=Split.of(split))
    algorithm: Any = configured("feroma", *ONCE)
    early = rounds_of(fed, 3, absent=(2,))
    states, _ = simulate(algorithm, early)
    rnd = replace(early[-1], present=torch.ones(CLIENTS, dtype=torch.bool))
    served = algorithm.serve(states[-1], engine_for(fed).at(rnd), rnd)
    assert served.label[2] == 5


def test_everybody_can_be_served_by_inputs_alone() -> None:
    """Client 4 trained on inputs of group 1 and has those of group 0 since: its own model, of the
    round before, is not the one that its inputs are nearest to; all others keep theirs.
    """
    fed, rounds = apart(), rounds_of(apart(), 3)
    own: Any = configured("feroma", *ONCE)
    inputs: Any = configured("feroma", *ONCE, "algorithm.serve_by=inputs")
    states, _ = simulate(inputs, rounds)
    alike, _ = simulate(own, rounds)
    assert torch.equal(states[-1].own.all(), alike[-1].own.all())  # training is the same
    quiet = replace(rounds[-1], fed=given_rows(fed, 4, 0))  # nobody says that data have changed
    served = [
        algorithm.serve(states[-1], engine_for(fed).at(quiet), quiet).label.tolist()
        for algorithm in (own, inputs)
    ]
    everybody = list(range(CLIENTS))
    assert served == [everybody, [*everybody[:4], 0, *everybody[5:]]]
    early = inputs.serve(states[0], engine_for(fed).at(rounds[0]), rounds[0])
    assert early.label.unique().tolist() == [0]  # before the first profiles there is one model


def test_halves_are_of_real_examples_and_drawn_anew() -> None:
    fed = federation(equal=False)
    odd = [fed.train.of_client(i)[i % 2 :] for i in range(CLIENTS)]
    first, second = rounds_of(replace(fed, train=Split.of(odd)), 2)
    ids = torch.arange(CLIENTS)
    times = random_halves(ids, 3, first)
    count = first.fed.train.count
    assert torch.equal(times.sum(1), 3 * ((count + 1) // 2))
    assert times.unique().tolist() == [0, 1, 2, 3]
    past = torch.arange(times.shape[1]) >= count.unsqueeze(1)
    assert not times[past].any()
    assert not torch.equal(times, random_halves(ids, 3, second))
    some = random_halves(ids[3:5], 3, first)
    assert torch.equal(some, times[3:5, : some.shape[1]])


def test_profiles_on_a_scale() -> None:
    blocks = [torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.tensor([[7.0], [7.0]])]
    scale = fitted(blocks)
    root = math.sqrt(0.5)  # of 1, 1, 0 and 0
    torch.testing.assert_close(scale[0], torch.tensor([2.0, 5.0, 7.0]))
    torch.testing.assert_close(scale[1, :2], torch.tensor([root, root]))
    found = placed([torch.tensor([[4.0, 6.0]]), torch.tensor([[7.0]])], scale)
    torch.testing.assert_close(found, torch.tensor([[2 / root, 1 / root, 0]]))
    wide: Tensor = torch.arange(8.0).unsqueeze(0)
    assert unlabelled(wide, 3).tolist() == [[0, 1]]
    assert (
        nearest(wide, torch.stack([wide[0] + 1, wide[0] * torch.tensor(2 * [1] + 6 * [9])]), 3) == 1
    )


@pytest.mark.parametrize(("memory", "kept"), [(1, [1]), (2, [1, 3]), (9, [0, 1, 3])])
def test_models_of_so_many_rounds_are_sources(memory: int, kept: list[int]) -> None:
    """Trained in round 1, 4, never and 3, seen after round 4."""
    state: Any = SimpleNamespace(trained=torch.tensor([1, 4, -1, 3]))
    method: Any = SimpleNamespace(memory=memory)
    assert Feroma._sources(method, state).tolist() == kept

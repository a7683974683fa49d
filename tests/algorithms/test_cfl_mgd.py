"""CFL-MGD: IFCA without momentum, a heavy ball for one client, both options and owners by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from planted import (
    CLIENTS,
    GROUPS,
    LR,
    STEPS,
    configured,
    engine_for,
    federation,
    rounds_of,
    simulate,
    started,
)
from torch import Tensor

from fedclust.algorithms.cfl_mgd import shared_momenta
from fedclust.core.calls import LocalWork
from fedclust.core.front import Gradient, Train
from fedclust.core.server import median
from fedclust.engines.loop import LoopEngine
from fedclust.updates.aggregations import Median

BETA = 0.9
OPTION_ONE = "algorithm.averaging=gradient"

by_loop = partial(simulate, kind=LoopEngine)  # to the bit in other calls, too


@pytest.mark.full
@pytest.mark.parametrize("owner", ["cluster", "client"])
@pytest.mark.parametrize("averaging", ["model", "gradient"])
def test_without_momentum_it_is_ifca_bit_by_bit(averaging: str, owner: str) -> None:
    fed = federation()
    rounds, option = rounds_of(fed, 4, participation=0.5), f"algorithm.averaging={averaging}"
    ifca, ifca_reports = by_loop(configured("ifca", option), rounds)
    settings = (option, "algorithm.solver.momentum=0", f"algorithm.momentum_owner={owner}")
    without, reports = by_loop(configured("cfl_mgd", *settings), rounds)
    with_momentum, _ = by_loop(configured("cfl_mgd", option), rounds)
    assert all(torch.equal(a.models, b.models) for a, b in zip(ifca, without, strict=True))
    assert [r.train_loss for r in reports[1:]] == [r.train_loss for r in ifca_reports[1:]]
    assert not torch.equal(ifca[1].models, with_momentum[1].models)


@pytest.mark.parametrize("steps", [1, 3])
def test_one_client_alone_is_a_heavy_ball(steps: int) -> None:
    """chi^s = chi^(s-1) - eta gradient(chi^(s-1)) + beta (chi^(s-1) - chi^(s-2)), across rounds."""
    fed = federation()
    clients = engine_for(fed)
    rounds = [replace(rnd, cohort=torch.tensor([5])) for rnd in rounds_of(fed, 3)]
    alone = ("num_clusters=1", "solver.batch_size=null", f"solver.epochs={steps}")
    states, _ = simulate(configured("cfl_mgd", *alone), rounds)
    one: Any = configured("cfl_mgd", *alone)
    position: Tensor = one.init(clients.at(rounds[0]), rounds[0])[0].models
    before = position
    for rnd, state in zip(rounds, states, strict=True):
        for _ in range(steps):
            gradient = clients.at(rnd).grad(Gradient(position, torch.tensor([0]), rnd.cohort))
            position, before = position - LR * gradient + BETA * (position - before), position
        torch.testing.assert_close(state.models, position, rtol=1e-4, atol=1e-5)
    if steps == 1:
        settings = (*alone, OPTION_ONE, "algorithm.gradient_denominator=cluster")
        averaged, _ = simulate(configured("cfl_mgd", *settings), rounds)
        torch.testing.assert_close(averaged[-1].models, position, rtol=1e-4, atol=1e-5)


def test_model_averaging_by_hand() -> None:
    """Participants go on with their cluster's momentum; models and momenta are averaged alike."""
    fed = federation(equal=False)
    clients, rounds = engine_for(fed), rounds_of(fed, 3, participation=0.75)
    algorithm: Any = configured("cfl_mgd", "algorithm.aggregation=by_samples")
    states, reports = simulate(algorithm, rounds)
    before, rnd = states[1], rounds[2]
    assert float(before.momentum.norm(dim=1).min()) > 0.1
    label = clients.at(rnd).loss(before.models, rnd.cohort).argmin(1)
    assert len(label.unique()) > 1, "one cluster took all: the case is too easy"
    for cluster in label.unique().tolist():
        members = rnd.cohort[label == cluster]
        weight = fed.train.count[members] / fed.train.count[members].sum()
        params, slots = torch.zeros(21), torch.zeros(21)
        for client, share in zip(members, weight, strict=True):
            one = client.unsqueeze(0)
            work = LocalWork(slots=before.momentum)
            local = clients.at(rnd).train(
                Train(before.models, torch.tensor([cluster]), one, algorithm.solver, work)
            )
            assert local.slots is not None
            params += share * local.params[0]
            slots += share * local.slots[0]
        torch.testing.assert_close(states[2].models[cluster], params, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(states[2].momentum[cluster], slots, rtol=1e-5, atol=1e-6)
    assert (reports[3].models_down, reports[3].models_up) == (9 * (GROUPS + 1), 2 * 9)
    assert reports[1].gradient_steps > STEPS


@pytest.mark.parametrize("owner", ["cluster", "client"])
def test_momenta_take_the_robust_mean_too(owner: str) -> None:
    """Their median, as that of the models."""
    fed = federation(equal=False)
    clients, rounds = engine_for(fed), rounds_of(fed, 3, participation=0.75)
    algorithm: Any = configured("cfl_mgd", f"algorithm.momentum_owner={owner}")
    states, _ = simulate(algorithm, rounds[:2])
    before, rnd = states[1], rounds[2]
    label = clients.at(rnd).loss(before.models, rnd.cohort).argmin(1)
    own = torch.arange(len(label))
    slots = before.momentum[label if owner == "cluster" else rnd.cohort]
    work = LocalWork(slots=slots)
    local = clients.at(rnd).train(
        Train(before.models[label], own, rnd.cohort, algorithm.solver, work)
    )
    assert local.slots is not None
    clients.aggregation = Median()
    after, _ = algorithm.round(before, clients.at(rnd), rnd)
    for k in label.unique().tolist():
        mine = label == k
        wanted = median(local.slots[mine])
        rows = after.momentum[[k] if owner == "cluster" else rnd.cohort[mine]]
        torch.testing.assert_close(rows, wanted.expand(len(rows), -1), rtol=1e-5, atol=1e-6)
        model = median(local.params[mine])
        torch.testing.assert_close(after.models[k], model, rtol=1e-5, atol=1e-6)


def test_in_its_first_round_it_does_not_matter_who_owns_the_momenta() -> None:
    rounds = rounds_of(federation(equal=False), 1, participation=0.75)
    settings = ("algorithm.aggregation=by_samples", "algorithm.averaging=model")
    (cluster,), _ = by_loop(configured("cfl_mgd", *settings), rounds)
    owner = "algorithm.momentum_owner=client"
    (client,), _ = by_loop(configured("cfl_mgd", *settings, owner), rounds)
    assert torch.equal(client.models, cluster.models)
    cohort = rounds[0].cohort
    held = client.momentum[cohort].unique(dim=0)
    assert len(held) > 1, "one cluster took all: the case is too easy"
    assert torch.equal(held, cluster.momentum[cluster.momentum.any(1)].unique(dim=0))


@pytest.mark.parametrize("name", ["cfl_mgd", "ifca"])
@pytest.mark.parametrize("averaging", ["model", "gradient"])
def test_a_cluster_nobody_joins_keeps_model_and_momentum(name: str, averaging: str) -> None:
    algorithm, state, clients = started(name, federation(), f"algorithm.averaging={averaging}")
    hopeless = state.models.clone()
    hopeless[1] *= 1e4
    more = {"momentum": torch.ones_like(hopeless)} if name == "cfl_mgd" else {}
    state = replace(state, models=hopeless, **more)
    after, _ = algorithm.round(state, clients, clients.rnd)
    for kept in ("models", *more):
        assert torch.equal(getattr(after, kept)[1], getattr(state, kept)[1])
        assert not torch.equal(getattr(after, kept)[0], getattr(state, kept)[0])


@pytest.mark.parametrize("denominator", ["all", "participants", "cluster"])
@pytest.mark.parametrize("owner", ["cluster", "client"])
def test_gradient_averaging_by_hand(owner: str, denominator: str) -> None:
    """Lines 7-10 and 15, from momenta that are all different."""
    fed = federation()
    clients, rnd = engine_for(fed), rounds_of(fed, 2, participation=0.5)[1]
    settings = (OPTION_ONE, f"algorithm.momentum_owner={owner}", "solver.decay=0.5")
    algorithm: Any = configured(
        "cfl_mgd", *settings, f"algorithm.gradient_denominator={denominator}"
    )
    state, _ = algorithm.init(clients.at(rnd), rnd)
    momentum = torch.randn(state.momentum.shape, generator=torch.Generator().manual_seed(3))
    state = replace(state, momentum=momentum)
    after, report = algorithm.round(state, clients.at(rnd), rnd)
    label = clients.at(rnd).loss(state.models, rnd.cohort).argmin(1)
    gradient = clients.at(rnd).grad(Gradient(state.models, label, rnd.cohort))
    expected, kept = state.models.clone(), momentum.clone()
    for cluster in label.unique().tolist():
        rows = (label == cluster).nonzero().squeeze(1).tolist()
        own = [
            momentum[cluster] if owner == "cluster" else momentum[rnd.cohort[row]] for row in rows
        ]
        moved = torch.stack([BETA * u + gradient[row] for u, row in zip(own, rows, strict=True)])
        divisor = {"all": CLIENTS, "participants": CLIENTS // 2, "cluster": len(rows)}[denominator]
        expected[cluster] -= LR / 2 * moved.sum(0) / divisor  # second round, decay 0.5
        kept[[cluster] if owner == "cluster" else rnd.cohort[rows]] = moved.mean(0)
    assert len(label.unique()) > 1, "one cluster took all: the case is too easy"
    torch.testing.assert_close(after.models, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(after.momentum, kept, rtol=1e-5, atol=1e-6)
    sent = (report.models_down, report.models_up)
    assert sent == (6 * (GROUPS + 1), 6 * 2), "gradient and momentum go up"
    assert report.gradient_steps == 6


@pytest.mark.parametrize(("weight", "first"), [(None, 2.0), ([1, 3, 1], 2.5)])
def test_shared_momenta_by_hand(weight: list[int] | None, first: float) -> None:
    """Clients 0 and 2 are in cluster 0 with the momenta 1 and 3, client 3 in cluster 1 with 10."""
    momentum, label = torch.tensor([[1.0], [3.0], [10.0]]), torch.tensor([0, 0, 1])
    rnd = replace(rounds_of(federation(), 1)[0], cohort=torch.tensor([0, 2, 3]))
    weights = None if weight is None else torch.tensor(weight)

    def shared(owner: Any, owners: int) -> list[float]:
        before = torch.full((owners, 1), -7.0)
        after = shared_momenta(momentum, before, label, weights, owner, 3, None, rnd)
        return after.squeeze(1).tolist()

    assert shared("client", 5) == [first, -7.0, first, 10.0, -7.0]
    assert shared("cluster", 3) == [first, 10.0, -7.0]


def test_lagged_momentum_takes_the_gradient_of_the_participation_before() -> None:
    fed = federation()
    clients, rounds = engine_for(fed), rounds_of(fed, 2)
    algorithm: Any = configured(
        "cfl_mgd", "num_clusters=1", OPTION_ONE, "algorithm.momentum_gradient=lagged"
    )
    states, _ = simulate(algorithm, rounds)
    start: Tensor = algorithm.init(clients.at(rounds[0]), rounds[0])[0].models
    label = torch.zeros(CLIENTS, dtype=torch.int64)
    gradient = clients.at(rounds[0]).grad(Gradient(start, label, rounds[0].cohort))
    assert torch.equal(states[0].models, start), "no gradient yet: nothing to move by"
    assert torch.equal(states[0].gradient, gradient)
    expected = start - LR * gradient.mean(0)
    torch.testing.assert_close(states[1].models, expected, rtol=1e-5, atol=1e-6)

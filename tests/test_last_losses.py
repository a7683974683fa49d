"""The losses a seed asked for last are not computed again, and no others are mistaken for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from toys import federation_of, pool_of

from fedclust.algorithms.ifca import IFCA
from fedclust.core.calls import LossCall
from fedclust.core.types import Federation, Round, Split
from fedclust.engines import make_engine
from fedclust.engines.clients import LastLosses, SeedClients
from fedclust.engines.fused import FusedEngine
from fedclust.engines.lockstep import Lockstep
from fedclust.models.mlp import mlp
from fedclust.runtime.contract import fields_of
from fedclust.runtime.simulation import Simulation
from fedclust.scenarios.static import Static
from fedclust.solver import Solver

CLIENTS = 6


def federation() -> Federation:
    x = torch.rand(60, 5, generator=torch.Generator().manual_seed(1))
    rows = [range(i, 60, CLIENTS) for i in range(CLIENTS)]
    return federation_of(pool_of(x, torch.arange(60) % 3, 3), rows)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of clients of every table of losses that is computed."""
    numbers: list[int] = []
    usual = FusedEngine.loss

    def counted(engine: FusedEngine, call: LossCall) -> Tensor:
        numbers.append(len(call.shards.count))
        return usual(engine, call)

    monkeypatch.setitem(FusedEngine.answers, LossCall, counted)
    return numbers


def clients_of(fed: Federation) -> SeedClients:
    engine = make_engine("fused", mlp(fed.pool.shape, 3, hidden=[4]), fed.pool, None)
    return SeedClients(engine, next(Static().rounds(fed, 0)))


Change = Callable[[SeedClients, Tensor, Tensor], tuple[SeedClients, Tensor, Tensor]]
OTHERS: dict[str, Change] = {
    "other clients": lambda clients, models, ids: (clients, models, ids[:-1]),
    "another order": lambda clients, models, ids: (clients, models, ids.flip(0)),
    "other models": lambda clients, models, ids: (clients, models.clone(), ids),
    "models changed in place": lambda clients, models, ids: (clients, models.mul_(2), ids),
    "other data": lambda clients, models, ids: (clients.at(shorter(clients.rnd)), models, ids),
}


def shorter(rnd: Round) -> Round:
    """The same round, every client with an example less."""
    train = Split.of([torch.arange(i, 54, CLIENTS) for i in range(CLIENTS)])
    return replace(rnd, fed=replace(rnd.fed, train=train))


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_only_the_same_losses_are_taken(change: Change, asked: list[int]) -> None:
    clients = clients_of(federation())
    models, ids = clients.init(clients.rnd.stream("init"), 2), clients.rnd.cohort
    first = clients.loss(models, ids)
    again = clients.loss(models, ids.clone())
    assert torch.equal(first, again)
    assert asked == [CLIENTS]
    assert clients.passes.forward == 2 * 2 * CLIENTS  # what a method asks for is its cost
    other = change(clients, models, ids)
    got = other[0].loss(*other[1:])
    assert len(asked) == 2
    fresh = replace(other[0], losses=LastLosses())
    assert torch.equal(got, fresh.loss(*other[1:]))


def test_losses_are_forgotten_with_their_models() -> None:
    clients = clients_of(federation())
    models = clients.init(clients.rnd.stream("init"), 2)
    clients.loss(models, clients.rnd.cohort)
    assert clients.losses._last is not None
    newer = models.clone()
    clients.loss(newer, clients.rnd.cohort)
    del models
    assert clients.losses._last is not None
    del newer
    assert clients.losses._last is None


def test_ifca_asks_once_a_round_where_all_take_part(asked: list[int]) -> None:
    """The losses its clients are served by are those that they choose by in the next round."""
    fed = federation()
    engine = make_engine("fused", mlp(fed.pool.shape, 3, hidden=[4]), fed.pool, None)
    algorithm = IFCA(solver=Solver(lr=0.1, batch_size=4), num_clusters=2)
    rounds = Static().rounds(fed, 0)
    simulation = Simulation(0, algorithm, Lockstep(engine), rounds)
    for _ in range(4):
        simulation.step(evaluated=True)
    assert asked == [CLIENTS] * 5
    simulation.step(evaluated=False)
    simulation.step(evaluated=False)
    assert asked == [CLIENTS] * 6


def test_a_seed_that_continues_asks_when_it_would_have_asked_anyway(asked: list[int]) -> None:
    """Or it would be computed in another company than without the interruption."""
    fed = federation()
    engine = make_engine("fused", mlp(fed.pool.shape, 3, hidden=[4]), fed.pool, None)
    algorithm = IFCA(solver=Solver(lr=0.1, batch_size=4), num_clusters=2)
    whole = Simulation(0, algorithm, Lockstep(engine), Static().rounds(fed, 0))
    for _ in range(3):
        whole.step(evaluated=True)
    saved = {name: value.clone() for name, value in fields_of(whole.state).items()}
    again = Simulation(0, algorithm, Lockstep(engine), Static().rounds(fed, 0))
    again.resume(2, saved, {})
    again.recall_losses()
    asked.clear()
    expected, found = (
        whole.step(evaluated=True),
        again.step(evaluated=True),
    )
    assert asked == [CLIENTS] * 2  # each for serving, neither to begin with
    assert torch.equal(expected.evaluation.loss_sum, found.evaluation.loss_sum)

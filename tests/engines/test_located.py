"""An error in a client's work names the client, the round and the local step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toys import federation_of, pool_of

from fedclust.core.front import Gradient, Train
from fedclust.core.types import Federation, Round
from fedclust.core.verbs import Engine
from fedclust.engines.clients import SeedClients
from fedclust.engines.located import ErrorPlace, at_rows, place_of
from fedclust.engines.lockstep import Lockstep
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.meter import meter
from fedclust.launch.failures import in_a_line
from fedclust.scenarios.static import Static
from fedclust.solver import Solver

CLIENTS, EACH = 5, 8
SOLVER = Solver(lr=0.1, batch_size=2, epochs=2)  # 8 steps


class Failing(nn.Module):
    """A layer that fails where it has met the examples of client 3 often enough."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.layer, self.after, self.met = nn.Linear(1, 2), after, 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training and bool((x > 100).any()):
            self.met += 1
            if self.met > self.after:
                raise RuntimeError("no such thing")
        return self.layer(x)


class Never(Failing):
    """A layer that fails in every batch of four."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 4:
            raise RuntimeError("no such thing")
        return self.layer(x)


def federation() -> Federation:
    owner = torch.arange(CLIENTS).repeat_interleave(EACH)
    x = torch.where(owner == 3, 200.0, 1.0).unsqueeze(1)
    return federation_of(pool_of(x, owner % 2, 2), torch.arange(CLIENTS * EACH).split(EACH))


def round_of(seed: int, t: int = 2) -> Round:
    return replace(next(Static().rounds(federation(), seed)), t=t)


def asked(engine: Engine, ids: Tensor, solver: Solver = SOLVER) -> Train:
    return Train(torch.zeros(1, engine.layout.num_params), 0 * ids, ids, solver)


@pytest.mark.parametrize("verb", ["train", "train_mean"])
def test_the_loop_names_client_round_and_step(verb: str) -> None:
    engine = LoopEngine(Failing(4), federation().pool)
    clients: Any = SeedClients(engine, round_of(0))
    with pytest.raises(RuntimeError) as error:
        getattr(clients, verb)(asked(engine, torch.tensor([4, 3, 1])))
    line = in_a_line(error.value, None)
    assert line == "client 3, round 2, local step 5 (seed 0): RuntimeError: no such thing"


def test_of_several_seeds_that_whose_client_it_is() -> None:
    """Seed 0 trains other clients; the calls of both are one."""
    lockstep = Lockstep(LoopEngine(Failing(1), federation().pool))
    work = {}
    for seed, ids in ((0, [0, 1]), (1, [2, 3])):
        clients = SeedClients(lockstep, round_of(seed))
        work[seed] = partial(clients.train, asked(lockstep, torch.tensor(ids)))
    with pytest.raises(RuntimeError) as error:
        lockstep.map(work)
    assert error.value.__notes__ == ["client 3, round 2, local step 2 (seed 1)"]
    assert not hasattr(error.value, "failed")
    inner = Lockstep(lockstep)  # seeds of a job that is a piece of work itself
    work = {
        seed: partial(SeedClients(inner, round_of(seed)).train, one.args[0])
        for seed, one in work.items()
    }
    with pytest.raises(RuntimeError) as error:
        lockstep.map({"job": partial(inner.map, work)})
    assert error.value.__notes__ == ["client 3, round 2, local step 1 (seed 1)"]


def test_an_engine_of_many_rows_says_which_they_were() -> None:
    engine = VmapEngine(Never(0), federation().pool, max_rows=2)
    clients = SeedClients(engine, round_of(0))
    solver = replace(SOLVER, batch_size=4)
    with pytest.raises(RuntimeError) as error:
        clients.train(asked(engine, torch.tensor([4, 2, 0]), solver))
    assert error.value.__notes__ == ["one of the clients 4, 2, round 2, local step 1 (seed 0)"]
    ids = torch.tensor([4, 2, 0])
    with pytest.raises(ValueError, match="got 1 parameters") as wrong:
        clients.grad(Gradient(torch.zeros(1, 1), 0 * ids, ids))
    assert wrong.value.__notes__ == ["gradients of one of the clients 4, 2, 0, round 2 (seed 0)"]


def test_rows_of_a_part_are_counted_as_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meter, "steps", 0)
    with pytest.raises(ValueError, match="x") as error, at_rows([7, 8, 9]), at_rows((2, 0)):
        raise ValueError("x")
    assert place_of(error.value) == ErrorPlace((9, 7))

"""Every engine tells how far a request is: all clients are counted, each once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_toys import RAGGED, SOLVERS, labels, ragged_shards, shape_of, shipped, starts, toy_pool

from fedclust.core.calls import GradCall, LossCall, TrainCall
from fedclust.core.types import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine
from fedclust.engines.lockstep import Lockstep
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.meter import Meter, meter
from fedclust.models.sequence import Model

ENGINES: dict[str, Callable[[Model, Pool], Engine]] = {
    "loop": LoopEngine,
    "vmap": lambda model, pool: VmapEngine(model, pool, max_rows=2),
    "fused": lambda model, pool: FusedEngine(model, pool, max_rows=2),
}


@pytest.mark.parametrize("kind", ENGINES)
def test_the_meter_ends_where_the_request_does(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ENGINES[kind](shipped("mlp128"), toy_pool(shape_of("mlp128")))
    told: list[tuple[str, str, int, int]] = []
    end = Meter.end

    def noted(self: Meter) -> None:
        told.append((self.doing, self.unit, self.done, self.total))
        end(self)

    monkeypatch.setattr(Meter, "end", noted)
    shards, solver, front = ragged_shards(), SOLVERS["sgd"], Lockstep(engine)
    models, label, rows = starts(engine), labels(len(RAGGED)), len(RAGGED)
    front.answer(TrainCall(models, label, shards, solver, solver.lr))
    front.answer(LossCall(models, shards))
    front.answer(GradCall(models, label, shards))
    by_models = ("loss table", "models", len(models), len(models))
    by_clients = ("loss table", "clients", rows, rows)
    assert told[0] == ("training", "clients", rows, rows)
    assert told[1] == (by_clients if kind == "vmap" else by_models)
    assert told[2] == ("gradients", "clients", rows, rows)
    assert meter.doing == ""

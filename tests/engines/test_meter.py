"""Every engine tells how far a request is: all clients are counted, each once."""

from __future__ import annotations

import pytest
from engine_toys import ENGINES, RAGGED, SOLVERS, labels, made, ragged_shards, starts

from fedclust.core.calls import GradCall, LossCall, TrainCall
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.meter import Meter, meter


@pytest.mark.parametrize("kind", ENGINES)
def test_the_meter_ends_where_the_request_does(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made(kind, "mlp128", **({} if kind == "loop" else {"max_rows": 2}))
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

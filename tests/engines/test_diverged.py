"""A row whose model is no number any more leaves all other rows as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from engine_toys import MODELS, SOLVERS, ragged_shards, shape_of, shipped, starts, toy_pool
from test_regression import WHERE
from torch import Tensor

from fedclust.core.calls import GradCall, LossCall, Shards, SumCall, TestCall, TrainCall
from fedclust.engines.fused import FusedEngine
from fedclust.models.cnn import cnn
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model
from fedclust.solver import Adam, Solver

# widths that fill no vector of 16 as well
ODD: dict[str, Model] = {
    "linear 49": mlp((1, 7, 7), 10, hidden=[]),
    "mlp 20": mlp((1, 7, 7), 10, hidden=[20]),
    "mlp 16": mlp((1, 8, 8), 10, hidden=[16]),
    "mlp 17, 5": mlp((1, 7, 7), 10, hidden=[17, 5]),
    "cnn 3, 17": cnn((1, 7, 7), 10, channels=[3, 17], kernel=3, padding=1, hidden=[20]),
    "cnn 17, 19": cnn((1, 7, 7), 10, channels=[17, 19], kernel=3, padding=1, hidden=[]),
}
BROKEN = {"nan": torch.nan, "inf": torch.inf, "large": 1e30}
DIVERGED = torch.tensor([0, 3])
HEALTHY = torch.tensor([1, 2, 4, 5, 6])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """All rows use the same memory, one after the other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shape(name: str) -> tuple[int, ...]:
    return shape_of(name) if name in MODELS else (1, 8, 8) if name == "mlp 16" else (1, 7, 7)


def engine_of(name: str, precision: str = "highest") -> FusedEngine:
    model = shipped(name) if name in MODELS else ODD[name]
    return FusedEngine(model, toy_pool(shape(name)), precision=precision)


def broken(models: Tensor, how: str) -> Tensor:
    """The first model of no use."""
    return torch.cat([models[:1] * BROKEN[how], models[1:]])


def rows_of() -> tuple[Shards, Tensor]:
    """Rows of equal size, and of the model of each."""
    return ragged_shards((6,) * 7), torch.full((7,), 1).index_fill(0, DIVERGED, 0)


def call_of(engine: FusedEngine, solver: Solver, models: Tensor) -> TrainCall:
    shards, label = rows_of()
    slots = starts(engine, 2) * 0.1 if solver.momentum else None
    anchor = starts(engine, 8)[1:] * 0.5 if solver.proximal else None
    return TrainCall(models, label, shards, solver, solver.lr, slots=slots, anchor=anchor)


@pytest.mark.thinned
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("precision", ["highest", "bf16"])
@pytest.mark.parametrize("solver", ["sgd", "momentum", "full_batch", "everything"])
@pytest.mark.parametrize("name", [*ODD, "linear", "mlp128", "jgl_mlp", "cnn_femnist_tiny"])
def test_a_diverged_row_changes_no_other(
    name: str, solver: str, precision: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedclust.engines.fused.plan.pays", WHERE[where])
    engine = engine_of(name, precision)
    models = starts(engine, 2)
    want = engine.answer(call_of(engine, SOLVERS[solver], models))
    for how in BROKEN:
        got = engine.answer(call_of(engine, SOLVERS[solver], broken(models, how)))
        assert how == "large" or not torch.isfinite(got.params[0]).all()
        torch.testing.assert_close(got.params[HEALTHY], want.params[HEALTHY])
        torch.testing.assert_close(got.loss[HEALTHY], want.loss[HEALTHY])


@pytest.mark.parametrize("name", ["linear 49", "mlp 17, 5"])
def test_a_diverged_row_under_adam_changes_no_other(name: str) -> None:
    """Where gradients are gathered, those of the row before are still there."""
    engine = engine_of(name)
    models = starts(engine, 2)

    def healthy(given: Tensor) -> Tensor:
        call = call_of(engine, SOLVERS["sgd"], given)
        return engine.answer(replace(call, solver=Adam(lr=0.01))).params[HEALTHY]

    torch.testing.assert_close(healthy(broken(models, "nan")), healthy(models))


@pytest.mark.thinned
@pytest.mark.parametrize("name", MODELS)
def test_no_shipped_model_lets_a_diverged_row_change_another(name: str) -> None:
    engine = engine_of(name)
    models = starts(engine, 2)
    solver = SOLVERS["momentum"]
    want = engine.answer(call_of(engine, solver, models))
    got = engine.answer(call_of(engine, solver, broken(models, "nan")))
    torch.testing.assert_close(got.params[HEALTHY], want.params[HEALTHY])
    torch.testing.assert_close(
        engine.answer(SumCall(call_of(engine, solver, broken(models, "nan")))).params[1],
        engine.answer(SumCall(call_of(engine, solver, models))).params[1],
    )


@pytest.mark.thinned
@pytest.mark.parametrize("precision", ["highest", "bf16"])
@pytest.mark.parametrize("name", [*ODD, *MODELS])
def test_a_diverged_model_changes_no_loss_and_no_gradient_of_another(
    name: str, precision: str
) -> None:
    engine = engine_of(name, precision)
    models, (shards, label) = starts(engine, 2), rows_of()
    bad = broken(models, "nan")
    for table in (engine.answer(LossCall(m, shards))[:, 1] for m in (bad, models)):
        torch.testing.assert_close(table, engine.answer(LossCall(models[1:], shards))[:, 0])
    got, want = (engine.answer(GradCall(m, label, shards))[HEALTHY] for m in (bad, models))
    torch.testing.assert_close(got, want)
    tested, well = (engine.answer(TestCall(m, label, shards)) for m in (bad, models))
    torch.testing.assert_close(tested.loss_sum[HEALTHY], well.loss_sum[HEALTHY])
    assert torch.equal(tested.sums[HEALTHY], well.sums[HEALTHY])


@pytest.mark.thinned
@pytest.mark.parametrize("name", [*ODD, "cnn_femnist_tiny"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_rate_too_small_for_float32_stands_still_beside_others(
    name: str, momentum: float
) -> None:
    engine = engine_of(name)
    solver = replace(SOLVERS["momentum"], momentum=momentum)
    calls = [
        call_of(engine, replace(solver, lr=lr), starts(engine, 2)) for lr in (0.05, 1e-50, 0.05)
    ]
    joined = TrainCall.merge(calls)
    result = engine.answer(joined)
    alone = engine.answer(calls[1])
    torch.testing.assert_close(result.loss[7:14], alone.loss)
    torch.testing.assert_close(result.params[7:14], alone.params)

"""Rows with a learning rate, proximal weight and weight decay of their own: as by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toys import (
    ENGINES,
    SOLVERS,
    labels,
    made,
    ragged_shards,
    shipped,
    starts,
    terms,
    toy_pool,
)

from fedclust.core.calls import LocalResult, SumCall, TrainCall, split, tensors_of
from fedclust.core.verbs import Engine
from fedclust.engines.sharded import fingerprint
from fedclust.models.mlp import mlp
from fedclust.solver import Solver

# the last one of each is that of the first: rows of different calls with one rate
NUMBERS: dict[str, list[dict[str, float]]] = {
    "lr": [{"lr": 0.05}, {"lr": 0.2}, {"lr": 0.003}, {"lr": 0.05}],
    "all": [
        {"lr": 0.05},
        {"lr": 0.2, "proximal": 0.1, "weight_decay": 0.0},
        {"lr": 0.01, "proximal": 2.0, "weight_decay": 0.3},
        {"lr": 0.05},
    ],
}


def calls_of(
    engine: Engine, how: Solver, numbers: str, *, more: bool = False, **others: Any
) -> list[TrainCall]:
    shards, models = ragged_shards(), starts(engine)
    slots = 0.01 * starts(engine, 4)[1:] if how.momentum else None
    given = terms(engine, shards) if more else {}
    made = []
    for number, own in enumerate(NUMBERS[numbers]):
        solver = replace(how, **own)
        start = models + 0.01 * number
        rows = labels(len(shards))
        more_of = {"slots": slots, **given, **others}
        made.append(TrainCall(start, rows, shards, solver, solver.lr, **more_of))
    return made


def same(got: LocalResult, want: LocalResult, *, exactly: bool) -> None:
    for name in ("params", "slots", "loss", "first_loss", "steps", "step_loss"):
        one, other = getattr(got, name), getattr(want, name)
        assert (one is None) == (other is None), name
        if one is None:
            continue
        off = {"rtol": 0.0, "atol": 0.0} if exactly else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(one, other, equal_nan=True, **off, msg=lambda m, n=name: n + m)


def check(engine: Engine, calls: list[TrainCall]) -> None:
    assert len({call.kind for call in calls}) == 1
    whole = TrainCall.merge(calls)
    assert whole.rates is not None
    for got, call in zip(split(engine.answer(whole), calls), calls, strict=True):
        same(got, engine.answer(call), exactly=engine.exact)


@pytest.mark.thinned
@pytest.mark.parametrize("solver", ["sgd", "momentum", "everything"])
@pytest.mark.parametrize("name", ["linear", "mlp128", "cnn_femnist_tiny"])
@pytest.mark.parametrize("kind", ENGINES)
def test_calls_that_differ_in_their_rates_are_one(kind: str, name: str, solver: str) -> None:
    engine = made(kind, name)
    check(engine, calls_of(engine, SOLVERS[solver], "all" if solver == "everything" else "lr"))


@pytest.mark.thinned
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("solver", ["sgd", "momentum"])
@pytest.mark.parametrize("kind", ENGINES)
def test_with_whatever_else_a_call_may_give(kind: str, solver: str, more: bool) -> None:
    engine = made(kind, "mlp128")
    still = engine.layout.mask(engine.layout.last_layers())
    check(engine, calls_of(engine, SOLVERS[solver], "lr", more=more, each_step=True, frozen=still))
    check(engine, calls_of(engine, SOLVERS[solver], "lr", more=more))


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_regression_in_the_span_of_many_passes(momentum: float) -> None:
    how = Solver(lr=0.1, batch_size=5, epochs=12, momentum=momentum)
    engine = ENGINES["fused"](shipped("linear", (1, 28, 28)), toy_pool((1, 28, 28)))
    check(engine, calls_of(engine, how, "lr"))
    check(engine, calls_of(engine, how, "lr", more=True))


@pytest.mark.parametrize("kind", ENGINES)
def test_a_penalty_of_the_model_is_times_every_row_s_rate(kind: str) -> None:
    engine = ENGINES[kind](mlp((1, 8, 8), 10, hidden=[16], l2=0.1), toy_pool((1, 8, 8)))
    check(engine, calls_of(engine, SOLVERS["sgd"], "lr"))


@pytest.mark.full
@pytest.mark.parametrize("kind", ENGINES)
def test_sums_of_calls_that_differ_in_their_rates(kind: str) -> None:
    engine = made(kind, "mlp128")
    calls = [SumCall(call) for call in calls_of(engine, SOLVERS["momentum"], "lr")]
    assert len({call.kind for call in calls}) == 1
    for got, call in zip(split(engine.answer(SumCall.merge(calls)), calls), calls, strict=True):
        want = engine.answer(call)
        off = {"rtol": 0.0, "atol": 0.0} if engine.exact else {"rtol": 1e-4, "atol": 1e-4}
        for name in ("params", "slots", "loss"):
            torch.testing.assert_close(getattr(got, name), getattr(want, name), **off)


def test_rates_are_there_only_where_rows_differ() -> None:
    engine = made("loop", "linear")
    first, second, _, last = calls_of(engine, SOLVERS["sgd"], "lr")
    assert TrainCall.merge([first, last]).rates is None
    merged = TrainCall.merge([first, second])
    assert merged.rates is not None
    rows = len(first.shards)
    assert merged.rates.lr.tolist() == [0.05] * rows + [0.2] * rows
    again = TrainCall.merge([merged, first])  # as a lockstep of locksteps does
    assert again.rates is not None
    assert again.rates.lr.tolist() == [0.05] * rows + [0.2] * rows + [0.05] * rows
    assert again.take(torch.tensor([rows, 0])).own_rates.lr.tolist() == [0.2, 0.05]
    assert again.take(torch.tensor([rows])).solver_of(0) == (first.solver, 0.2)


def test_other_solvers_stay_apart() -> None:
    engine = made("loop", "linear")
    calls = [calls_of(engine, SOLVERS[name], "lr")[0] for name in SOLVERS]
    shrunk = [call for call in calls if call.solver == SOLVERS["weight_decay"]]
    assert len({call.kind for call in calls}) == len(calls) - len(shrunk)


def test_ranks_notice_other_rates() -> None:
    engine = made("loop", "linear")
    first, second, third, _ = calls_of(engine, SOLVERS["sgd"], "lr")
    one, other = TrainCall.merge([first, second]), TrainCall.merge([first, third])
    other = replace(other, models=one.models)
    assert fingerprint(*tensors_of(one)) == fingerprint(*tensors_of(replace(one)))
    assert fingerprint(*tensors_of(one)) != fingerprint(*tensors_of(other))

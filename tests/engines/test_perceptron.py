"""Perceptrons in compiled code against PyTorch's operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toys import SOLVERS, made, ragged_shards, shipped, starts, toy_pool, training
from test_regression import WHERE, drawn_job
from test_span import assert_same
from torch import Tensor

from fedclust.core.calls import LocalResult, Shards
from fedclust.core.types import Pool
from fedclust.engines import make_engine
from fedclust.engines.fused import FusedEngine
from fedclust.engines.fused.native import dense, perceptron, softmax
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.span import pays
from fedclust.models.initial import named_init
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model, Stack
from fedclust.solver import Solver

COUNTS = (3, 7, 0, 1, 12, 10)
LAYERS = ([1], [17], [20, 9], [130], [33, 20, 7])


def train(
    model: Model,
    shards: Shards,
    solver: Solver,
    *,
    pool: Pool | None = None,
    precision: str = "highest",
    where: str = "spanned",
) -> LocalResult:
    """Local training, with momenta and anchors of every row."""
    engine = FusedEngine(model, pool or toy_pool((1, 8, 8)), precision=precision)
    slots = starts(engine, 5) * 0.1 if solver.momentum else None
    anchor = starts(engine, 9)[: len(shards)] * 0.5 if solver.proximal else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedclust.engines.fused.plan.pays", WHERE[where])
        patch.setattr(softmax, "trains", lambda *_: False)
        return engine.answer(training(engine, shards, solver, slots=slots, anchor=anchor))


def both(*given: Any, **how: Any) -> tuple[LocalResult, LocalResult]:
    """In compiled code, which has to have been called, and by PyTorch's operations."""
    calls: list[int] = []
    usual = perceptron.train_perceptron

    def counted(*arguments: Any) -> Tensor:
        calls.append(1)
        return usual(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perceptron, "train_perceptron", counted)
        fast = train(*given, **how)
        assert bool(calls) == (perceptron.compiled() is not None)
        patch.setattr(perceptron, "trains", lambda *_: False)
        calls.clear()
        slow = train(*given, **how)
        assert not calls
    return fast, slow


@pytest.mark.thinned
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_rounded_factors_give_what_a_simulation_gives(name: str, solver: str, where: str) -> None:
    call = (shipped(name), ragged_shards(COUNTS), SOLVERS[solver])
    exact, usual = both(*call, where=where)
    assert_same(exact, usual)
    fast, slow = both(*call, precision="bf16", where=where)
    rounding = (slow.params - exact.params).norm()
    assert (fast.params - slow.params).norm() < 0.05 * rounding
    torch.testing.assert_close(fast.loss, slow.loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_what_is_no_number_stays_none(wrong: float, where: str) -> None:
    """So that a run that diverges is noticed."""
    found = []
    for compiled in (True, False):
        engine = made("fused", "mlp")
        call = training(engine, ragged_shards(COUNTS), SOLVERS["sgd"])
        call.models[1, 0] = wrong  # a weight of the first layer
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fedclust.engines.fused.plan.pays", WHERE[where])
            if not compiled:
                patch.setattr(perceptron, "trains", lambda *_: False)
            found.append(engine.answer(call))
    fast, slow = found
    assert torch.equal(fast.loss.isnan(), slow.loss.isnan())
    assert torch.equal(fast.params.isnan().any(1), slow.params.isnan().any(1))
    assert slow.loss.isnan().any()


def test_a_row_does_not_depend_on_its_company() -> None:
    """Nor on the thread that computes it: to the bit."""
    shards, solver = ragged_shards(COUNTS), SOLVERS["sgd"]
    together = train(shipped("mlp"), shards, solver).params
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(train(shipped("mlp"), shards, solver).params, together)
    finally:
        torch.set_num_threads(threads)
    engine = made("fused", "mlp", max_rows=8)
    call = training(engine, shards, solver)
    for row in range(len(shards)):
        alone = engine.answer(call.take(torch.tensor([row]))).params[0]
        torch.testing.assert_close(alone, together[row], rtol=1e-5, atol=1e-6)


@pytest.mark.thinned
@pytest.mark.parametrize("job", range(60))
def test_jobs_drawn_at_random_are_those_of_the_plain_engine(
    monkeypatch: pytest.MonkeyPatch, job: int
) -> None:
    """All rows in the span of their examples, none, or as it pays."""
    where = [*WHERE.values(), pays][job % 3]
    monkeypatch.setattr("fedclust.engines.fused.plan.pays", where)
    model, pool, call = drawn_job(job, LAYERS)
    fast = make_engine("fused", model, pool).answer(call)
    slow = make_engine("loop", model, pool).answer(call)
    assert_same(fast, slow)


@pytest.mark.full
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("solver", ["sgd", "everything"])
def test_many_examples(solver: str, where: str) -> None:
    """More than one block of every product, rounded or not."""
    model, pool = mlp((1, 10, 10), 10, hidden=[70, 33]), toy_pool((1, 10, 10), 300)
    call = (model, ragged_shards((150, 70, 33)), SOLVERS[solver])
    exact, plain = both(*call, pool=pool, where=where)
    assert_same(exact, plain)
    fast, slow = both(*call, pool=pool, precision="bf16", where=where)
    rounding = (slow.params - exact.params).norm()
    assert (fast.params - slow.params).norm() < 0.05 * rounding


def taken(stack: Stack) -> list[tuple[int, bool]]:
    return list(dense.dense_layers(Network.of(stack.model())))


def test_only_perceptrons_are_taken() -> None:
    def stack() -> Stack:
        return Stack((1, 8, 8), named_init("torch"))

    assert taken(stack().linear(4).relu().linear(3)) == [(1, True), (3, False)]
    assert taken(stack().linear(4).linear(3)) == [(1, False), (2, False)]
    assert taken(stack().linear(3)) == [(1, False)]
    assert taken(stack().linear(4).relu().linear(3).relu()) == []
    assert taken(stack().linear(4).relu().dropout(0.5).linear(3)) == []
    assert taken(stack().conv(2, 3).relu().linear(4).relu().linear(3)) == []
    network, pool, none = Network.of(shipped("mlp")), toy_pool((1, 8, 8)), frozenset[str]()
    assert perceptron.trains(network, pool, none) == (perceptron.compiled() is not None)
    assert not perceptron.trains(network, pool, frozenset({"1.weight"}))
    assert not perceptron.trains(network, replace(pool, x=pool.x.to("meta")), none)

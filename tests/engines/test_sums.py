"""Sums of local training are those of its rows, whatever the blocks, the chunks and the company."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from engine_toys import ENGINES, SOLVERS, labels, made, ragged_shards, starts
from engine_toys import training as training_of
from torch import Tensor

from fedclust.core.calls import (
    GradCall,
    GradSumCall,
    LocalResult,
    SumCall,
    Sums,
    TrainCall,
)
from fedclust.core.verbs import Engine
from fedclust.engines import sums
from fedclust.engines.fused.native import adding
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.ops import add_to_clusters, cluster_sum

COUNTS = (3, 7, 0, 1, 12, 5, 5, 9)
WEIGHT = torch.tensor([3, 7, 0, 1, 12, 5, 5, 9])


def toy(engine: str, max_rows: int | None = None, model: str = "linear") -> Engine:
    chunks = {} if max_rows is None or engine == "loop" else {"max_rows": max_rows}
    return made(engine, model, **chunks)


def training(engine: Engine, solver: str = "momentum") -> TrainCall:
    """Eight rows of two of three models, with momenta."""
    how, shards = SOLVERS[solver], ragged_shards(COUNTS)
    slots = 0.01 * starts(engine, 4)[1:] if how.momentum else None
    shards = replace(shards, work=torch.linspace(0.3, 1, len(shards)))
    return training_of(engine, shards, how, label=labels(len(shards), 2), slots=slots)


def in_order(values: Tensor, label: Tensor, weight: Tensor | None) -> Tensor:
    """Sums [3, P] in float64, row after row."""
    total = torch.zeros(3, values.shape[1], dtype=torch.float64)
    for row, cluster in enumerate(label.tolist()):
        total[cluster] += values[row].double() * (1 if weight is None else int(weight[row]))
    return total


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("engine", ENGINES)
def test_sums_are_those_of_the_rows(engine: str, weight: Tensor | None) -> None:
    computing = toy(engine)
    call = training(computing)
    local, found = computing.answer(call), computing.answer(SumCall(call, weight))
    assert found.slots is not None
    assert local.slots is not None
    for total, values in ((found.params, local.params), (found.slots, local.slots)):
        if engine == "loop":  # as a mean of the rows would add them
            assert torch.equal(total, cluster_sum(values, call.label, 3, weight))
        else:
            assert torch.equal(total, in_order(values, call.label, weight))
    assert not found.params[2].any(), "a model that nobody trains"
    for name in ("loss", "first_loss", "steps"):
        assert torch.equal(getattr(found, name), getattr(local, name)), name


@pytest.mark.parametrize("engine", ENGINES)
def test_momenta_are_added_up_where_they_were_given(engine: str) -> None:
    computing = toy(engine)
    call = training(computing)
    assert computing.answer(SumCall(replace(call, slots=None))).slots is None
    assert computing.answer(SumCall(replace(call, solver=SOLVERS["sgd"]))).slots is None


def assert_same(a: Sums, b: Sums) -> None:
    for name in ("params", "slots", "loss", "first_loss", "steps"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name


@pytest.mark.full
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch, engine: str, rows: int) -> None:
    computing = toy(engine, max_rows=1)  # so that rows have the same bits in any chunk
    call = SumCall(training(computing), WEIGHT)
    whole = computing.answer(call)
    monkeypatch.setattr(adding, "compiled", lambda: None)  # with it `fused` has no blocks
    monkeypatch.setattr(sums, "_BLOCK_CPU", rows * call.models.shape[1] + 1)
    trained, train = list[int](), computing.answers[TrainCall]

    def noting(engine: Engine, some: TrainCall) -> LocalResult:
        trained.append(len(some.shards))
        return train(engine, some)

    monkeypatch.setitem(computing.answers, TrainCall, noting)
    assert_same(computing.answer(call), whole)
    assert max(trained) == rows, "more models than a block has"
    assert sum(trained) == len(COUNTS)


@pytest.mark.full
@pytest.mark.parametrize("max_rows", [2, 5])
@pytest.mark.parametrize("engine", ["vmap", "fused"])
def test_chunks_change_rounding_only(engine: str, max_rows: int) -> None:
    found = toy(engine, max_rows).answer(SumCall(training(toy(engine)), WEIGHT))
    loop = toy("loop").answer(SumCall(training(toy("loop")), WEIGHT))
    torch.testing.assert_close(found.params.float(), loop.params, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_company_does_not_show(engine: str, gradients: bool) -> None:
    """In sums of training or of gradients; those of fast engines' gradients to rounding."""
    computing: Any = toy(engine, max_rows=1)
    whole, summed = training(computing), GradSumCall if gradients else SumCall
    if gradients:
        whole = GradCall(whole.models, whole.label, whole.shards)
    calls = [
        summed(replace(whole.take(rows), models=whole.models + shift), WEIGHT[rows])
        for rows, shift in ((torch.arange(5), 0.0), (torch.arange(2, 8), 0.1))
    ]
    lockstep = Lockstep(computing)
    for i, turn in lockstep.map(
        {i: partial(lockstep.answer, one) for i, one in enumerate(calls)}
    ).items():
        together, alone = turn.outcome, computing.answer(calls[i])
        if not gradients:
            assert_same(together, alone)
        elif engine == "loop":
            assert torch.equal(together.total, alone.total)
        else:
            torch.testing.assert_close(together.total, alone.total, rtol=1e-5, atol=1e-5)


@pytest.mark.thinned
@pytest.mark.parametrize("model", ["linear", "cnn_femnist_tiny"])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("engine", ENGINES)
def test_sums_of_gradients(engine: str, weight: Tensor | None, model: str) -> None:
    computing = toy(engine, model=model)
    shards = ragged_shards(COUNTS)
    call = GradCall(starts(computing), labels(len(shards), 2), shards)
    rows, total = computing.answer(call), computing.answer(GradSumCall(call, weight)).total
    if weight is not None:
        rows = rows * weight.unsqueeze(1)
    if engine == "loop":
        assert torch.equal(total, cluster_sum(rows, call.label, 3))
    expected = in_order(rows, call.label, None).float()
    torch.testing.assert_close(total.float(), expected, rtol=1e-5, atol=1e-5)
    assert not total[2].any(), "a model of nobody"


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_compiled_code_adds_the_same_bits(weight: Tensor | None) -> None:
    values = torch.randn(8, 5000, generator=torch.Generator().manual_seed(0))
    label, factor = labels(8), torch.ones(8) if weight is None else weight
    totals = torch.zeros(2, 3, 5000, dtype=torch.float64)
    if not adding.adds(totals[0], values):
        pytest.skip("there is no compiler")
    adding.add(totals[0], values, label, factor.double())
    add_to_clusters(totals[1], values, label, weight)
    assert torch.equal(*totals)
    assert torch.equal(totals[0], in_order(values, label, weight))


def test_compiled_code_is_for_rows_on_the_host_in_one_piece() -> None:
    total, values = torch.zeros(3, 4, dtype=torch.float64), torch.zeros(8, 4)
    assert not adding.adds(total.float(), values)
    assert not adding.adds(total, values.T.contiguous().T)


def test_a_label_of_no_model_is_refused() -> None:
    computing = toy("fused")
    call = training(computing)
    with pytest.raises(ValueError, match="got labels from 0 to 3, expected 0 to 2"):
        computing.answer(SumCall(replace(call, label=torch.arange(8) % 4)))

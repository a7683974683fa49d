"""Two ranks together compute what one computes alone, row for row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from engine_toys import ENGINES, SOLVERS, made, ragged_shards, reading, starts, training
from torch import Tensor
from two_ranks import Pair

import fedclust.engines.sharded
from fedclust.core.calls import (
    GradSumCall,
    LossCall,
    PredictCall,
    SumCall,
    Sums,
)
from fedclust.core.verbs import Engine
from fedclust.engines.sharded import Sharded, deal, fingerprint, sharded
from fedclust.helpers.distributed import Ranks

# more rows than ranks, an empty row, one row for two ranks, none at all
COUNTS = [(3, 7, 0, 1, 12), (5,), ()]


def everything(engine: Engine, counts: tuple[int, ...], solver: str) -> dict[str, Tensor]:
    """The results of all verbs, by name."""
    shards, how = ragged_shards(counts), SOLVERS[solver]
    shards = replace(shards, work=torch.linspace(0.3, 1, len(shards)))
    call = training(engine, shards, how)
    models, label = call.models, call.label
    slots = 0.01 * starts(engine, 4)[1:] if how.momentum else None
    call = replace(call, slots=slots, anchor=0.5 * models[label] if how.proximal else None)
    local, sums = engine.answer(call), engine.answer(SumCall(call, shards.count))
    losses, gradients, test = reading(models, label, shards)
    loss_sum, correct = engine.answer(test)
    found = {
        "params": local.params,
        "train_loss": local.loss,
        "steps": local.steps,
        "sum": sums.params,
        "sum_of_gradients": engine.answer(GradSumCall(gradients, shards.count)).total,
        "summed_loss": sums.loss,
        "loss": engine.answer(losses),
        "grad": engine.answer(gradients),
        "loss_sum": loss_sum,
        "correct": correct,
        "said": engine.answer(PredictCall(models, label, shards)),
    }
    if local.slots is None:
        return found
    assert sums.slots is not None
    return found | {"slots": local.slots, "sum_of_slots": sums.slots}


def on_ranks(
    ranks: Ranks, engine: str, model: str, counts: tuple[int, ...], solver: str, block: int
) -> Mapping[str, Tensor]:
    """What one of the ranks gets."""
    before, fedclust.engines.sharded._BLOCK = fedclust.engines.sharded._BLOCK, block
    try:
        return everything(Sharded(made(engine, model), ranks), counts, solver)
    finally:
        fedclust.engines.sharded._BLOCK = before


def summed(ranks: Ranks, engine: str, block: int) -> tuple[Sums, list[tuple[int, ...]]]:
    """Sums over rows whose bits are the same on any rank, and the shapes that were exchanged."""
    before, fedclust.engines.sharded._BLOCK = fedclust.engines.sharded._BLOCK, block
    computing = made(engine, "linear", **({} if engine == "loop" else {"max_rows": 1}))
    shards = ragged_shards((1, 2, 3, 4, 5) * 4)
    call = training(computing, shards, SOLVERS["sgd"])
    if ranks.size == 1:
        return computing.answer(SumCall(call, shards.count)), []
    sent, gather = list[tuple[int, ...]](), ranks.gather

    def noting(part: Tensor) -> Tensor:
        sent.append(tuple(part.shape))
        return gather(part)

    vars(ranks)["gather"] = noting
    try:
        return Sharded(computing, ranks).answer(SumCall(call, shards.count)), sent
    finally:
        del vars(ranks)["gather"]
        fedclust.engines.sharded._BLOCK = before


def unlike(ranks: Ranks) -> str:
    """The error where the ranks ask for the loss of different models."""
    engine = made("loop", "linear")
    models = starts(engine) + 1e-7 * ranks.rank
    try:
        Sharded(engine, ranks).answer(LossCall(models, ragged_shards()))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


@pytest.mark.parametrize("solver", ["sgd", "everything"])
@pytest.mark.parametrize("model", ["linear", "cnn_femnist_tiny"])
@pytest.mark.parametrize("engine", ENGINES)
def test_two_ranks_compute_what_one_computes(
    two_ranks: Pair, engine: str, model: str, solver: str
) -> None:
    for counts in COUNTS:
        alone = everything(made(engine, model), counts, solver)
        first, second = two_ranks(on_ranks, engine, model, counts, solver, 16 << 20)
        assert first.keys() == second.keys() == alone.keys()
        for name, expected in alone.items():
            assert torch.equal(first[name], second[name]), name
            assert (first[name].dtype, first[name].shape) == (expected.dtype, expected.shape), name
            if engine == "loop":
                assert torch.equal(first[name], expected), name
            else:
                torch.testing.assert_close(first[name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block", [16 << 20, 6000])
@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_exchange_models_instead_of_rows(two_ranks: Pair, engine: str, block: int) -> None:
    alone, _ = summed(Ranks(), engine, block)
    for found, sent in two_ranks(summed, engine, block):
        assert torch.equal(found.params, alone.params)
        for name in ("loss", "first_loss", "steps"):
            assert torch.equal(getattr(found, name), getattr(alone, name)), name
        models = [shape[0] for shape in sent if shape[1:] == (650,)]  # of 64 * 10 + 10 parameters
        # three models each, or the ten rows that each has trained
        assert sum(models) == (10 if engine == "loop" else 3)
        assert max(models) == (sum(models) if block > 6000 else 2 if engine == "loop" else 1)


def test_large_results_are_sent_in_pieces(two_ranks: Pair) -> None:
    counts = (3, 7, 0, 1, 12, 2, 2, 5, 1)
    whole, pieces = (
        two_ranks(on_ranks, "loop", "linear", counts, "everything", block)[0]
        for block in (16 << 20, 6000)
    )
    assert all(torch.equal(value, pieces[name]) for name, value in whole.items())


def test_ranks_that_ask_for_different_things_are_told(two_ranks: Pair) -> None:
    said = two_ranks(unlike)
    assert said[0] == said[1]
    assert said[0].startswith(
        "RankFailed: rank 1 differs from rank 0 in what it is to compute (LossCall)"
    )


def test_one_rank_needs_no_shares() -> None:
    engine = made("loop", "linear")
    assert sharded(engine, Ranks()) is engine


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [0, 1, 5, 40])
def test_every_row_is_dealt_once_and_evenly(rows: int, ranks: int) -> None:
    work = torch.arange(rows) % 7
    dealt = deal(work, ranks)
    assert len(dealt) == ranks
    assert torch.cat(dealt).sort().values.tolist() == list(range(rows))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    shares = [int(work[own].sum()) for own in dealt]
    assert max(shares) - min(shares) <= 7


def test_a_fingerprint_sees_values_places_and_absence() -> None:
    a, b = torch.rand(300, 500), torch.arange(4)
    assert fingerprint(a, b, None) == fingerprint(a.clone(), b.clone(), None)
    others = [
        (a + 1e-6, b, None),
        (a.flip(0), b, None),
        (a, b.flip(0), None),
        (a, b, b),
        (a, None, None),
    ]
    assert len({fingerprint(a, b, None), *(fingerprint(*other) for other in others)}) == 6
    assert 0 <= fingerprint(a, -b) < 2**62
    assert fingerprint(torch.empty(0, 3)) >= 0

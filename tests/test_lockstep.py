"""Calls of different seeds that meet are one call of the engine, and nobody can tell."""

from __future__ import annotations

import threading
import weakref
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fedclust.core.calls import (
    GradCall,
    LocalResult,
    LossCall,
    Shards,
    TestCall,
    TestResult,
    TrainCall,
)
from fedclust.engines.base import Computing, by_rows
from fedclust.engines.lockstep import Lockstep
from fedclust.helpers.rng import Stream
from fedclust.models.params import Layout
from fedclust.solver import Solver


class Doubling(Computing[Any]):
    """An engine whose training doubles the start and adds the row's first index; it counts its
    calls.
    """

    name, exact = "doubling", True
    layout = Layout(names=("weight",), shapes=((2,),))

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.threads: set[int] = set()

    def init(self, stream: Stream) -> Tensor:
        return torch.zeros(2)

    def train(self, call: TrainCall) -> LocalResult:
        shards = call.shards
        self.calls.append(("train", len(shards)))
        self.threads.add(threading.get_ident())
        params = 2 * call.models[call.label] + shards.index[:, :1]
        slots = None if call.slots is None else call.slots[call.label] + 1
        loss = params.sum(1)
        return LocalResult(
            params=params, slots=slots, loss=loss, first_loss=loss, steps=shards.count
        )

    def loss(self, call: LossCall) -> Tensor:
        self.calls.append(("loss", len(call.shards)))
        return call.shards.count.unsqueeze(1) * call.models.sum(1)

    def grad(self, call: GradCall) -> Tensor:
        self.calls.append(("grad", len(call.shards)))
        return call.models[call.label]

    def test(self, call: TestCall) -> TestResult:
        self.calls.append(("test", len(call.shards)))
        loss_sum = call.models[call.label].sum(1).double()
        return TestResult(loss_sum=loss_sum, sums=call.shards.count[:, None].double())

    answers: ClassVar = by_rows(train, loss, grad, test)


def shards(*first: int, width: int = 3) -> Shards:
    index = torch.zeros(len(first), width, dtype=torch.int64)
    index[:, 0] = torch.tensor(first)
    return Shards(index=index, count=torch.full((len(first),), width), key=torch.arange(len(first)))


SOLVER = Solver(lr=0.1)


def trained(lockstep: Lockstep, *first: int, solver: Solver = SOLVER, **more: Any) -> LocalResult:
    """One model of ones, trained on rows that begin with these numbers."""
    label = torch.zeros(len(first), dtype=torch.int64)
    call = TrainCall(torch.ones(1, 2), label, shards(*first), solver, 0.1)
    return lockstep.answer(replace(call, **more))


def test_calls_that_meet_are_merged_and_results_go_back_to_their_seed() -> None:
    engine = Doubling()
    lockstep = Lockstep(engine)

    def work(seed: int) -> Any:
        models = torch.full((2, 2), float(seed))
        local = lockstep.answer(
            TrainCall(models, torch.tensor([1, 0]), shards(10 * seed, 7, width=seed), SOLVER, 0.1)
        )
        table = lockstep.answer(LossCall(models, shards(1, width=seed)))
        return (
            local.params,
            table,
            lockstep.answer(TestCall(models, torch.tensor([0]), shards(1, width=2))),
        )

    results = lockstep.map({seed: lambda seed=seed: work(seed) for seed in (1, 2, 5)})
    assert engine.calls == [("train", 6), ("loss", 1), ("loss", 1), ("loss", 1), ("test", 3)]
    for seed in (1, 2, 5):
        params, table, (loss_sum, correct) = results[seed].outcome
        assert params.tolist() == [[12.0 * seed] * 2, [2.0 * seed + 7] * 2]
        assert table.tolist() == [[2.0 * seed * seed] * 2]
        assert loss_sum.tolist() == [2.0 * seed]
        assert correct.tolist() == [[2]]


def test_everything_is_computed_on_the_calling_thread() -> None:
    engine = Doubling()
    lockstep = Lockstep(engine)

    lockstep.map(dict.fromkeys((0, 1), lambda: trained(lockstep, 1)))
    assert engine.threads == {threading.get_ident()}


def test_calls_with_other_batches_or_slots_are_not_merged() -> None:
    engine = Doubling()
    lockstep = Lockstep(engine)
    one, smaller = torch.ones(1, 2), replace(SOLVER, batch_size=7)
    works = {
        0: lambda: trained(lockstep, 1),
        1: lambda: trained(lockstep, 1, solver=smaller),
        2: lambda: trained(lockstep, 1, slots=one),
        3: lambda: trained(lockstep, 1, slots=one),
    }
    results = lockstep.map(works)
    assert sorted(engine.calls) == [("train", 1), ("train", 1), ("train", 2)]
    assert results[3].outcome.slots.tolist() == [[2.0, 2.0]]


def test_partial_work_stays_with_its_rows() -> None:
    class Working(Doubling):
        def train(self, call: TrainCall) -> LocalResult:
            work = call.shards.work
            assert work is not None
            self.calls.append(("work", len(work)))
            return replace(super().train(call), loss=work)

        answers: ClassVar = {**Doubling.answers, TrainCall: train}

    engine = Working()
    lockstep = Lockstep(engine)

    def work(part: list[float] | None) -> Tensor:
        some = replace(shards(1, 2), work=None if part is None else torch.tensor(part))
        return trained(lockstep, 1, 2, shards=some).loss

    parts = {0: [0.5, 1.0], 1: None, 2: [0.25, 0.75]}
    results = lockstep.map({seed: lambda part=part: work(part) for seed, part in parts.items()})
    assert engine.calls == [("work", 6), ("train", 6)]
    assert [results[s].outcome.tolist() for s in parts] == [[0.5, 1.0], [1.0, 1.0], [0.25, 0.75]]


def test_seeds_that_ask_for_different_numbers_of_things_all_finish() -> None:
    lockstep = Lockstep(Doubling())

    def work(times: int) -> float:
        value = torch.ones(1, 2)
        for _ in range(times):
            value = trained(lockstep, 0, models=value).params
        return float(value.sum())

    results = lockstep.map({n: lambda n=n: work(n) for n in range(4)})
    assert {n: turn.outcome for n, turn in results.items()} == {0: 2.0, 1: 4.0, 2: 8.0, 3: 16.0}


def test_one_seeds_error_leaves_the_others_alone() -> None:
    lockstep = Lockstep(Doubling())

    def train() -> Tensor:
        return trained(lockstep, 1).params

    def fail() -> Tensor:
        train()
        raise ValueError("mine")

    results = lockstep.map({0: fail, 1: train})
    assert isinstance(results[0].outcome, ValueError)
    assert torch.equal(results[1].outcome, train())


def test_an_error_of_the_engine_ends_all_seeds() -> None:
    class Broken(Doubling):
        def loss(self, call: LossCall) -> Tensor:
            raise RuntimeError("no memory")

        answers: ClassVar = {**Doubling.answers, LossCall: loss}

    lockstep, unwound = Lockstep(Broken()), []

    def ask(seed: int) -> Tensor:
        try:
            return lockstep.answer(LossCall(torch.ones(1, 2), shards(1)))
        finally:
            unwound.append(seed)

    with pytest.raises(RuntimeError, match="no memory"):
        lockstep.map({seed: lambda seed=seed: ask(seed) for seed in (0, 1)})
    assert unwound == [0, 1]


def test_an_interrupt_within_a_seed_ends_all_seeds() -> None:
    lockstep, unwound = Lockstep(Doubling()), []

    def wait() -> Tensor:
        try:
            return lockstep.answer(LossCall(torch.ones(1, 2), shards(1)))
        finally:
            unwound.append("waiting")

    def stop() -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lockstep.map({0: wait, 1: stop})
    assert unwound == ["waiting"]


def test_indexes_that_meet_again_are_merged_once() -> None:
    """As in every test: it is the same tensor, as long as all parts are the same."""

    def rows(*indexes: Tensor) -> list[Shards]:
        nobody = torch.zeros(2, dtype=torch.int64)
        return [Shards(index=index, count=nobody, key=nobody) for index in indexes]

    a, b, other = torch.zeros(2, 3), torch.ones(2, 2), torch.full((2, 1), 2.0)
    once = Shards.merge(rows(a, b)).index
    assert Shards.merge(rows(a, b)).index is once
    assert Shards.merge(rows(a, other)).index[2:].tolist() == [[2, 0, 0]] * 2
    assert Shards.merge(rows(a, b, other)).index.shape == (6, 3)
    assert torch.equal(Shards.merge(rows(a, b)).index, once)
    kept = weakref.ref(Shards.merge(rows(a, b)).index)
    del a, once
    assert kept() is None

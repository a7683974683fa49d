"""Rows on threads: the loop's results, whatever threads there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from engine_toys import (
    SOLVERS,
    labels,
    made,
    ragged_shards,
    reading,
    row_of,
    shape_of,
    shipped,
    starts,
    terms,
    toy_pool,
    training,
)
from torch import Tensor, nn

from fedclust.core.calls import LossCall, PredictCall
from fedclust.engines import make_engine
from fedclust.engines.loop import LoopEngine
from fedclust.engines.threads import ThreadsEngine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.meter import meter


@pytest.fixture(autouse=True, params=[2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """So many threads, which are there afterwards, too."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


def engine() -> ThreadsEngine:
    return ThreadsEngine(shipped("mlp128"), toy_pool(shape_of("mlp128")))


def close(got: Tensor | None, want: Tensor | None) -> None:
    assert (got is None) == (want is None)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("solver", ["momentum", "everything"])
def test_training_is_that_of_the_loop(solver: str) -> None:
    loop, how = made("loop", "mlp128"), SOLVERS[solver]
    more = terms(loop, ragged_shards()) | {"slots": 0.01 * starts(loop, 4)[1:], "each_step": True}
    call = training(loop, ragged_shards(), how, **more)
    got, want = engine().answer(call), loop.answer(call)
    assert float((want.params - call.models[call.label]).abs().max()) > 1e-2
    for name in ("params", "slots", "loss", "first_loss", "steps", "step_loss"):
        close(getattr(got, name), getattr(want, name))


@pytest.mark.full
def test_reading_is_that_of_the_loop() -> None:
    loop, shards, label = made("loop", "mlp128"), ragged_shards(), labels(5)
    models = starts(loop)
    calls = [*reading(models, label, shards), LossCall(models, shards, per_example=True)]
    for call in [*calls, PredictCall(models, label, shards)]:
        got, want = engine().answer(call), loop.answer(call)
        pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for one, other in pairs:
            close(one, other)


@pytest.mark.full
def test_a_row_alone_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processors share its operations; its numbers are the loop's."""
    loop, computing = made("loop", "mlp128"), engine()
    call = training(loop, row_of(ragged_shards(), 1), SOLVERS["sgd"])
    monkeypatch.delattr("fedclust.engines.threads.ThreadPoolExecutor")
    assert torch.equal(computing.answer(call).params, loop.answer(call).params)


def test_every_row_is_computed_on_one_processor(threads: int) -> None:
    """And no more rows at a time than there are threads."""
    met: list[int] = []

    class Noting(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            met.append(torch.get_num_threads())
            return super().forward(x)

    pool = toy_pool((1, 8, 8))
    computing = ThreadsEngine(Noting(nn.Flatten(), nn.Linear(64, 10)), pool)
    met.clear()
    call = training(computing, ragged_shards(), SOLVERS["sgd"])
    computing.answer(call)
    assert set(met) == {1}
    assert len(computing._loops) == threads


def test_clients_are_counted_once() -> None:
    computing, shards = engine(), ragged_shards()
    call = training(computing, shards, SOLVERS["sgd"])
    meter.begin("training", len(shards))
    computing.answer(call)
    assert (meter.done, meter.unit) == (len(shards), "clients")
    meter.begin("loss table", len(shards))
    computing.answer(LossCall(call.models, shards))
    assert (meter.total, meter.unit) == (len(shards), "clients")  # threads do not count models
    meter.end()


def test_an_error_is_that_of_the_loop() -> None:
    """It says in which row and step it happened, which threads do not know of each other."""

    class Failing(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            if self.training and len(x) == 4:  # the second batch of the second row only
                raise RuntimeError("no such thing")
            return super().forward(x)

    pool, found = toy_pool((1, 8, 8)), []
    for kind in (LoopEngine, ThreadsEngine):
        computing: Any = kind(Failing(nn.Flatten(), nn.Linear(64, 10)), pool)
        call = training(computing, ragged_shards((3, 9, 1)), SOLVERS["sgd"])
        with pytest.raises(RuntimeError, match="no such thing") as error:
            computing.answer(call)
        found.append(error.value.place)  # type: ignore[attr-defined]
    assert found[0] == found[1]
    assert found[0].rows == (1,)
    assert found[0].step == 2


def test_what_draws_is_refused() -> None:
    class Drawing(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + (torch.rand(1) if self.training else 0))

    with pytest.raises(ConfigError, match="draws random numbers"):
        make_engine("threads", Drawing(nn.Flatten(), nn.Linear(64, 10)), toy_pool((1, 8, 8)))

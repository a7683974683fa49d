"""Softmax regression in compiled code against PyTorch's operations, and the compiling itself."""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_toys import (
    SOLVERS,
    labels,
    made,
    ragged_shards,
    row_of,
    shipped,
    starts,
    toy_pool,
    training,
)
from test_span import assert_same, everywhere, nowhere
from torch import Tensor

from fedclust.core.calls import LocalResult, Rates, Shards, TestCall, TestResult, TrainCall
from fedclust.core.types import Pool
from fedclust.engines import make_engine
from fedclust.engines.fused import FusedEngine
from fedclust.engines.fused.native import compiled, perceptron, softmax
from fedclust.engines.fused.native.compiled import library
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.span import pays
from fedclust.models.initial import named_init
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model, Stack
from fedclust.solver import Solver

WHERE = {"spanned": everywhere, "as it stands": nowhere}


def both(
    solver: Solver,
    where: str = "spanned",
    *,
    own_anchor: bool = False,
    factor: float = 1.0,
    precision: str = "highest",
) -> tuple[LocalResult, LocalResult]:
    """Training of softmax regression in compiled code, and by PyTorch's operations."""
    shards = ragged_shards((3, 7, 0, 1, 12, 10))
    engine = made("fused", "linear", precision=precision)
    more = {"models": starts(engine) * factor}
    if solver.momentum:
        more["slots"] = starts(engine, 5) * 0.1
    if own_anchor and solver.proximal:
        more["anchor"] = starts(engine, 9)[: len(shards)] * 0.5
    call = training(engine, shards, solver, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedclust.engines.fused.plan.pays", WHERE[where])
        fast = engine.answer(call)
        patch.setattr(softmax, "trains", lambda *_: False)
        patch.setattr(perceptron, "trains", lambda *_: False)
        return fast, made("fused", "linear", precision=precision).answer(call)


@pytest.mark.thinned
@pytest.mark.parametrize("own_anchor", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("where", WHERE)
def test_rounded_factors_give_what_a_simulation_gives(
    where: str, solver: str, own_anchor: bool
) -> None:
    exact, usual = both(SOLVERS[solver], where, own_anchor=own_anchor)
    assert_same(exact, usual)
    fast, slow = both(SOLVERS[solver], where, own_anchor=own_anchor, precision="bf16")
    rounding = (slow.params - exact.params).norm()
    assert (fast.params - slow.params).norm() < 0.05 * rounding
    torch.testing.assert_close(fast.loss, slow.loss, rtol=1e-4, atol=1e-5)


def both_tests(model: Model, pool: Pool, shards: Shards, factor: float = 1.0) -> list[TestResult]:
    """A test in compiled code, and by PyTorch's operations."""
    found = []
    for scores in (softmax.scores, lambda *_: False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(softmax, "scores", scores)
            engine = FusedEngine(model, pool)
            models = starts(engine) * factor
            found.append(engine.answer(TestCall(models, labels(len(shards)), shards)))
    return found


def shared_images(pool: Pool) -> Pool:
    """The pool with every image once for two examples."""
    image = torch.arange(len(pool.y)) // 2
    return replace(pool, x=pool.x[: len(pool.x) // 2].contiguous(), image=image)


def pixel_by_pixel(pool: Pool) -> Pool:
    """The pool with float32 images and another scale for every pixel."""
    scale = torch.linspace(0.5, 2, 64).view(1, 8, 8) / 128
    return replace(pool, x=pool.x.float(), scale=scale, shift=-scale)


POOLS = {"bytes": lambda pool: pool, "floats": pixel_by_pixel, "shared images": shared_images}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", ["linear", "mclr"])
def test_tests_are_those_of_pytorch(name: str, pool: str) -> None:
    shards = ragged_shards((3, 7, 0, 1, 12, 10))
    fast, slow = both_tests(shipped(name), POOLS[pool](toy_pool((1, 8, 8))), shards, 3.0)
    assert torch.equal(fast.sums, slow.sums)
    assert 0 < fast.sums.sum() < 33
    torch.testing.assert_close(fast.loss_sum, slow.loss_sum, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("classes", "width"), [(2, 1), (16, 5), (17, 16), (62, 33)])
def test_tests_of_any_number_of_classes_and_features(classes: int, width: int) -> None:
    pool = toy_pool((width,))
    pool = replace(pool, num_classes=classes, y=torch.arange(len(pool.y)) % classes)
    model = mlp((width,), classes, hidden=[])
    fast, slow = both_tests(model, pool, ragged_shards((25, 3)))
    assert torch.equal(fast.sums, slow.sums)
    torch.testing.assert_close(fast.loss_sum, slow.loss_sum, rtol=1e-6, atol=1e-6)


def test_tests_of_huge_logits_and_of_what_is_no_number() -> None:
    fast, slow = both_tests(shipped("linear"), toy_pool((1, 8, 8)), ragged_shards(), 1e4)
    assert slow.loss_sum.max() > 1000
    torch.testing.assert_close(fast.loss_sum, slow.loss_sum, rtol=1e-5, atol=1e-3)
    fast, _ = both_tests(shipped("linear"), toy_pool((1, 8, 8)), ragged_shards(), torch.nan)
    assert fast.loss_sum.isnan().tolist() == [True, True, False, True, True]


def test_a_test_of_a_row_has_the_same_bits_in_any_company() -> None:
    engine, shards = made("fused", "linear"), ragged_shards()
    if not softmax.scores(engine.network, engine.pool, engine.products):
        pytest.skip("there is no compiler")
    models, label = starts(engine), labels(len(shards))
    whole = engine.answer(TestCall(models, label, shards))
    for row in range(len(shards)):
        alone = engine.answer(TestCall(models, label[row : row + 1], row_of(shards, row)))
        assert alone.loss_sum[0] == whole.loss_sum[row]
        assert alone.sums[0] == whole.sums[row]


@pytest.mark.parametrize("where", WHERE)
def test_a_row_without_a_step_keeps_its_bits(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr("fedclust.engines.fused.plan.pays", WHERE[where])
    engine = made("fused", "linear")
    call = training(engine, ragged_shards((4, 0)), SOLVERS["sgd"])
    found = engine.answer(call)
    assert torch.equal(found.params[1], call.models[call.label[1]])
    assert found.loss[1] == 0


@pytest.mark.parametrize("where", WHERE)
def test_huge_logits(where: str) -> None:
    """Losses of thousands of nats are exact, and certain predictions cost nothing."""
    fast, slow = both(Solver(lr=1e-3, batch_size=5, epochs=1), where, factor=1e4)
    assert slow.loss.max() > 1000
    torch.testing.assert_close(fast.loss, slow.loss, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(fast.params, slow.params, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("where", WHERE)
def test_what_is_not_a_number_stays_so(where: str) -> None:
    """The engine's front finds models that diverged by their loss."""
    for factor in (float("nan"), float("inf")):
        fast, _ = both(SOLVERS["sgd"], where, factor=factor)
        assert not fast.loss[[0, 1, 3, 4]].isfinite().any()


def drawn_job(job: int, layers: Sequence[list[int]] = ([],)) -> tuple[Model, Pool, TrainCall]:
    """Local training of a shape, one of the `layers`, a solver and terms drawn at random."""
    draw, like = random.Random(job), torch.Generator().manual_seed(job)
    features, classes = draw.choice([1, 5, 16, 31, 64]), draw.choice([2, 10, 16, 17, 33, 62])
    rows = draw.choice([1, 3, 8])
    counts = tuple(draw.choice([0, 1, 4, 9, 17, 60]) for _ in range(rows))
    pool = toy_pool((features,), max(sum(counts), 60), job)
    pool.y.remainder_(classes)
    epochs = draw.choice([1, 2, 5, None])
    solver = Solver(
        lr=draw.choice([0.02, 0.1]),
        batch_size=draw.choice([1, 4, 10, None]),
        epochs=epochs,
        steps=None if epochs else draw.choice([1, 7]),
        momentum=draw.choice([0.0, 0.0, 0.5, 0.9]),
        proximal=draw.choice([0.0, 0.0, 0.1, 1.0]),
        weight_decay=draw.choice([0.0, 0.0, 0.01]),
    )
    model = mlp((features,), classes, hidden=draw.choice(layers), l2=draw.choice([0.0, 0.01]))
    shards = ragged_shards(counts)
    if draw.random() < 0.3:
        shards = replace(shards, work=torch.rand(rows, generator=like).clamp(min=0.05))
    size = sum(value.numel() for value in model.parameters())

    def numbers(count: int, chance: float, scale: float = 0.1) -> Tensor | None:
        found = scale * torch.randn(count, size, generator=like)
        return found if draw.random() < chance else None

    def own(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(rows, generator=like, dtype=torch.float64)

    weight = torch.rand(shards.index.shape, generator=like) * 2
    rates = Rates(lr=own(0.01, 0.1), proximal=own(0, 1), weight_decay=own(0, 0.1))
    return (
        model,
        pool,
        TrainCall(
            models=0.1 * torch.randn(3, size, generator=like),
            label=labels(rows),
            shards=shards,
            solver=solver,
            lr=solver.lr,
            slots=numbers(3, 0.5) if solver.momentum else None,
            anchor=numbers(rows, 0.5) if solver.proximal else None,
            linear=numbers(rows, 0.3),
            example_weight=weight if draw.random() < 0.3 else None,
            each_step=draw.random() < 0.1,
            rates=rates if draw.random() < 0.2 else None,
        ),
    )


@pytest.mark.thinned
@pytest.mark.parametrize("job", range(60))
def test_jobs_drawn_at_random_are_those_of_the_plain_engine(
    monkeypatch: pytest.MonkeyPatch, job: int
) -> None:
    """All rows in the span of their examples, none, or as it pays."""
    where = [everywhere, nowhere, pays][job % 3]
    monkeypatch.setattr("fedclust.engines.fused.plan.pays", where)
    model, pool, call = drawn_job(job)
    fast = make_engine("fused", model, pool).answer(call)
    slow = make_engine("loop", model, pool).answer(call)
    assert_same(fast, slow)


def test_only_softmax_regression_is_taken() -> None:
    assert Network.of(shipped("linear")).is_regression
    assert Network.of(mlp((5,), 3, hidden=[])).is_regression
    assert not Network.of(shipped("mlp")).is_regression
    assert not Network.of(shipped("cnn", (1, 28, 28))).is_regression
    assert not Network.of(
        Stack((5,), named_init("torch")).linear(4).linear(3).model()
    ).is_regression


def works(found: ctypes.CDLL | None) -> bool:
    """Whether a library is there exactly where this machine has a compiler."""
    return (found is not None) == (compiled._compiler() is not None)


@pytest.mark.full
@pytest.mark.parametrize(
    "left", [0.5, *(pytest.param(x, marks=pytest.mark.slow) for x in (0, 0.2, 0.999))]
)
def test_libraries_are_kept_and_mended(fresh: Path, left: float) -> None:
    """Half a library is not loaded: that would end the process by a signal."""
    assert works(library("softmax"))
    kept = list(fresh.glob("*")) if fresh.exists() else []
    assert len(kept) == (compiled._compiler() is not None)
    for path in kept:
        content = path.read_bytes()
        path.write_bytes(content[: int(left * len(content))])
    library.cache_clear()
    assert works(library("softmax"))
    assert sorted(fresh.glob("*")) == kept
    assert all(compiled._is_whole(path) for path in kept)


@pytest.mark.full
def test_a_cache_folder_that_cannot_be_written(fresh: Path) -> None:
    fresh.write_text("a file in its place")
    assert works(library("softmax"))


@pytest.mark.full
@pytest.mark.parametrize("compiler", ["/no/such/compiler", "false", "true", "sh -c 'exit 3'"])
def test_without_a_compiler_nothing_is_lost(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert library("softmax") is None
    assert softmax.compiled() is None
    assert not fresh.exists()
    fast, slow = both(SOLVERS["sgd"])
    assert torch.equal(fast.params, slow.params)


@pytest.mark.parametrize("compiler", ["no-such-compiler -O2", "cc 'x"])
def test_a_compiler_that_is_asked_for_is_missed(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert library("softmax") is None
    assert f"CC={compiler} is no program" in caplog.text
    assert not fresh.exists()


@pytest.mark.full
def test_another_processor_gets_its_own_library(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library("softmax")
    monkeypatch.setattr(compiled, "processor", lambda: "another one of the same cluster")
    library.cache_clear()
    library("softmax")
    assert len(list(fresh.parent.glob("fedclust/*"))) == 2 * (compiled._compiler() is not None)


def test_a_compiler_that_hangs_costs_one_short_wait(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "slow_cc"
    script.write_text("#!/bin/sh\nsleep 100\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setattr(compiled, "_LONGEST", 0.2)
    monkeypatch.setattr(compiled, "_hanging", set())
    began = time.monotonic()
    assert library("softmax") is None
    assert library("convolution") is None
    assert time.monotonic() - began < 2
    assert [record.message for record in caplog.records if "did not answer" in record.message] == [
        f"{script} did not answer for 0.2 s; going on without a compiled softmax.c, set CC to "
        "another compiler"
    ]

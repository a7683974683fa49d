"""The kernels against PyTorch's operations, in Triton's interpreter; `test_kernels.py` runs this
file.

The interpreter computes on the CPU what a GPU would. It has to be chosen before Triton is imported,
and then holds for the whole process: TRITON_INTERPRET=1.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from engine_toys import SOLVERS, made, ragged_shards, shipped, starts, terms, toy_pool, training
from test_regression import WHERE
from test_span import assert_same
from torch import Tensor, nn

from fedclust.core.calls import LocalResult, Shards
from fedclust.core.types import Pool
from fedclust.engines.fused import FusedEngine, gpu, products
from fedclust.engines.fused.cuda import gather
from fedclust.engines.fused.cuda import softmax as launched_softmax
from fedclust.engines.fused.native import perceptron, softmax
from fedclust.engines.fused.network import Network
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model
from fedclust.solver import Solver

CPU = torch.device("cpu")
TERMS = [("linear",), ("example_weight",), ("linear", "example_weight")]


@pytest.fixture(autouse=True)
def launches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The CPU passes for a device of kernels; how often each was used."""
    counts: Counter[str] = Counter()

    def counted(module: ModuleType, function: str) -> None:
        original = getattr(module, function)

        def call(*args: object, **kwargs: object) -> object:
            counts[module.__name__.rpartition(".")[2]] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(module, function, call)

    monkeypatch.setattr(gpu, "runs_on", lambda _: True)
    monkeypatch.setenv("FEDCLUST_KERNELS", "all")
    assert gpu.kernel("gather", CPU) is gather
    assert gpu.kernel("softmax", CPU) is launched_softmax
    counted(gather, "rows_into")
    counted(launched_softmax, "train")
    return counts


SCALES = [(), (1,), (3, 1, 1), (3, 5, 7), (1, 5, 7), (1, 5, 1), (7,), (3, 1, 7)]


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
@pytest.mark.parametrize("scale", SCALES)
def test_rows_of_a_pool(launches: Counter[str], scale: tuple[int, ...], kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    more = {
        "scale": torch.rand(scale, generator=generator),
        "shift": torch.rand(scale[1:], generator=generator),
    }
    plain = toy_pool((3, 5, 7))
    pool = replace(plain, x=plain.x.to(kind), **more)
    assert_same_rows(pool, torch.randint(60, (3, 2), generator=generator))
    assert launches["gather"] == 1


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (5,), (1, 1, 1025)])
@pytest.mark.parametrize(
    "index", [torch.tensor([59, 0, 7]), torch.tensor(3), torch.arange(24).view(4, 6).T[:5]]
)
def test_rows_of_any_shape(shape: tuple[int, ...], index: Tensor) -> None:
    assert_same_rows(toy_pool(shape), index)


def assert_same_rows(pool: Pool, index: Tensor) -> None:
    found = launched(pool).inputs(index)
    torch.testing.assert_close(found, pool.inputs(index), rtol=1e-6, atol=1e-6)


def launched(pool: Pool) -> Pool:
    """The pool whose examples the kernel gathers."""
    return replace(pool, gather=gather.rows_into)


def test_no_rows(launches: Counter[str]) -> None:
    pool, index = launched(toy_pool((1, 4, 4))), torch.empty(0, 3, dtype=torch.int64)
    assert pool.inputs(index).shape == (0, 3, 1, 4, 4)


def both(
    solver: Any,
    where: str,
    shards: Shards | None = None,
    *,
    model: Model | None = None,
    pool: Pool | None = None,
    own_anchor: bool = False,
    factor: float = 1.0,
    given: tuple[str, ...] = (),
    precision: str = "highest",
) -> tuple[LocalResult, LocalResult]:
    """Local training of softmax regression by the kernel, and by PyTorch's operations."""
    model, pool = model or shipped("linear"), pool or toy_pool((1, 8, 8))
    engine = FusedEngine(model, pool, precision=precision)
    shards = ragged_shards() if shards is None else shards
    more: dict[str, Any] = {name: terms(engine, shards)[name] for name in given}
    if solver.momentum:
        more["slots"] = starts(engine, 5) * 0.1
    if own_anchor and solver.proximal:
        more["anchor"] = starts(engine, 9)[: len(shards)] * 0.5
    call = training(engine, shards, solver, models=starts(engine) * factor, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedclust.engines.fused.plan.pays", WHERE[where])
        by_kernel = engine.answer(call)
        patch.setattr(gpu, "runs_on", lambda _: False)
        for compiled in (softmax, perceptron):
            patch.setattr(compiled, "trains", lambda *_: False)
        return by_kernel, FusedEngine(model, pool, precision=precision).answer(call)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", ["linear", "mclr"])
def test_every_solver_moves_the_weights_alike(
    launches: Counter[str], name: str, where: str, solver: str
) -> None:
    shards = ragged_shards((3, 7, 0, 1, 12))
    for own in [False, True] if SOLVERS[solver].proximal else [False]:
        assert_same(*both(SOLVERS[solver], where, shards, model=shipped(name), own_anchor=own))
    assert launches["softmax"]


@pytest.mark.parametrize("classes", [2, 17, 62])
@pytest.mark.parametrize("where", WHERE)
def test_any_number_of_classes_and_features(where: str, classes: int) -> None:
    pool = replace(toy_pool((1, 17, 17)), num_classes=classes)
    pool = replace(pool, y=torch.arange(len(pool.y)) % classes)
    model = mlp((1, 17, 17), classes, hidden=[], l2=0.01)
    shards = ragged_shards((9, 3))
    assert_same(*both(SOLVERS["everything"], where, shards, model=model, pool=pool))


@pytest.mark.parametrize("where", WHERE)
def test_no_bias(where: str) -> None:
    layers = [nn.Flatten(), nn.Linear(64, 10, bias=False)]

    def kernel_only(layer: nn.Linear | nn.Conv2d, generator: torch.Generator) -> tuple[Tensor]:
        return (torch.randn(layer.weight.shape, generator=generator) / 8,)

    model = Model(layers, [(1, 8, 8), (64,), (10,)], [kernel_only], {})  # type: ignore[list-item]
    for solver in ("sgd", "everything"):
        assert_same(*both(SOLVERS[solver], where, ragged_shards((3, 7)), model=model))


@pytest.mark.parametrize("where", WHERE)
def test_batches_of_more_than_one_block(where: str) -> None:
    solver, shards = replace(SOLVERS["everything"], batch_size=None), ragged_shards((41, 20, 3))
    assert_same(*both(solver, where, shards, pool=toy_pool((1, 8, 8), 90)))


@pytest.mark.parametrize("given", TERMS)
@pytest.mark.parametrize("solver", ["sgd", "everything"])
@pytest.mark.parametrize("where", WHERE)
def test_terms_of_a_call_move_the_weights_alike(
    where: str, solver: str, given: tuple[str, ...]
) -> None:
    assert_same(*both(SOLVERS[solver], where, given=given))


@pytest.mark.parametrize("where", WHERE)
def test_stragglers(where: str) -> None:
    work = torch.tensor([1.0, 0.2, 0.0], dtype=torch.float64)
    assert_same(*both(SOLVERS["everything"], where, replace(ragged_shards((12,) * 3), work=work)))


@pytest.mark.parametrize("where", WHERE)
def test_a_row_without_a_step_keeps_its_bits(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr("fedclust.engines.fused.plan.pays", WHERE[where])
    engine = made("fused", "linear")
    call = training(engine, ragged_shards((4, 0)), SOLVERS["sgd"])
    found = engine.answer(call)
    assert torch.equal(found.params[1], call.models[call.label[1]])
    assert found.loss[1] == 0


@pytest.mark.parametrize("where", WHERE)
def test_huge_logits_and_no_numbers(where: str) -> None:
    solver = Solver(lr=1e-3, batch_size=5, epochs=1)
    by_kernel, slow = both(solver, where, factor=1e4)
    assert slow.loss.max() > 1000
    torch.testing.assert_close(by_kernel.loss, slow.loss, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(by_kernel.params, slow.params, rtol=1e-4, atol=1e-2)
    for factor in (float("nan"), float("inf")):
        by_kernel, _ = both(solver, where, factor=factor)
        assert not by_kernel.loss[[0, 1, 3, 4]].isfinite().any()


@pytest.mark.parametrize("where", WHERE)
def test_factors_are_rounded_to_bfloat16(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """The interpreter cuts numbers off, where a GPU rounds them."""
    # what is compiled rounds, too
    monkeypatch.setattr(perceptron, "trains", lambda *_: False)
    monkeypatch.setattr(
        products, "in_bfloat16", lambda x: (x.view(torch.int32) & -(1 << 16)).view(torch.float32)
    )
    exact, _ = both(SOLVERS["sgd"], where)
    rounded, expected = both(SOLVERS["sgd"], where, precision="bf16")
    off, way = rounded.params - expected.params, exact.params - expected.params
    assert off.norm() < 0.1 * way.norm()  # a sum in another order may cut off at the next number


@pytest.mark.parametrize("number", ["lr", "momentum", "decay", "bias_decay", "pull"])
def test_a_wrong_number_is_noticed(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    train = launched_softmax.train

    def wrong(**job: Any) -> None:
        train(**{**job, number: 1.1 * job[number]})

    assert launched_softmax.agrees(CPU)
    monkeypatch.setattr(launched_softmax, "train", wrong)
    assert not launched_softmax.agrees(CPU)


def test_models_with_too_many_classes_are_left_to_pytorch() -> None:
    for model, taken in (
        (mlp((5,), 128, hidden=[]), True),
        (mlp((5,), 129, hidden=[]), False),
        (shipped("mlp"), False),
    ):
        assert gpu.trains_in_one_launch(Network.of(model), CPU, frozenset()) == taken

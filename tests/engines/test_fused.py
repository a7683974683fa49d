"""What is particular to the fused engine: its layers, blocks, groups and memory."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from engine_toys import (
    FAST,
    SOLVERS,
    labels,
    made,
    ragged_shards,
    reading,
    shipped,
    starts,
    toy_pool,
    training,
)
from torch import Tensor, nn

from fedclust.core.calls import Shards, TestCall, TrainCall, split
from fedclust.core.pool import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine, chunk, layers, tested_examples
from fedclust.engines.fused import training as training_steps
from fedclust.engines.fused.native import convolution, perceptron
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.models.sequence import Model
from fedclust.solver import Solver

# every option of every layer that the shipped models leave at its usual value; odd() puts a dense
# layer of five classes behind each
ODD = {
    "strided": [nn.Conv2d(2, 3, 3, stride=2), nn.ReLU()],
    "oblong": [nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(2, 1))],
    "dilated": [nn.Conv2d(2, 3, 3, padding=1, dilation=2), nn.ReLU()],
    "no_bias": [nn.Conv2d(2, 3, 3, bias=False), nn.ReLU()],
    "overlapping_pool": [nn.Conv2d(2, 3, 3), nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)],
    "pool_first": [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 5), nn.ReLU()],
    "one_sided_padding": [
        *(nn.ZeroPad2d((1, 2, 0, 3)), nn.Conv2d(2, 4, 3), nn.ReLU()),
        *(nn.ZeroPad2d((0, 1, 2, 0)), nn.Conv2d(4, 2, 5)),
    ],
    "even_response_norm": [
        *(nn.Conv2d(2, 7, 3), nn.LocalResponseNorm(4, alpha=0.5, beta=0.6, k=2.0)),
        *(nn.ReLU(), nn.LocalResponseNorm(3, alpha=2.0)),
    ],
    "dropout_everywhere": [
        *(nn.Conv2d(2, 3, 3), nn.Dropout(0.2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(108, 9), nn.ReLU(), nn.Dropout(0.5)),
    ],
}


def odd(name: str) -> Model:
    """One of `ODD` for images of shape (2, 8, 8), with an L2 penalty on its first kernel."""
    layers, x = list(ODD[name]), torch.zeros(1, 2, 8, 8)
    shapes = [tuple(x.shape[1:])]
    size = nn.Sequential(*layers)(x).numel()
    flat = any(isinstance(layer, nn.Flatten) for layer in layers)
    layers += [*([] if flat else [nn.Flatten()]), nn.Linear(size, 5, bias=name != "no_bias")]
    for layer in layers:
        x = layer(x)
        shapes.append(tuple(x.shape[1:]))
    first = next(name for name, _ in nn.Sequential(*layers).named_parameters())
    return Model(layers, shapes, [], {first: 0.05})


def odd_pool() -> Pool:
    """Examples of five classes for it."""
    pool = toy_pool((2, 8, 8))
    pool.y.remainder_(5)
    return pool


def everything(
    engine: Engine, solver: Solver, models: Tensor | None = None, shards: Shards | None = None
) -> list[Tensor]:
    """All that the verbs return, by default on ragged rows of three initial models."""
    shards = ragged_shards() if shards is None else shards
    call = training(engine, shards, solver, models=models)
    result = engine.answer(call)
    *read, evaluation = (engine.answer(one) for one in reading(call.models, call.label, shards))
    slots = [] if result.slots is None else [result.slots]
    return [result.params, *slots, result.loss, result.steps, *read, *evaluation]


def close(got: Sequence[Tensor], want: Sequence[Tensor], tolerance: float) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=["compiled", "row by row", "stacked"])
def _images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways to compute convolutions on CPUs with a compiler and without, and on GPUs."""
    if request.param != "compiled":
        monkeypatch.setattr(layers, "convolving", lambda *_: request.param)


@pytest.mark.thinned
@pytest.mark.usefixtures("_images")
@pytest.mark.parametrize("solver", ["sgd", "everything"])
@pytest.mark.parametrize("name", ODD)
def test_every_layer_option_equals_the_loop(name: str, solver: str) -> None:
    loop, fused = (kind(odd(name), odd_pool()) for kind in (LoopEngine, FusedEngine))
    draw = torch.Generator().manual_seed(5)
    models = 0.2 * torch.randn(3, loop.layout.num_params, generator=draw)
    close(
        everything(fused, SOLVERS[solver], models), everything(loop, SOLVERS[solver], models), 2e-5
    )


@pytest.mark.full
@pytest.mark.parametrize("kind", FAST)
@pytest.mark.parametrize("name", ["mlp128", "flex_mnist_cnn"])
@pytest.mark.parametrize("max_rows", [1, 2, 3, 100])
def test_chunk_size_is_irrelevant(name: str, max_rows: int, kind: str) -> None:
    whole, cut = made(kind, name), made(kind, name, max_rows=max_rows)
    for solver in ("everything", "full_batch"):
        close(everything(cut, SOLVERS[solver]), everything(whole, SOLVERS[solver]), 1e-6)


def test_block_size_is_irrelevant(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made("fused", "mlp128")
    whole = everything(engine, SOLVERS["sgd"])
    monkeypatch.setattr("fedclust.engines.fused.row_plan.RowPlan.block", lambda *_: 2)
    close(everything(engine, SOLVERS["sgd"]), whole, 1e-6)


def test_examples_converted_batch_by_batch_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made("fused", "mlp128")
    for solver in (SOLVERS["everything"], SOLVERS["full_batch"]):
        monkeypatch.undo()
        resident = everything(engine, solver)
        monkeypatch.setattr(training_steps, "_RESIDENT", 0)
        close(everything(engine, solver), resident, 1e-6)


def test_equal_calls_give_equal_bits() -> None:
    for name in ("mlp128", "flex_mnist_cnn"):
        engine = made("fused", name)
        first, again = (everything(engine, SOLVERS["everything"]) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_merged_calls_equal_separate_ones() -> None:
    """Two calls laid end to end, as those of seeds in lockstep are."""
    engine, how = made("fused", "mlp128"), SOLVERS["everything"]
    shards = ragged_shards(), ragged_shards((12, 2, 5, 5, 9))
    calls = [training(engine, one, how, models=starts(engine) + i) for i, one in enumerate(shards)]
    for got, call in zip(split(engine.answer(TrainCall.merge(calls)), calls), calls, strict=True):
        alone = engine.answer(call)
        close([got.params, got.loss], [alone.params, alone.loss], 1e-6)


@pytest.mark.parametrize("num_models", [1, 2, 40])
def test_evaluation_groups_rows_that_share_a_model(num_models: int) -> None:
    """From one model for all rows to one for each, models unused included."""
    counts = tuple(1 + 7 * i % 11 for i in range(20))
    model, pool = shipped("mlp128"), toy_pool((1, 8, 8), num_examples=sum(counts))
    loop, fused = LoopEngine(model, pool), FusedEngine(model, pool, max_rows=3)
    label = torch.arange(20) * 3 % num_models
    call = TestCall(starts(loop, num_models), label, ragged_shards(counts))
    got, want = fused.answer(call), loop.answer(call)
    assert 0 < got.sums.sum() < call.shards.count.sum()
    close([got.loss_sum], [want.loss_sum], 1e-6)
    assert torch.equal(got.sums, want.sums)


def test_padding_is_small_on_power_law_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (20 * (1 - torch.rand(400, generator=torch.Generator().manual_seed(0))) ** -0.7).long()
    counts = tuple(sizes.clamp(max=400).tolist())
    engine = FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8), num_examples=sum(counts)))
    # compiled code passes over padding, so that all of its rows are one chunk
    monkeypatch.setattr(perceptron, "trains", lambda *_: False)

    def padding(counts: tuple[int, ...], batch: int | None) -> float:
        solver, rows = Solver(lr=0.1, batch_size=batch), len(counts)
        one = {"models": starts(engine, 1), "label": torch.zeros(rows, dtype=torch.int64)}
        engine.answer(training(engine, ragged_shards(counts), solver, **one))
        return engine.padding

    assert 0 < padding(counts, 10) < 0.1
    assert padding((20, 20), 10) == 0
    assert 0 < padding(counts, None) < 0.1


def test_out_of_memory_gives_the_same_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = made("fused", "mlp128")
    # of one size, so that they are computed together
    call = training(engine, ragged_shards((12,) * 5), SOLVERS["sgd"])
    want, train = engine.answer(call), chunk.train

    def small(some: chunk.Chunk, task: chunk.ChunkTask) -> Tensor:
        losses = train(some, task)
        if len(losses) > 1:
            raise torch.OutOfMemoryError("too many rows")
        return losses

    monkeypatch.setattr("fedclust.engines.fused.engine.train", small)
    with caplog.at_level(logging.WARNING):
        got = engine.answer(call)
    assert "out of memory" in caplog.text
    close([got.params, got.loss], [want.params, want.loss], 1e-6)


@pytest.mark.parametrize(
    ("layers", "shapes", "words"),
    [
        ([nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)], [(4,)] * 3 + [(2,)], "before layer 0 (ReLU)"),
        ([nn.Flatten()], [(4,), (4,)], "a layer with parameters"),
        (
            [nn.Linear(4, 4), nn.Flatten()],
            [(2, 4), (2, 4), (8,)],
            "Flatten before layer 0 (Linear)",
        ),
        (
            [nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(72, 2)],
            [(2, 8, 8), (2, 6, 6), (72,), (2,)],
            "groups=1",
        ),
    ],
)
def test_what_it_cannot_run_is_said(
    layers: list[nn.Module], shapes: list[tuple[int, ...]], words: str
) -> None:
    model = Model(layers, shapes, [], {})
    assert words in FusedEngine.obstacle(model)
    with pytest.raises(ConfigError, match=re.escape(words)):
        FusedEngine(model, toy_pool(shapes[0]))


def test_a_mask_that_cuts_through_a_parameter_is_refused() -> None:
    engine = made("fused", "mlp128")
    mask = engine.layout.mask(engine.layout.last_layers())
    mask[0] = True
    with pytest.raises(ConfigError, match=r"frozen .* 1\.weight, engine=fused .* use engine=vmap"):
        engine.answer(training(engine, ragged_shards(), SOLVERS["sgd"], frozen=mask))


@pytest.mark.full
@pytest.mark.usefixtures("_images")
@pytest.mark.parametrize("frozen", [("1.weight", "1.bias"), ("1.bias", "6.bias"), ("4.weight",)])
def test_frozen_parts_of_convolutions_equal_the_loop(frozen: tuple[str, ...]) -> None:
    """Padding, convolution 1, ReLU, padding, convolution 4, Flatten and a dense layer 6."""
    loop, fused = (kind(odd("one_sided_padding"), odd_pool()) for kind in (LoopEngine, FusedEngine))
    mask = loop.layout.mask(frozen)
    models = 0.2 * torch.randn(3, len(mask), generator=torch.Generator().manual_seed(5))
    call = training(loop, ragged_shards(), SOLVERS["everything"], models=models, frozen=mask)
    want, got = loop.answer(call), fused.answer(call)
    assert torch.equal(got.params[:, mask], models[call.label][:, mask])
    close([got.params, got.loss, got.first_loss], [want.params, want.loss, want.first_loss], 2e-5)


def test_training_holds_no_start_rows_of_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the result, every tensor that is made has a chunk's size, however many rows."""
    engine = made("fused", "mlp128", max_rows=4)
    largest = 0

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            fresh = isinstance(out, Tensor) and out.is_floating_point() and out._base is None
            if fresh and out.untyped_storage().nbytes() > 4 * 4 * engine.layout.num_params:
                largest += 1
            return out

    one = {"models": starts(engine, 1), "label": torch.zeros(30, dtype=torch.int64)}
    with Watch():
        result = engine.answer(training(engine, ragged_shards((2,) * 30), SOLVERS["sgd"], **one))
    assert result.params.shape == (30, engine.layout.num_params)
    assert largest <= 2  # the result, made once and perhaps seen twice


def test_key_and_start_decide_a_row_and_nothing_else_does() -> None:
    engine, shards = made("fused", "flex_mnist_cnn"), ragged_shards((5, 5))
    same = replace(shards, index=shards.index[[0, 0]], key=shards.key[[0, 0]])
    other = replace(same, key=Stream.of(4, "train").keys(torch.arange(2)))
    label, how = torch.zeros(2, dtype=torch.int64), SOLVERS["sgd"]
    params, others = (
        engine.answer(training(engine, one, how, label=label)).params for one in (same, other)
    )
    torch.testing.assert_close(params[0], params[1], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(others[0], params[0], atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["mlp128", "jgl_cnn"])
@pytest.mark.parametrize("solver", ["sgd", "momentum", "proximal"])
def test_a_local_step_takes_no_fresh_memory(
    monkeypatch: pytest.MonkeyPatch, name: str, solver: str
) -> None:
    """But for PyTorch's convolutions, which have nowhere else to put their results."""
    monkeypatch.setattr(perceptron, "trains", lambda *_: False)  # compiled, all steps are one
    engine = made("fused", name)
    descend = training_steps.descend

    def watched(*arguments: object) -> Tensor:
        with torch.profiler.record_function("a local step"):
            return descend(*arguments)  # type: ignore[arg-type]

    def train() -> None:
        engine.answer(training(engine, ragged_shards(), SOLVERS[solver]))

    monkeypatch.setattr(chunk, "descend", watched)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as told:
        train()
    events = told.events()
    assert events is not None
    steps = [event for event in events if event.name == "a local step"]
    taken = [sum(_taken(part) for part in step.cpu_children) for step in steps]
    assert len(taken) >= 4
    if name != "jgl_cnn" or convolution.compiled() is not None:
        assert not any(taken)


def _taken(event: torch.autograd.profiler_util.FunctionEvent) -> int:
    """Bytes that an operation and its parts asked for, but for the numbers of learning rates."""
    own = event.self_cpu_memory_usage
    return (own if own > 16 else 0) + sum(_taken(part) for part in event.cpu_children)


def test_what_tests_look_at_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew once they or their models change, with the bits of an engine that knows nothing."""
    monkeypatch.setattr(tested_examples, "_LEAST", 1)
    engine, shards = made("fused", "mlp128"), ragged_shards()
    models, label = starts(engine), labels(len(shards))
    calls = []
    plain = type(engine.pool).inputs_into

    def counted(pool: Pool, index: Tensor, out: Tensor) -> Tensor:
        calls.append(index)
        return plain(pool, index, out)

    monkeypatch.setattr(type(engine.pool), "inputs_into", counted)

    def looked(asked: TestCall) -> int:
        """Conversions in a test, whose results are those of an engine that knows nothing."""
        calls.clear()
        got, conversions = engine.answer(asked), len(calls)
        want = FusedEngine(shipped("mlp128"), engine.pool).answer(asked)
        assert torch.equal(got.sums, want.sums)
        assert torch.equal(got.loss_sum, want.loss_sum)
        return conversions

    same = TestCall(models, label, shards)
    assert looked(same) > 0
    assert looked(same) == 0
    assert looked(TestCall(models + 0.1, label, ragged_shards())) == 0
    assert looked(TestCall(models, labels(len(shards), 2), shards)) > 0
    fewer = shards.take(torch.tensor([0, 1, 4]))
    assert looked(TestCall(models, label[:3], fewer)) > 0
    monkeypatch.setattr(tested_examples, "_MOST", 0)
    assert [looked(same) > 0 for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("name", ["mlp128", "linear"])
def test_of_equal_classes_the_first_is_the_answer(name: str) -> None:
    engine, shards = made("fused", name), ragged_shards()
    nothing = torch.zeros(1, engine.layout.num_params)
    result = engine.answer(TestCall(nothing, torch.zeros(len(shards), dtype=torch.int64), shards))
    inside = torch.arange(shards.index.shape[1]) < shards.count.unsqueeze(1)
    assert torch.equal(
        result.sums[:, 0], ((engine.pool.y[shards.index] == 0) & inside).sum(1).double()
    )

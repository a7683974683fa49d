"""What is particular to the fused engine: its layers, blocks, groups and memory."""

from __future__ import annotations

import logging
import re

import pytest
import torch
from engine_toys import SOLVERS, labels, ragged_shards, shape_of, shipped, starts, toy_pool
from torch import Tensor, nn

from fedclust.core.calls import GradCall, LossCall, Shards, TestCall, TrainCall
from fedclust.core.pool import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.fused import FusedEngine, chunk, layers, tested_examples, training
from fedclust.engines.fused.native import convolution, perceptron
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.models.sequence import Model
from fedclust.solver import Solver

# every option of every layer that the shipped models leave at its usual value
ODD = {
    "strided": [nn.Conv2d(2, 3, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(27, 5)],
    "oblong": [
        nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(2, 1)),
        nn.Flatten(),
        nn.Linear(150, 5),
    ],
    "dilated": [
        nn.Conv2d(2, 3, 3, padding=1, dilation=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(108, 5),
    ],
    "no_bias": [
        nn.Conv2d(2, 3, 3, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(108, 5, bias=False),
    ],
    "overlapping_pool": [
        nn.Conv2d(2, 3, 3),
        nn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(48, 5),
    ],
    "pool_first": [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 5), nn.ReLU(), nn.Linear(5, 5)],
    "one_sided_padding": [
        nn.ZeroPad2d((1, 2, 0, 3)),
        nn.Conv2d(2, 4, 3),
        nn.ReLU(),
        nn.ZeroPad2d((0, 1, 2, 0)),
        nn.Conv2d(4, 2, 5),
        nn.Flatten(),
        nn.Linear(84, 5),
    ],
    "even_response_norm": [
        nn.Conv2d(2, 7, 3),
        nn.LocalResponseNorm(4, alpha=0.5, beta=0.6, k=2.0),
        nn.ReLU(),
        nn.LocalResponseNorm(3, alpha=2.0),
        nn.Flatten(),
        nn.Linear(252, 5),
    ],
    "dropout_everywhere": [
        nn.Conv2d(2, 3, 3),
        nn.Dropout(0.2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(108, 9),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(9, 5),
    ],
}


def odd(name: str) -> Model:
    """One of `ODD` for images of shape (2, 8, 8), with an L2 penalty on its first kernel."""
    layers, x = ODD[name], torch.zeros(1, 2, 8, 8)
    shapes = [tuple(x.shape[1:])]
    for layer in layers:
        x = layer(x)
        shapes.append(tuple(x.shape[1:]))
    first = next(name for name, _ in nn.Sequential(*layers).named_parameters())
    return Model(layers, shapes, [], {first: 0.05})


def models_of(engine: Engine, count: int = 3) -> Tensor:
    return 0.2 * torch.randn(
        count, engine.layout.num_params, generator=torch.Generator().manual_seed(5)
    )


def everything(engine: Engine, models: Tensor, shards: Shards, solver: Solver) -> list[Tensor]:
    """All that the verbs return."""
    label = labels(len(shards))
    result = engine.answer(TrainCall(models, label, shards, solver, solver.lr))
    read = engine.answer(LossCall(models, shards)), engine.answer(GradCall(models, label, shards))
    slots = [] if result.slots is None else [result.slots]
    evaluation = engine.answer(TestCall(models, label, shards))
    return [result.params, *slots, result.loss, result.steps, *read, *evaluation]


def close(got: list[Tensor], want: list[Tensor], tolerance: float) -> None:
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=["compiled", "row by row", "stacked"])
def _images(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ways to compute convolutions: those of CPUs with a compiler and without, and that of
    GPUs.
    """
    if request.param != "compiled":
        monkeypatch.setattr(layers, "convolving", lambda *_: request.param)


@pytest.mark.thinned
@pytest.mark.usefixtures("_images")
@pytest.mark.parametrize("solver", ["sgd", "everything"])
@pytest.mark.parametrize("name", ODD)
def test_every_layer_option_equals_the_loop(name: str, solver: str) -> None:
    model, pool, shards = odd(name), toy_pool((2, 8, 8)), ragged_shards()
    pool.y.remainder_(5)
    loop, fused = LoopEngine(model, pool), FusedEngine(model, pool)
    models = models_of(loop)
    want = everything(loop, models, shards, SOLVERS[solver])
    close(everything(fused, models, shards, SOLVERS[solver]), want, 2e-5)


@pytest.mark.full
@pytest.mark.parametrize("other", ["row by row", "stacked"])
@pytest.mark.parametrize(
    "name", ["cnn_femnist_tiny", "flex_mnist_cnn", "flex_femnist_cnn", "tf_cifar"]
)
def test_convolutions_are_the_same_in_all_ways(
    name: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, pool, shards = shipped(name), toy_pool(shape_of(name)), ragged_shards()
    engine = FusedEngine(model, pool)
    usual = everything(engine, starts(engine), shards, SOLVERS["sgd"])
    monkeypatch.setattr(layers, "convolving", lambda *_: other)
    close(everything(engine, starts(engine), shards, SOLVERS["sgd"]), usual, 2e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", ["mlp128", "flex_mnist_cnn"])
@pytest.mark.parametrize("max_rows", [1, 2, 3])
def test_chunk_size_is_irrelevant(name: str, max_rows: int) -> None:
    model, pool, shards = shipped(name), toy_pool(shape_of(name)), ragged_shards()
    whole, cut = FusedEngine(model, pool), FusedEngine(model, pool, max_rows=max_rows)
    for solver in ("everything", "full_batch"):
        want = everything(whole, starts(whole), shards, SOLVERS[solver])
        close(everything(cut, starts(cut), shards, SOLVERS[solver]), want, 1e-6)


def test_block_size_is_irrelevant(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, shards = FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8))), ragged_shards()
    whole = everything(engine, starts(engine), shards, SOLVERS["sgd"])
    monkeypatch.setattr("fedclust.engines.fused.row_plan.RowPlan.block", lambda *_: 2)
    close(everything(engine, starts(engine), shards, SOLVERS["sgd"]), whole, 1e-6)


def test_examples_converted_batch_by_batch_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, shards = FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8))), ragged_shards()
    for solver in (SOLVERS["everything"], SOLVERS["full_batch"]):
        monkeypatch.undo()
        resident = everything(engine, starts(engine), shards, solver)
        monkeypatch.setattr(training, "_RESIDENT", 0)
        close(everything(engine, starts(engine), shards, solver), resident, 1e-6)


def test_equal_calls_give_equal_bits() -> None:
    for name in ("mlp128", "flex_mnist_cnn"):
        engine, shards = FusedEngine(shipped(name), toy_pool(shape_of(name))), ragged_shards()
        first, again = (
            everything(engine, starts(engine), shards, SOLVERS["everything"]) for _ in range(2)
        )
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_merged_calls_equal_separate_ones() -> None:
    """Two calls laid end to end, models and labels shifted, as seeds in lockstep are."""
    engine = FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8)))
    one, two = ragged_shards(), ragged_shards((12, 2, 5, 5, 9))
    models, label = starts(engine, 6), labels(5)
    both = Shards(
        index=torch.cat([one.index, two.index]),
        count=torch.cat([one.count, two.count]),
        key=torch.cat([one.key, two.key + 1]),
    )
    two = Shards(index=two.index, count=two.count, key=two.key + 1)
    how = SOLVERS["everything"]
    merged = engine.answer(TrainCall(models, torch.cat([label, label + 3]), both, how, how.lr))
    for shards, part, rows in ((one, models[:3], slice(0, 5)), (two, models[3:], slice(5, 10))):
        alone = engine.answer(TrainCall(part, label, shards, how, how.lr))
        close([merged.params[rows], merged.loss[rows]], [alone.params, alone.loss], 1e-6)
        first = 3 * (rows.start // 5)
        close(
            [engine.answer(LossCall(models, both))[rows, first : first + 3]],
            [engine.answer(LossCall(part, shards))],
            1e-6,
        )


def test_stragglers_and_an_anchor_equal_the_loop() -> None:
    """Rows with many examples and few steps, so that steps do not follow counts."""
    model, pool, shards = shipped("mlp128"), toy_pool((1, 8, 8)), ragged_shards((12, 9, 9, 4, 0, 2))
    work = torch.tensor([0.2, 1.0, 0.6, 1.0, 1.0, 0.5])
    part = Shards(index=shards.index, count=shards.count, key=shards.key, work=work)
    loop, fused = LoopEngine(model, pool), FusedEngine(model, pool)
    models, label, anchor = starts(loop), labels(6), starts(loop, 6).flip(0)
    for name in ("everything", "proximal", "full_batch"):
        how = SOLVERS[name]
        want, got = (
            e.answer(TrainCall(models, label, part, how, how.lr, anchor=anchor))
            for e in (loop, fused)
        )
        assert want.steps.argsort(descending=True, stable=True).tolist() != list(range(6))
        close([got.params, got.loss], [want.params, want.loss], 1e-5)
        assert torch.equal(got.steps, want.steps)


@pytest.mark.parametrize("num_models", [1, 2, 40])
def test_evaluation_groups_rows_that_share_a_model(num_models: int) -> None:
    """From one model for all rows to one for each, models unused included."""
    counts = tuple(1 + 7 * i % 11 for i in range(20))
    model, pool = shipped("mlp128"), toy_pool((1, 8, 8), num_examples=sum(counts))
    loop, fused = LoopEngine(model, pool), FusedEngine(model, pool, max_rows=3)
    shards, models = ragged_shards(counts), starts(loop, num_models)
    label = torch.arange(20) * 3 % num_models
    (loss, correct), (want_loss, want_correct) = (
        engine.answer(TestCall(models, label, shards)) for engine in (fused, loop)
    )
    assert 0 < correct.sum() < shards.count.sum()
    torch.testing.assert_close(loss, want_loss, rtol=1e-6, atol=1e-6)
    assert torch.equal(correct, want_correct)


def test_a_diverged_model_spoils_no_other_entry() -> None:
    engine, shards = FusedEngine(shipped("linear"), toy_pool((1, 8, 8))), ragged_shards((3, 7, 2))
    models, label = starts(engine), torch.arange(3)
    clean = engine.answer(LossCall(models, shards)), *engine.answer(TestCall(models, label, shards))
    models[1] = float("nan")
    table, (loss, _) = (
        engine.answer(LossCall(models, shards)),
        engine.answer(TestCall(models, label, shards)),
    )
    assert table[:, 1].isnan().all()
    assert torch.equal(table[:, [0, 2]], clean[0][:, [0, 2]])
    assert loss[1].isnan()
    assert torch.equal(loss[[0, 2]], clean[1][[0, 2]])
    trained = engine.answer(TrainCall(models, label, shards, SOLVERS["sgd"], 0.05))
    assert trained.loss.isnan().tolist() == [False, True, False]


def test_feature_vectors_need_no_flatten() -> None:
    model = Model([nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 10)], [(6,), (4,), (4,), (10,)], [], {})
    pool, shards = toy_pool((6,)), ragged_shards()
    loop, fused = LoopEngine(model, pool), FusedEngine(model, pool)
    want = everything(loop, models_of(loop), shards, SOLVERS["sgd"])
    close(everything(fused, models_of(fused), shards, SOLVERS["sgd"]), want, 1e-5)


def test_padding_is_small_on_power_law_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (20 * (1 - torch.rand(400, generator=torch.Generator().manual_seed(0))) ** -0.7).long()
    counts = tuple(sizes.clamp(max=400).tolist())
    engine = FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8), num_examples=sum(counts)))
    shards = ragged_shards(counts)
    full = torch.zeros(len(shards), dtype=torch.int64)
    models = starts(engine, 1)
    batches, whole = Solver(lr=0.1, batch_size=10), Solver(lr=0.1, batch_size=None)
    # compiled code passes over padding, so that all of its rows are one chunk
    monkeypatch.setattr(perceptron, "trains", lambda *_: False)
    engine.answer(TrainCall(models, full, shards, batches, 0.1))
    assert 0 < engine.padding < 0.1
    engine.answer(TrainCall(models, full[:2], ragged_shards((20, 20)), batches, 0.1))
    assert engine.padding == 0
    engine.answer(TrainCall(models, full, shards, whole, 0.1))
    assert 0 < engine.padding < 0.1


def test_out_of_memory_gives_the_same_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, shards, how = (
        FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8))),
        ragged_shards((12,) * 5),  # of one size, so that they are computed together
        SOLVERS["sgd"],
    )
    models, label = starts(engine), labels(5)
    want = engine.answer(TrainCall(models, label, shards, how, how.lr))
    train = chunk.train

    def small(some: chunk.Chunk, task: chunk.ChunkTask) -> Tensor:
        losses = train(some, task)
        if len(losses) > 1:
            raise torch.OutOfMemoryError("too many rows")
        return losses

    monkeypatch.setattr("fedclust.engines.fused.engine.train", small)
    with caplog.at_level(logging.WARNING):
        got = engine.answer(TrainCall(models, label, shards, how, how.lr))
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
    engine = FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8)))
    mask = engine.layout.mask(engine.layout.last_layers())
    mask[0] = True
    call = TrainCall(starts(engine), labels(5), ragged_shards(), SOLVERS["sgd"], 0.05, frozen=mask)
    with pytest.raises(ConfigError, match=r"frozen .* 1\.weight, engine=fused .* use engine=vmap"):
        engine.answer(call)


@pytest.mark.full
@pytest.mark.usefixtures("_images")
@pytest.mark.parametrize("frozen", [("1.weight", "1.bias"), ("1.bias", "6.bias"), ("4.weight",)])
def test_frozen_parts_of_convolutions_equal_the_loop(frozen: tuple[str, ...]) -> None:
    """Padding, convolution 1, ReLU, padding, convolution 4, Flatten and a dense layer 6."""
    model, pool, how = odd("one_sided_padding"), toy_pool((2, 8, 8)), SOLVERS["everything"]
    pool.y.remainder_(5)
    loop, fused = LoopEngine(model, pool), FusedEngine(model, pool)
    mask = loop.layout.mask(frozen)
    call = TrainCall(models_of(loop), labels(5), ragged_shards(), how, how.lr, frozen=mask)
    want, got = loop.answer(call), fused.answer(call)
    assert torch.equal(got.params[:, mask], call.models[call.label][:, mask])
    close([got.params, got.loss, got.first_loss], [want.params, want.loss, want.first_loss], 2e-5)


def test_it_can_run_every_shipped_model() -> None:
    for name in ("linear", "mlp200", "cnn", "tf_cifar", "flex_femnist_cnn"):
        assert not FusedEngine.obstacle(shipped(name, (3, 32, 32)))


def test_training_holds_no_start_rows_of_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the result, memory does not grow with the rows: every tensor made has a chunk's
    size.
    """
    engine = FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8)), max_rows=4)
    largest = 0

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            fresh = isinstance(out, Tensor) and out.is_floating_point() and out._base is None
            if fresh and out.untyped_storage().nbytes() > 4 * 4 * engine.layout.num_params:
                largest += 1
            return out

    shards = ragged_shards((2,) * 30)
    models, label = starts(engine, 1), torch.zeros(30, dtype=torch.int64)
    with Watch():
        result = engine.answer(TrainCall(models, label, shards, SOLVERS["sgd"], 0.05))
    assert result.params.shape == (30, engine.layout.num_params)
    assert largest <= 2  # the result, made once and perhaps seen twice


def test_key_and_start_decide_a_row_and_nothing_else_does() -> None:
    engine, shards = (
        FusedEngine(shipped("flex_mnist_cnn"), toy_pool((1, 8, 8))),
        ragged_shards((5, 5)),
    )
    same = Shards(index=shards.index[[0, 0]], count=shards.count, key=shards.key[[0, 0]])
    other = Shards(
        index=same.index, count=same.count, key=Stream.of(4, "train").keys(torch.arange(2))
    )
    models, label, how = starts(engine), torch.zeros(2, dtype=torch.int64), SOLVERS["sgd"]
    params = engine.answer(TrainCall(models, label, same, how, how.lr)).params
    torch.testing.assert_close(params[0], params[1], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(
        engine.answer(TrainCall(models, label, other, how, how.lr)).params[0], params[0], atol=1e-4
    )


@pytest.mark.full
@pytest.mark.parametrize("name", ["mlp128", "jgl_cnn"])
@pytest.mark.parametrize("solver", ["sgd", "momentum", "proximal"])
def test_a_local_step_takes_no_fresh_memory(
    monkeypatch: pytest.MonkeyPatch, name: str, solver: str
) -> None:
    """PyTorch's convolutions, which are there without a compiler, have nowhere else to put their
    results.
    """
    monkeypatch.setattr(perceptron, "trains", lambda *_: False)  # compiled, all steps are one
    engine = FusedEngine(shipped(name), toy_pool(shape_of(name)))
    descend = training.descend

    def watched(*arguments: object) -> Tensor:
        with torch.profiler.record_function("a local step"):
            return descend(*arguments)  # type: ignore[arg-type]

    def train() -> None:
        engine.answer(TrainCall(starts(engine), labels(5), ragged_shards(), SOLVERS[solver], 0.05))

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
    """Bytes that an operation and its parts asked for, but for the numbers that learning rates are
    put in.
    """
    own = event.self_cpu_memory_usage
    return (own if own > 16 else 0) + sum(_taken(part) for part in event.cpu_children)


def test_what_tests_look_at_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And anew once they or their models change, with the bits of an engine that knows nothing."""
    monkeypatch.setattr(tested_examples, "_LEAST", 1)
    engine, shards = FusedEngine(shipped("mlp128"), toy_pool((1, 8, 8))), ragged_shards()
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
    engine, shards = FusedEngine(shipped(name), toy_pool((1, 8, 8))), ragged_shards()
    nothing = torch.zeros(1, engine.layout.num_params)
    result = engine.answer(TestCall(nothing, torch.zeros(len(shards), dtype=torch.int64), shards))
    inside = torch.arange(shards.index.shape[1]) < shards.count.unsqueeze(1)
    assert torch.equal(
        result.sums[:, 0], ((engine.pool.y[shards.index] == 0) & inside).sum(1).double()
    )

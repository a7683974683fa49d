"""The paths that are meant for a GPU, on one that is only pretended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_toys import (
    DIFFERENT_KINDS,
    MODELS,
    SOLVERS,
    labels,
    ragged_shards,
    reading,
    shape_of,
    shipped,
    starts,
    terms,
    toy_pool,
    training,
)
from pretend_cuda import CUDA, Device, Graph, Pretended, pretend_cuda
from test_regression import WHERE
from torch import Tensor

from fedclust.core.calls import LocalResult, Shards
from fedclust.engines.fused import FusedEngine, gpu, layers
from fedclust.engines.fused.cuda.graphs import _agree
from fedclust.engines.fused.native import perceptron, softmax
from fedclust.solver import Solver

EQUAL = (8, 8, 8, 8)  # examples of clients whose chunks are all of one kind


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A pretended GPU; the CPU takes the same path, so that results are equal bit by bit."""
    monkeypatch.setattr(layers, "convolving", lambda *_: "stacked")
    monkeypatch.setattr(perceptron, "trains", lambda *_: False)
    monkeypatch.setattr(softmax, "scores", lambda *_: False)
    with pretend_cuda() as device:
        yield device


def on_device(asked: Any) -> Any:
    """A call, or rows, with all tensors on the device."""
    held = {one.name: getattr(asked, one.name) for one in fields(asked)}
    moved = {name: x.to(CUDA) for name, x in held.items() if isinstance(x, Tensor)}
    if isinstance(held.get("shards"), Shards):
        moved["shards"] = on_device(held["shards"])
    return replace(asked, **moved)


def engines(name: str) -> tuple[FusedEngine, FusedEngine]:
    """The fused engine on the CPU and on the device."""
    pool = toy_pool(shape_of(name))
    return FusedEngine(shipped(name), pool), FusedEngine(shipped(name), pool.to(CUDA))


def assert_same(here: LocalResult, there: LocalResult) -> None:
    """Equal but for the order in which batches are added to the span's coefficients."""
    assert there.params.is_cuda
    torch.testing.assert_close(there.params.cpu(), here.params, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(there.loss.cpu(), here.loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(there.first_loss.cpu(), here.first_loss, rtol=1e-5, atol=1e-6)
    assert torch.equal(there.steps.cpu(), here.steps)
    if here.slots is not None:
        assert there.slots is not None
        torch.testing.assert_close(there.slots.cpu(), here.slots, rtol=1e-5, atol=1e-6)


# what a solver does depends on no layer, so models of different kinds tell of the second solver
TRAINED = [(name, "sgd") for name in MODELS] + [(name, "everything") for name in DIFFERENT_KINDS]


@pytest.mark.thinned
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("name", "solver"), TRAINED)
def test_training(name: str, solver: str) -> None:
    cpu, gpu = engines(name)
    slots = 0.1 * starts(cpu) if SOLVERS[solver].momentum else None
    call = training(cpu, ragged_shards(), SOLVERS[solver], slots=slots)
    assert_same(cpu.answer(call), gpu.answer(on_device(call)))


@pytest.mark.thinned
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", MODELS)
def test_losses_gradients_and_tests(name: str) -> None:
    cpu, gpu = engines(name)
    losses, gradients, test = reading(starts(cpu), labels(5), ragged_shards())
    shares = torch.rand(5, 3, generator=torch.Generator().manual_seed(3))
    mixed = replace(test, weight=shares / shares.sum(1, keepdim=True))
    for call in (losses, gradients, test, mixed, replace(losses, per_example=True)):
        there, here = gpu.answer(on_device(call)), cpu.answer(call)
        there = [x.cpu() for x in there] if isinstance(there, tuple) else there.cpu()
        torch.testing.assert_close(there, list(here) if isinstance(here, tuple) else here)


@pytest.mark.full
@pytest.mark.parametrize("name", ["linear", "mlp", "cnn_femnist_tiny"])
def test_the_host_does_not_wait_between_steps(device: Device, name: str) -> None:
    _, gpu = engines(name)
    waits = []
    for epochs in (1, 9):
        solver = Solver(lr=0.05, batch_size=4, epochs=epochs)
        call = on_device(training(gpu, ragged_shards(EQUAL), solver))
        device.waits.clear()
        gpu.answer(call)
        waits.append(device.waits.total())
    assert waits == [1, 1]  # to hear how many examples there are


def several_calls(
    device: Device, gpu: FusedEngine, solver: Solver, given: tuple[str, ...] = ()
) -> list[int]:
    """Operations of each of five calls that differ in all numbers, checked against the CPU."""
    here = {k: getattr(gpu.pool, k).cpu() for k in ("x", "y", "scale", "shift")}
    cpu = FusedEngine(gpu.model, replace(gpu.pool, **here))
    kernels = []
    for number in range(5):
        shards = ragged_shards(EQUAL)
        shards = replace(
            shards, index=(shards.index + 5 * number) % 60, key=shards.key + 7919 * number
        )
        models, label = starts(cpu) * (1 + 0.1 * number), (labels(4) + number) % 3
        slots = 0.1 * models if solver.momentum else None
        anchor = models.flip(0)[label] if solver.proximal else None
        more = {name: terms(cpu, shards)[name] * (1 + 0.1 * number) for name in given}
        start = {"models": models, "label": label, "slots": slots, "anchor": anchor}
        call = training(cpu, shards, solver, **start, **more)
        moved, before = on_device(call), device.kernels
        there = gpu.answer(moved)
        kernels.append(device.kernels - before)
        assert_same(cpu.answer(call), there)
    return kernels


@pytest.mark.full
@pytest.mark.parametrize("given", [(), ("linear", "example_weight")])
@pytest.mark.parametrize("solver", ["steps", "full_batch", "everything"])
@pytest.mark.parametrize(
    "name",
    [
        "linear",
        "mlp128",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("jgl_cnn", "tf_cifar")),
    ],
)
def test_graphs_are_replayed_on_other_numbers(
    device: Device, name: str, solver: str, given: tuple[str, ...]
) -> None:
    how = SOLVERS[solver]
    first, capture, *replays = several_calls(device, engines(name)[1], how, given=given)
    assert capture > first
    assert len(set(replays)) == 1
    assert replays[0] < 0.8 * first


@pytest.mark.full
def test_graphs_can_be_turned_off(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCLUST_KERNELS", "none")
    assert len(set(several_calls(device, engines("mlp")[1], SOLVERS["sgd"]))) == 1


def as_the_kernel(outputs: list[Tensor], **job: Any) -> None:
    """What the kernel of softmax regression is to do, a step of a row at a time."""
    for row in range(len(job["inputs"])):
        own = {
            name: x[row] if name in ROWS and isinstance(x, Tensor) else x for name, x in job.items()
        }
        steps = int((own["size"] > 0).sum())
        losses = [one_step([x[row] for x in outputs], row, step, **own) for step in range(steps)]
        job["loss"][row, 0] = sum(losses) / max(1, steps)
        job["loss"][row, 1] = sum(
            weight * loss for weight, loss in zip(own["first"].tolist(), losses, strict=False)
        )


ROWS = {"inputs", "weight", "slot", "anchor", "bias", "bias_slot", "bias_anchor", "size", "first"}


def one_step(outputs: list[Tensor], row: int, step: int, **job: Any) -> float:
    """A step of one row, whose loss it returns; see `launched_softmax.train`."""
    lr, momentum, pull = job["lr"], job["momentum"], job["pull"]
    size, c, bias = int(job["size"][step]), job["weight"], job["bias"]
    own = job["example"][step, row, :size] - row * len(job["inputs"])
    label, share = job["label"][step, row, :size], torch.full((size, 1), 1 / size)
    if job["share"] is not None:
        share = job["share"][step, row, :size].unsqueeze(1)
    seen = job["inputs"][own]
    if outputs:
        start = sum(f * x[own] for f, x in zip(job["factors"][step].tolist(), outputs, strict=True))
        logits = start + bias - lr * seen @ c
    else:
        logits = bias + seen @ c.T
    logp = logits.log_softmax(1)
    delta = (logp.exp() - torch.eye(logits.shape[1])[label]) * share

    def move(w: Tensor, slot: Tensor | None, gradient: Tensor, scale: float) -> None:
        if slot is not None:
            gradient = slot.mul_(momentum).add_(gradient)
        w.add_(gradient, alpha=scale)

    if outputs:
        spread = torch.zeros_like(c).index_add_(0, own, delta)
        move(c, job["slot"], spread - lr * job["decay"] * c, 1.0)
    else:
        anchor = 0 if job["anchor"] is None else pull * job["anchor"]
        move(c, job["slot"], delta.T @ seen + job["decay"] * c - anchor, -lr)
    anchor = 0 if job["bias_anchor"] is None else pull * job["bias_anchor"]
    change = delta.sum(0, keepdim=True) + job["bias_decay"] * bias - anchor
    move(bias, job["bias_slot"], change, -lr)
    return -float((logp.gather(1, label.unsqueeze(1)) * share).sum())


@pytest.mark.full
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    ("solver", "given"),
    [("steps", ()), ("everything", ()), ("everything", ("linear", "example_weight"))],
)
def test_regression_is_one_launch(solver: str, given: tuple[str, ...], where: str) -> None:
    """All steps of a chunk, without a graph."""

    def train(outputs: list[Pretended], product: str, **job: Any) -> None:
        held = {name: x.held if isinstance(x, Pretended) else x for name, x in job.items()}
        as_the_kernel([x.held for x in outputs], **held)
        launches.append(product)

    launches: list[str] = []
    with pretend_cuda() as device, pytest.MonkeyPatch.context() as patch:
        kernel = SimpleNamespace(train=train)
        patch.setattr(gpu, "runs_on", lambda device: device.type == "cuda")
        patch.setattr(
            gpu,
            "kernel",
            lambda name, on: kernel if (name, on) == ("softmax", CUDA) else None,
        )
        patch.setattr("fedclust.engines.fused.plan.pays", WHERE[where])
        how = SOLVERS[solver]
        first, *later = several_calls(device, engines("linear")[1], how, given=given)
    assert launches == ["ieee"] * 5
    assert len(set(later)) == 1
    assert later[0] <= first


@pytest.mark.full
def test_a_new_learning_rate_is_a_new_graph(device: Device) -> None:
    _, gpu = engines("mlp")
    one, other = (replace(SOLVERS["sgd"], lr=lr) for lr in (0.05, 0.1))
    assert several_calls(device, gpu, one)[:2] == several_calls(device, gpu, other)[:2]


@pytest.mark.full
@pytest.mark.parametrize("failure", ["nothing is computed", "no capture"])
def test_a_graph_that_fails_is_not_used(
    device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    if failure == "no capture":
        monkeypatch.setattr(torch.cuda, "graph", refuse)
    else:
        monkeypatch.setattr(Graph, "replay", lambda _: None)
    with caplog.at_level(logging.WARNING):
        several_calls(device, engines("mlp")[1], SOLVERS["sgd"])
    assert caplog.text.count("CUDA graph") == 1  # not tried again in the third call


def test_when_a_graph_agrees() -> None:
    generator = torch.Generator().manual_seed(0)
    start, way = (
        torch.randn(4, 30, generator=generator),
        0.01 * torch.randn(4, 30, generator=generator),
    )
    expected = start + way
    assert _agree(expected.clone(), expected, start)
    assert _agree(expected + 0.02 * way.flip(1), expected, start)  # rounding that turned a unit
    for wrong in (start, expected.roll(1, 0), torch.cat([expected[:3], start[3:]])):
        assert not _agree(wrong, expected, start)
    lost = expected.clone()
    lost[2, 3] = float("nan")
    assert not _agree(lost, expected, start)
    assert _agree(lost.clone(), lost, start)
    # losses, one per row
    assert _agree(torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0]), torch.zeros(2))


@pytest.mark.full
def test_little_memory_is_kept(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit one chunk is kept as before, however many kinds of chunks there are."""
    monkeypatch.setattr("fedclust.engines.fused.engine._KEPT", 0)
    _, gpu = engines("mlp")

    for rows in (4, 3, 4, 2):
        call = training(gpu, ragged_shards(EQUAL[:rows]), SOLVERS["sgd"])
        assert gpu.answer(on_device(call)).params.isfinite().all()
        assert sum(len(chunks._last) for chunks in gpu._kept.values()) == 1
    assert device.graph is None

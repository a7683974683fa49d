"""Every solver is that of torch.optim, in every engine."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toys import (
    ENGINES,
    NUM_CLASSES,
    labels,
    ragged_shards,
    shape_of,
    shipped,
    starts,
    terms,
    toy_pool,
    training,
)
from torch import Tensor, nn

from fedclust.core.calls import TrainCall, split
from fedclust.core.solver import Solver as Base
from fedclust.core.verbs import Engine
from fedclust.engines.fused.native import moments, perceptron
from fedclust.engines.schedule import schedule
from fedclust.models.mlp import mlp
from fedclust.solver import Adagrad, Adam, AdamW, RMSprop, Solver

FAST = ["vmap", "fused"]
BY_STEP = {"schedule": "step", "schedule_by": "step", "every": 2, "decay": 0.5}
COSINE = {"schedule": "cosine", "schedule_by": "step", "length": 3, "floor": 0.1, "warmup": 2}
SHAPE = (1, 6, 6)
STEP: dict[str, Any] = {"batch_size": 5, "epochs": 2}
# what PyTorch is asked for, by hand
SOLVERS: dict[str, tuple[Base, type[torch.optim.Optimizer], dict[str, Any]]] = {
    "momentum": (Solver(lr=0.05, momentum=0.9, **STEP), torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (
        Solver(lr=0.05, momentum=0.8, nesterov=True, **STEP),
        torch.optim.SGD,
        {"momentum": 0.8, "nesterov": True},
    ),
    "dampening": (
        Solver(lr=0.05, momentum=0.8, dampening=0.3, **STEP),
        torch.optim.SGD,
        {"momentum": 0.8, "dampening": 0.3},
    ),
    "adam": (
        Adam(lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6, **STEP),
        torch.optim.Adam,
        {"betas": (0.8, 0.95), "eps": 1e-6},
    ),
    "adamw": (AdamW(lr=0.01, **STEP), torch.optim.AdamW, {}),
    "adagrad": (Adagrad(lr=0.02, **STEP), torch.optim.Adagrad, {}),
    "rmsprop": (RMSprop(lr=0.01, alpha=0.9, **STEP), torch.optim.RMSprop, {"alpha": 0.9}),
}


def made(kind: str, name: str = "") -> Engine:
    """An engine for a perceptron, or a model of conf/model."""
    if name:
        return ENGINES[kind](shipped(name), toy_pool(shape_of(name)))
    model = mlp(in_shape=SHAPE, num_classes=NUM_CLASSES, hidden=[7])
    return ENGINES[kind](model, toy_pool(SHAPE))


def by_hand(call: TrainCall, row: int, asked: type[torch.optim.Optimizer], how: Any) -> Tensor:
    """Parameters of one row after the plain PyTorch loop."""
    pool, plan = toy_pool(SHAPE), schedule(call.shards, call.solver)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 7), nn.ReLU(), nn.Linear(7, NUM_CLASSES))
    nn.utils.vector_to_parameters(call.models[call.label[row]].clone(), model.parameters())
    optimizer = asked(model.parameters(), lr=call.lr, **how)
    for step in range(int(plan.steps[row])):
        index = call.shards.index[row, plan.position[row, step, : plan.size[row, step]]]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pool.inputs(index)), pool.y[index]).backward()
        if call.solver.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), call.solver.clip_norm)
        if call.solver.schedule_by == "step":  # half the rate after two steps
            optimizer.param_groups[0]["lr"] = call.lr * 0.5 ** (step // 2)
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.thinned
@pytest.mark.parametrize(
    "more",
    [{}, {"weight_decay": 0.1}, {"clip_norm": 0.7}, BY_STEP],
    ids=["alone", "weight_decay", "clip_norm", "by_step"],
)
@pytest.mark.parametrize("name", SOLVERS)
def test_the_loop_is_torch_optim_to_the_bit(name: str, more: dict[str, Any]) -> None:
    solver, asked, how = SOLVERS[name]
    loop = made("loop")
    call = training(loop, ragged_shards(), replace(solver, **more))
    result = loop.answer(call)
    for row in range(len(call.shards)):
        given = {**how, "weight_decay": more.get("weight_decay", 0.0)}
        assert torch.equal(result.params[row], by_hand(call, row, asked, given)), row


def drawn(engine: Engine, seed: int) -> tuple[str, TrainCall]:
    """A random job of local training."""
    draw = random.Random(seed)
    name = draw.choice(list(SOLVERS))
    how = {"proximal": draw.choice([0.0, 0.5]), "weight_decay": draw.choice([0.0, 0.1])}
    solver = replace(SOLVERS[name][0], **how)
    if draw.random() < 0.3:
        solver = replace(solver, clip_norm=0.6)
    if draw.random() < 0.3:
        solver = replace(solver, epochs=1.4, **draw.choice([BY_STEP, COSINE]))
    shards = ragged_shards()
    models, label = starts(engine), labels(len(shards))
    given: dict[str, Any] = {}
    more = terms(engine, shards)
    if draw.random() < 0.5:
        given["linear"] = more["linear"]
    if draw.random() < 0.5:
        given["example_weight"] = more["example_weight"]
    if draw.random() < 0.3:
        given["anchor"] = 0.9 * models[label]
    if draw.random() < 0.3:
        given["frozen"] = torch.arange(models.shape[1]) < 36 * 7 + 7
    if draw.random() < 0.4:  # as an earlier call left them
        rows, few = torch.arange(3), ragged_shards((7, 9, 5))
        given["slots"] = engine.answer(TrainCall(models, rows, few, solver, solver.lr)).slots
    return name, TrainCall(models, label, shards, solver, solver.lr, **given)


@pytest.mark.thinned
@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("seed", range(30))
def test_random_jobs_are_those_of_the_loop(seed: int, engine: str) -> None:
    compare(made("loop"), made(engine), seed)


@pytest.mark.thinned
@pytest.mark.parametrize("name", ["linear", "cnn_femnist_tiny"])
@pytest.mark.parametrize("seed", range(12))
def test_compiled_steps_are_those_of_the_loop(seed: int, name: str) -> None:
    """Softmax regression has code of its own, and what lies behind a convolution."""
    compare(made("loop", name), made("fused", name), 100 + seed, frozen=False)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(8))
def test_without_a_compiler_steps_are_those_of_the_loop(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in (moments, perceptron):
        monkeypatch.setattr(code, "compiled", lambda: None)
    compare(made("loop"), made("fused"), 200 + seed)


def compare(loop: Engine, fast: Engine, seed: int, *, frozen: bool = True) -> None:
    name, call = drawn(loop, seed)
    if not frozen:
        call = replace(call, frozen=None)
        if call.solver.law.adaptive:  # or a gradient of 0 to rounding would be a whole step
            call = replace(call, solver=replace(call.solver, eps=0.01))  # type: ignore[call-arg]
    want, got = loop.answer(call), fast.answer(call)
    for one, other in ((got.params, want.params), (got.slots, want.slots)):
        assert one is not None
        assert other is not None
        # a unit whose input is 0 to rounding falls on either side of its ReLU
        far = ~torch.isclose(one, other, rtol=1e-3, atol=2e-5)
        assert far.double().mean() < 1e-3, name
        torch.testing.assert_close(one, other, rtol=0.02, atol=2e-3, msg=name)
    torch.testing.assert_close(got.loss, want.loss, rtol=1e-4, atol=1e-5)


@pytest.mark.thinned
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SOLVERS)
def test_rows_with_their_own_rates_are_as_alone(name: str, engine: str) -> None:
    """Seeds in lockstep whose learning rate differs, alone or beside the weight decay."""
    fast, solver = made(engine), SOLVERS[name][0]
    for decay in (0.1, solver.weight_decay):
        how = [{"lr": 0.01}, {"lr": 0.03, "weight_decay": decay}, {"lr": 0.002}]
        calls = [training(fast, ragged_shards(), replace(solver, **one)) for one in how]
        assert len({call.kind for call in calls}) == 1
        together = split(fast.answer(TrainCall.merge(calls)), calls)
        for call, got in zip(calls, together, strict=True):
            want = fast.answer(call)
            torch.testing.assert_close(got.params, want.params, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(got.slots, want.slots, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_clipped_row_is_shortened_by_its_own_norm(engine: str) -> None:
    """One step of all examples: exactly lr * clip_norm far where the gradient is longer."""
    fast, solver = made(engine), Solver(lr=0.1, batch_size=None, epochs=1)
    call = training(fast, ragged_shards(), solver)
    start = call.models[call.label]
    length = (fast.answer(call).params - start).norm(dim=1) / 0.1
    norm = float(length[call.shards.count > 0].median())
    clipped = fast.answer(replace(call, solver=replace(solver, clip_norm=norm))).params - start
    want = 0.1 * length.clamp(max=norm)
    torch.testing.assert_close(clipped.norm(dim=1), want, rtol=1e-4, atol=1e-6)


def test_solvers_that_differ_are_not_computed_together() -> None:
    loop = made("loop")
    solvers = [solver for solver, _, _ in SOLVERS.values()]
    solvers += [Adam(lr=0.01, **STEP), Adam(lr=0.01, beta2=0.9, **STEP)]
    kinds = {training(loop, ragged_shards(), one, lr=0.01).kind for one in solvers}
    assert len(kinds) == len(solvers)

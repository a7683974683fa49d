"""Large dense layers as compiled code against float64, and a network of them against the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toys import SOLVERS, assert_equals_the_loop, ragged_shards, shape_of, shipped, toy_pool
from torch import Tensor

from fedclust.engines.fused import FusedEngine
from fedclust.engines.fused.aligning import AlignRule
from fedclust.engines.fused.native import linear
from fedclust.engines.fused.native.linear import CompiledLinearStep
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Accumulate, Descent, Gathered, HeavyBall, Rule
from fedclust.engines.fused.weights import Field, Weight
from fedclust.engines.loop import LoopEngine
from fedclust.solver import Adam

PLAIN = {"lr": 0.1, "proximal": 0.0, "weight_decay": 0.2, "pull": 0.3, "products": Products()}
RULES: dict[str, Any] = {
    "descent": Descent(**PLAIN),
    "momentum": HeavyBall(momentum=0.9, **PLAIN),
    "gathered": Gathered(solver=Adam(lr=0.1), lr=0.1, pull=0.0, products=Products()),
    "added up": Accumulate(Products()),
}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes layers of any size for large ones."""
    monkeypatch.setattr(linear, "_LARGE", 1)


def one_step(
    rule: Any, rows: int, batch: int, inputs: int, outputs: int, *, back: bool
) -> dict[str, tuple[Tensor, Tensor]]:
    """A step by compiled code, and the same in float64 by definition, part by part."""
    draw = torch.Generator().manual_seed(rows + batch + inputs + outputs)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    weight = rule.weight(Field(offset=0, shape=(outputs, inputs)), rows, CPU)
    bias = rule.weight(Field(offset=0, shape=(outputs,)), rows, CPU)
    for own in (weight, bias):
        for part in (own.value, own.anchor, own.slot, own.square):
            if part is not None:
                part.copy_(drawn(*part.shape))
        if own.gradient is not None:
            own.gradient.fill_(torch.nan)  # whatever was there before
    x, delta = drawn(rows, batch, inputs), drawn(rows, batch, outputs)
    room = torch.full((rows, batch, inputs), torch.nan) if back else None
    out = torch.full((rows, batch, outputs), torch.nan)
    w, b, d, inside = (part.double() for part in (weight.value, bias.value, delta, x))
    into = rule.sum_of(weight)
    to = into.to.double() if into.beta else torch.zeros_like(w)
    wanted = replace(
        weight, **{k: v.double() for k, v in vars(weight).items() if torch.is_tensor(v)}
    )
    rule.sum_of(wanted).to.copy_(into.beta * to + into.alpha * d.mT @ inside)
    rule.settle(wanted)
    step = CompiledLinearStep(weight, bias, rule, out, room, Products())
    found = {"y": (step.forward(x).clone(), inside @ w.mT + b)}
    returned = step.backward(delta)
    if room is not None:
        found["dx"] = returned, d @ w
    assert room is not None or returned is delta
    found["target"] = into.to, rule.sum_of(wanted).to
    found["value"] = weight.value, wanted.value
    return found


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize(
    ("rows", "batch", "inputs", "outputs"),
    [(2, 10, 64, 40), (1, 1, 5, 1), (3, 7, 33, 23), (2, 16, 1500, 19), (1, 11, 4100, 8)],
)
def test_a_step_is_that_of_float64(
    name: str, back: bool, rows: int, batch: int, inputs: int, outputs: int
) -> None:
    assert linear.compiled() is not None
    for got, want in one_step(RULES[name], rows, batch, inputs, outputs, back=back).values():
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5 * inputs**0.5)


@pytest.mark.parametrize("rows", [1, 3])
def test_threads_change_no_bit(rows: int) -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(one_step(RULES["descent"], rows, 10, 2500, 37, back=True))
    finally:
        torch.set_num_threads(before)
    for part in found[0]:
        assert all(torch.equal(one[part][0], found[0][part][0]) for one in found[1:])


@pytest.mark.parametrize("solver", ["sgd", "momentum", "proximal", "everything", "adam"])
def test_a_network_learns_as_in_the_loop(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, seen = "cnn_femnist_tiny", list[int]()
    moves = CompiledLinearStep.move

    def watched(step: CompiledLinearStep, delta: Tensor) -> Tensor:
        seen.append(len(delta))
        return moves(step, delta)

    monkeypatch.setattr(CompiledLinearStep, "move", watched)
    one = SOLVERS.get(solver) or Adam(lr=0.1, eps=0.1, batch_size=5, epochs=2)  # smooth at 0
    pool = toy_pool(shape_of(name))
    fast, loop = (kind(shipped(name), pool) for kind in (FusedEngine, LoopEngine))
    near = {"rtol": 1e-3, "atol": 2e-5}
    assert_equals_the_loop(fast, loop, ragged_shards(), one, near, near)
    assert seen


def test_it_pays_for_large_layers_and_few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rule = RULES["descent"]

    def pays(numbers: int, batch: int, rule: Rule | None = rule, **more: Any) -> bool:
        weight = replace(Weight(value=torch.empty(2, 1, numbers)), **more)
        return linear.pays(weight, rule, batch, Products())

    assert pays(1 << 18, 16)
    assert not pays((1 << 18) - 1, 16)
    assert not pays(1 << 18, 17)
    assert not pays(1 << 18, 16, frozen=True)
    assert not pays(1 << 18, 16, None)
    assert not pays(1 << 18, 16, value=torch.empty(2, 1, 1 << 18, device="meta"))
    weight = Weight(value=torch.empty(2, 1, 1 << 18))
    assert not linear.pays(weight, rule, 16, Products("bf16"))
    assert not linear.pays(weight, AlignRule(), 16, Products())

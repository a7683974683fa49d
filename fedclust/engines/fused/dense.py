"""Steps of fully connected parts, of R rows with B examples each, in preset buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedclust.engines.fused.native import masks
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Rule
from fedclust.engines.fused.weights import Weight


class DenseStep(Protocol):
    """One layer bound to some rows of a chunk and to a batch size; tensors are [R, B, *features].

    `forward` remembers what `backward` needs, so the two are called in turn. Steps are given the
    options of their `layer`, a `rule` that says what becomes of gradients, None for forward only,
    and the `clock` of the training.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output; may overwrite x."""

    def backward(self, delta: Tensor) -> Tensor:
        """Update the layer from the loss gradient `delta` of its output; may overwrite delta.

        Returns the gradient of the input, as it was before the update, where something needs it.
        """


@dataclass
class Clock:
    """Where the local training of a chunk is.

    Attributes:
        step: the local step that dropout masks are drawn for, None for the model without dropout.
        example: [R, B] int64 the batch's examples, counted through all rows of the chunk; None
            where every batch is a row's first examples.
        sizes: real examples of every row's batch, for layers that normalise it; None outside
            training.
    """

    step: int | None = None
    example: Tensor | None = None
    sizes: list[int] | None = None


class Chain:
    """Steps one after the other; gradients go back to `first`, the first whose parameters move."""

    def __init__(self, steps: Sequence[DenseStep], first: int) -> None:
        self.steps, self.first = steps, first
        self.backwards = list(steps[first:])[::-1]

    def forward(self, x: Tensor) -> Tensor:
        """Output of the last step, [R, B, *features]."""
        for step in self.steps:
            x = step.forward(x)
        return x

    def backward(self, delta: Tensor) -> None:
        """Update every parameter from the loss gradient of the output."""
        for step in self.backwards:
            delta = step.backward(delta)


class LinearStep:
    """x @ W^T + b, with the update fused into the product that is W's gradient.

    Where all rows see the same inputs, the outputs of all are one product, in which examples and
    not features are neighbours in memory. What follows keeps that order, in both directions: over
    operands of two orders an operation takes several times as long.

    Args:
        weight: W of every row, [R, o, i].
        bias: b of every row, [R, 1, o].
        out: room for the output, [R, B, o].
        back: room for the gradient of the input, [R, B, i]; None where no layer before needs it.
    """

    def __init__(
        self,
        weight: Weight,
        bias: Weight | None,
        rule: Rule | None,
        out: Tensor,
        back: Tensor | None,
        products: Products,
    ) -> None:
        self.weight, self.turned, self.bias, self.rule = weight, weight.value.mT, bias, rule
        self.out, self.back, self.products = out, back, products
        rows, batch = out.shape[:2]
        self.ones = out.new_ones(1, 1, batch).expand(rows, 1, batch)

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        if x.stride(0) == 0 and len(x) > 1:
            return self._shared(x[0])
        if _by_feature(x):
            return self._turned_forward(x.mT)
        if self.bias is None:
            return self.products.bmm(x, self.turned, self.out)
        return self.products.baddbmm(self.bias.value, x, self.turned, self.out)

    def _shared(self, x: Tensor) -> Tensor:
        """The outputs of all rows for the same inputs [B, i]: one product of all their weights."""
        value = self.weight.value.flatten(0, 1).unsqueeze(0)
        rows, batch, outputs = self.out.shape
        out, turned = self.out.view(1, rows * outputs, batch), x.unsqueeze(0).mT
        if self.bias is None:
            self.products.bmm(value, turned, out)
        else:
            self.products.baddbmm(self.bias.value.view(1, -1, 1), value, turned, out)
        return out.view(rows, outputs, batch).mT

    def _turned_forward(self, x: Tensor) -> Tensor:
        """The outputs for inputs [R, i, B]."""
        rows, batch, outputs = self.out.shape
        out = self.out.view(rows, outputs, batch)
        if self.bias is None:
            return self.products.bmm(self.weight.value, x, out).mT
        return self.products.baddbmm(self.bias.value.mT, self.weight.value, x, out).mT

    def backward(self, delta: Tensor) -> Tensor:
        assert self.rule is not None
        back = self.move(delta)
        if self.bias is not None and not self.bias.frozen:
            self.rule.product(self.bias, self.ones, delta)
        return back

    def move(self, delta: Tensor) -> Tensor:
        """Update the weights; returns the gradient of the input, as `backward` does."""
        assert self.rule is not None
        back = delta
        if self.back is not None and _by_feature(self.x):
            rows, batch, inputs = self.back.shape
            room = self.back.view(rows, inputs, batch)
            back = self.products.bmm(self.turned, delta.mT, room).mT
        elif self.back is not None:
            back = self.products.bmm(delta, self.weight.value, self.back)
        if not self.weight.frozen:
            self.rule.product(self.weight, delta.mT, self.x)
        return back


def _by_feature(x: Tensor) -> bool:
    """Whether examples and not features of x [R, B, i] are neighbours in memory."""
    return x.stride(2) != 1 and x.stride(1) == 1


class ReluStep:
    """max(x, 0), in place: whatever comes before does not need its own output."""

    def forward(self, x: Tensor) -> Tensor:
        self.y = x.relu_()
        return self.y

    def backward(self, delta: Tensor) -> Tensor:
        torch.ops.aten.threshold_backward.grad_input(delta, self.y, 0, grad_input=delta)
        return delta


class DropoutStep:
    """x times the mask of ([R] int64 row key, local step, layer number, example), in steps only."""

    def __init__(self, key: Tensor, clock: Clock, layer: int, p: float) -> None:
        self.key, self.clock, self.layer, self.p = key, clock, layer, p

    def forward(self, x: Tensor) -> Tensor:
        self.mask = None
        if self.clock.step is None:
            return x
        self.mask = masks.keep(
            self.key, self.clock.step, self.layer, x.shape[1], tuple(x.shape[2:]), self.p
        )
        return x.mul_(self.mask)

    def backward(self, delta: Tensor) -> Tensor:
        return delta if self.mask is None else delta.mul_(self.mask)

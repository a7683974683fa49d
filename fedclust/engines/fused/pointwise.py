"""Activations other than ReLU: what they give, and the gradients they go back with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedclust.models.sequence import ACTIVATIONS

_OPS = torch.ops.aten


class _Rule(NamedTuple):
    """What an activation y = f(x) gives, and its gradient.

    Attributes:
        forward: y from the layer and x.
        backward: the gradient of x from the layer, the gradient of y, and x, or y where it is `by`
            the output.
        by_output: whether the slope is known from y alone.
    """

    forward: Callable[[Any, Tensor], Tensor]
    backward: Callable[[Any, Tensor, Tensor], Tensor]
    by_output: bool = False


_RULES: dict[type[nn.Module], _Rule] = {
    nn.GELU: _Rule(
        lambda f, x: _OPS.gelu(x, approximate=f.approximate),
        lambda f, d, x: _OPS.gelu_backward(d, x, approximate=f.approximate),
    ),
    nn.SiLU: _Rule(lambda _, x: _OPS.silu(x), lambda _, d, x: _OPS.silu_backward(d, x)),
    nn.Tanh: _Rule(
        lambda _, x: _OPS.tanh(x), lambda _, d, y: _OPS.tanh_backward(d, y), by_output=True
    ),
    nn.Sigmoid: _Rule(
        lambda _, x: _OPS.sigmoid(x), lambda _, d, y: _OPS.sigmoid_backward(d, y), by_output=True
    ),
    nn.LeakyReLU: _Rule(
        lambda f, x: _OPS.leaky_relu(x, f.negative_slope),
        lambda f, d, x: _OPS.leaky_relu_backward(d, x, f.negative_slope, False),
    ),
    nn.ELU: _Rule(
        lambda f, x: _OPS.elu(x, f.alpha),
        lambda f, d, x: _OPS.elu_backward(d, f.alpha, 1, 1, False, x),
    ),
    nn.ReLU6: _Rule(
        lambda _, x: _OPS.hardtanh(x, 0, 6), lambda _, d, x: _OPS.hardtanh_backward(d, x, 0, 6)
    ),
    nn.Hardswish: _Rule(
        lambda _, x: _OPS.hardswish(x), lambda _, d, x: _OPS.hardswish_backward(d, x)
    ),
}


class ActivationStep:
    """An activation of every number; `overwritten` where the next layer works in place."""

    def __init__(self, layer: nn.Module, *, overwritten: bool) -> None:
        kind = next(kind for kind in ACTIVATIONS if isinstance(layer, kind))
        self.layer, self.rule, self.overwritten = layer, _RULES[kind], overwritten

    def forward(self, x: Tensor) -> Tensor:
        y = self.rule.forward(self.layer, x)
        self.known = x
        if self.rule.by_output:
            self.known = y.clone() if self.overwritten else y
        return y

    def backward(self, delta: Tensor) -> Tensor:
        return self.rule.backward(self.layer, delta, self.known)

"""Steps before the first products: table columns, ids and their vectors, other shapes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedclust.engines.fused.branches import kept
from fedclust.engines.fused.rules import Rule
from fedclust.engines.fused.weights import Weight
from fedclust.models.sequence import Shape, Shaped, Turn


class InputStep:
    """What a layer of `fedclust.models.sequence.INPUTS` makes of inputs, without gradient."""

    def __init__(self, layer: nn.Module, following: nn.Module | None) -> None:
        self.layer, self.following = layer, following

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if self.following is None else kept(y, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        return delta


class ShapedStep:
    """[R, B, *features] in the shape of a layer, without a copy where there is a view."""

    def __init__(self, layer: Shaped | nn.Flatten) -> None:
        self.shape: Shape = layer.shape if isinstance(layer, Shaped) else (-1,)

    def forward(self, x: Tensor) -> Tensor:
        self.before = x.shape
        return x.reshape(*x.shape[:2], *self.shape)

    def backward(self, delta: Tensor) -> Tensor:
        return delta.reshape(self.before)


class TurnStep:
    """The last two dimensions exchanged, without a copy."""

    def __init__(self, layer: Turn) -> None:
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.forward(x)

    def backward(self, delta: Tensor) -> Tensor:
        return self.layer.forward(delta)


class EmbeddingStep:
    """Vectors of ids, of weights [R, V, D]; only those that were looked up have a gradient."""

    def __init__(self, layer: nn.Embedding, weight: Weight, rule: Rule | None) -> None:
        self.weight, self.rule, self.padding = weight, rule, layer.padding_idx
        rows, number = weight.value.shape[:2]
        self.first = torch.arange(rows, device=weight.value.device) * number

    def forward(self, x: Tensor) -> Tensor:
        """x [R, B, ...] int64 gives [R, B, ..., D]."""
        self.ids = x.flatten(1)
        self.place = (self.ids + self.first.unsqueeze(1)).flatten()
        vectors = self.weight.value.flatten(0, 1).index_select(0, self.place)
        return vectors.view(*x.shape, -1)

    def backward(self, delta: Tensor) -> Tensor:
        assert self.rule is not None
        if not self.weight.frozen:
            gradient = delta.reshape(*self.ids.shape, -1)
            if self.padding is not None:
                gradient = gradient * (self.ids != self.padding).unsqueeze(2)
            self.rule.scattered(self.weight, self.ids, gradient)
        return delta

"""Normalisation of rows: of a batch by its real examples, of an example by channel groups."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedclust.engines.fused.dense import Clock
from fedclust.engines.fused.rules import Rule
from fedclust.engines.fused.weights import Weight

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_NATIVE = torch.ops.aten.native_batch_norm.out
_GROUPS = torch.ops.aten.native_group_norm.default
_BACK = torch.ops.aten.native_batch_norm_backward.default


class NormStep:
    """Batch normalisation, by the statistics of a batch in training, by the running ones elsewhere:
    row by row, by PyTorch's own kernels. For group normalisation it is only what compiled code
    needs: without the code `GroupStep` computes it.

    Args:
        weights: of every row by name, scale and shift [R, 1, C] where there are any, and
            statistics.
        held: names of the statistics that stay as they are in training.
        clock: tells whether there is training, and how many examples are real.
        low: number of the first row among all of the chunk.
        out: room for the output, as the input lies.
        back: room for the gradient of the input, likewise.
    """

    def __init__(
        self,
        layer: nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm,
        weights: Mapping[str, Weight],
        held: frozenset[str],
        rule: Rule | None,
        clock: Clock,
        low: int,
        out: Tensor,
        back: Tensor,
    ) -> None:
        self.groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else 0
        self.eps, self.momentum = layer.eps, getattr(layer, "momentum", None)
        self.weights, self.held, self.rule = weights, held, rule
        self.clock, self.low, self.out, self.back = clock, low, out, back
        rows, batch, channels = out.shape[:3]
        self.statistics = out.new_empty(2, rows, batch * self.groups or channels)
        self.mean, self.scale = self.statistics  # of the batches, or of every example's groups
        self.change = out.new_empty(2, rows, 1, channels)  # gradients of scale and shift
        self.sizes: list[int] = []

    def _of(self, name: str, row: int) -> Tensor | None:
        """A parameter of a row or its statistics, [C]."""
        return self.weights[name].value[row, 0] if name in self.weights else None

    def _running(self, row: int) -> list[Tensor]:
        """The running mean and variance of a row; copies, where they stay as they are."""
        parts = [self.weights[name].value[row, 0] for name in STATISTICS[:2]]
        held = [self.training and name in self.held for name in STATISTICS[:2]]
        return [x.clone() if still else x for x, still in zip(parts, held, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        rows, batch = self.out.shape[:2]
        self.x, self.training = x, self.clock.sizes is not None
        sizes = self.clock.sizes
        self.sizes = [batch] * rows if sizes is None else sizes[self.low : self.low + rows]
        self.normalise(x)
        return self.out

    def normalise(self, x: Tensor) -> None:
        """Write the output, and renew the statistics in training."""
        for row, (size, factor) in enumerate(zip(self.sizes, self.factors(), strict=True)):
            where = slice(0, size)
            kept = [x[row] if self.training else x.new_empty(0) for x in self.statistics]
            _NATIVE(
                _last(x[row, where]),
                self._of("weight", row),
                self._of("bias", row),
                *self._running(row),
                self.training,
                factor,
                self.eps,
                out=self.out[row, where],
                save_mean=kept[0],
                save_invstd=kept[1],
            )
            self.out[row, size:] = 0

    def factors(self) -> list[float]:
        """What every row's batch weighs in the running statistics, once it is counted."""
        rows = len(self.sizes)
        if not self.training or self.groups:
            return [0.0] * rows
        count = self.weights["num_batches_tracked"].value[:rows]
        if "num_batches_tracked" not in self.held:
            count.round_().add_(1)
        if self.momentum is not None:
            return [self.momentum] * rows
        return [1 / number for number in count.flatten().tolist()]

    def backward(self, delta: Tensor) -> Tensor:
        assert self.rule is not None
        self.carry(delta)
        for name, change in zip(("weight", "bias"), self.change, strict=True):
            if name in self.weights and not self.weights[name].frozen:
                self.rule.whole(self.weights[name], change)
        return self.back

    def carry(self, delta: Tensor) -> None:
        """Write the gradient of the input, and those of scale and shift."""
        affine = "weight" in self.weights
        for row, size in enumerate(self.sizes):
            where = slice(0, size)
            back, *change = _BACK(
                _last(delta[row, where]),
                _last(self.x[row, where]),
                self._of("weight", row),
                *((None, None) if self.training else self._running(row)),
                self.mean[row] if self.training else None,
                self.scale[row] if self.training else None,
                self.training,
                self.eps,
                [True, affine, affine],
            )
            self.back[row, where], self.back[row, size:] = back, 0
            if affine:
                self.change[0, row, 0], self.change[1, row, 0] = change


class _ExampleStep:
    """Normalisation of single examples; `weights` [R, 1, C], or shaped like a LayerNorm's."""

    def __init__(self, layer: Any, weights: Mapping[str, Weight], rule: Rule | None) -> None:
        self.layer, self.eps, self.weights, self.rule = layer, layer.eps, weights, rule


class GroupStep(_ExampleStep):
    """Group normalisation, row by row."""

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, *sides = x.shape[1:]
        self.sizes = batch, channels, math.prod(sides)
        self.x = [_last(own) for own in x]
        results = [
            _GROUPS(own, *self._affine(row), *self.sizes, self.layer.num_groups, self.eps)
            for row, own in enumerate(self.x)
        ]
        self.means = [rest for _, *rest in results]
        return (
            results[0][0].unsqueeze(0) if len(x) == 1 else torch.stack([one[0] for one in results])
        )

    def _affine(self, row: int) -> list[Tensor | None]:
        """Scale and shift of a row."""
        own = (self.weights.get(name) for name in ("weight", "bias"))
        return [None if weight is None else weight.value[row, 0] for weight in own]

    def backward(self, delta: Tensor) -> Tensor:
        assert self.rule is not None
        affine = "weight" in self.weights
        results = [
            torch.ops.aten.native_group_norm_backward(
                _last(own),
                self.x[row],
                *self.means[row],
                self._affine(row)[0],
                *self.sizes,
                self.layer.num_groups,
                [True, affine, affine],
            )
            for row, own in enumerate(delta)
        ]
        for at, name in enumerate(("weight", "bias"), start=1):
            if affine and not self.weights[name].frozen:
                change = torch.stack([one[at] for one in results]).unsqueeze(1)
                self.rule.whole(self.weights[name], change)
        return torch.stack([one[0] for one in results])


class LayerStep(_ExampleStep):
    """Normalisation of the last dimensions, of all rows at once."""

    def forward(self, x: Tensor) -> Tensor:
        self.x, self.shape = x.contiguous(), list(self.layer.normalized_shape)
        y, self.mean, self.scale = torch.native_layer_norm(self.x, self.shape, None, None, self.eps)
        self.normal = y
        if "weight" in self.weights:
            y = y * self._of("weight")
        if "bias" in self.weights:
            y = y + self._of("bias")
        # what follows may work in place
        return y.clone() if y is self.normal else y

    def _of(self, name: str) -> Tensor:
        """A parameter beside the examples, [R, 1, ..., *shape]."""
        value = self.weights[name].value
        between = self.x.dim() - 1 - len(self.shape)
        return value.view(len(value), *[1] * between, *self.shape)

    def backward(self, delta: Tensor) -> Tensor:
        assert self.rule is not None
        among = tuple(range(1, self.x.dim() - len(self.shape)))
        inner = delta * self._of("weight") if "weight" in self.weights else delta
        back: Tensor = torch.ops.aten.native_layer_norm_backward(
            inner.contiguous(), self.x, self.shape, self.mean, self.scale, None, None,
            [True, False, False],
        )[0]  # fmt: skip
        for name in ("weight", "bias"):
            weight = self.weights.get(name)
            if weight is not None and not weight.frozen:
                each = delta * self.normal if name == "weight" else delta
                self.rule.whole(weight, each.sum(among).view_as(weight.value))
        return back


def _last(x: Tensor) -> Tensor:
    """x [B, C, H, W] with channels last, as the output lies: the kernels look at one order."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.contiguous()

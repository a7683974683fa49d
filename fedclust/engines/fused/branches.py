"""Branches that part and are added up again, such as the shortcut of a residual block.

In a sequence of layers they stand one behind the other: `Fork`, the layers of one, `Swap` and the
layers of the other where it has any, `Add`. Parts whose outputs are put one behind the other
likewise: `Split`, the layers of the first, `Next`, those of the second and so on, `Join`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedclust.models.sequence import ACTIVATIONS, INPUTS, Add, Fork, Join, Next, Split, Swap

BRANCHING = (Fork, Swap, Add)
PARTING = (Split, Next, Join)
OVERWRITING = (nn.ReLU, nn.Dropout)
_READING = (
    *(nn.Conv2d, nn.Linear, nn.Embedding, nn.MaxPool2d, nn.AvgPool2d),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm, *ACTIVATIONS, *PARTING),
    *INPUTS,
)


def kept(x: Tensor, following: nn.Module) -> Tensor:
    """x in memory that the layer that follows leaves as it is."""
    return x if isinstance(following, _READING) else x.clone()


@dataclass
class Parts:
    """What the steps of several parts hand each other, which have one input.

    Attributes:
        need: whether the gradient of the input is wanted.
        summed: whether outputs are added up, of two parts; else they are put one behind the other.
        x: the input.
        outs: what the parts so far gave.
        waiting: the gradients of what these gave.
        back: the sum of the gradients of the input, of the later parts.
    """

    need: bool
    summed: bool
    x: Tensor | None = None
    outs: list[Tensor] = field(default_factory=list)
    waiting: list[Tensor] = field(default_factory=list)
    back: Tensor | None = None


class SplitStep:
    """Here the first of several parts begins, at the layer before `following`."""

    def __init__(self, parts: Parts, following: nn.Module) -> None:
        self.parts, self.following = parts, following

    def forward(self, x: Tensor) -> Tensor:
        self.parts.x, self.parts.outs = x, []
        return kept(x, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        back, self.parts.back = self.parts.back, None
        if back is None:
            return delta
        return delta.add_(back) if self.parts.summed else back.add_(delta)


class NextStep:
    """Here a further part begins; arguments as of `SplitStep`."""

    def __init__(self, parts: Parts, following: nn.Module) -> None:
        self.parts, self.following = parts, following

    def forward(self, x: Tensor) -> Tensor:
        assert self.parts.x is not None
        self.parts.outs.append(x)
        return kept(self.parts.x, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        if self.parts.need and self.parts.back is not None:
            self.parts.back.add_(delta)
        elif self.parts.need:
            # memory of its own: parts of one gradient may come back as they are
            self.parts.back = delta if self.parts.summed else delta.clone()
        return self.parts.waiting.pop()


class AddStep:
    """Two parts end here, added up in `out`; `spare` copies the gradient. One may have no layer."""

    def __init__(self, parts: Parts, out: Tensor, spare: Tensor) -> None:
        self.parts, self.out, self.spare = parts, out, spare

    def forward(self, x: Tensor) -> Tensor:
        other = self.parts.outs[0] if self.parts.outs else self.parts.x
        assert other is not None
        return torch.add(x, other, out=self.out)

    def backward(self, delta: Tensor) -> Tensor:
        copy = self.spare.copy_(delta)
        if self.parts.outs:
            self.parts.waiting = [copy]
        else:
            self.parts.back = copy
        return delta


class JoinStep:
    """Here all parts end: one behind the other they are copied together."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([*self.parts.outs, x], 2)

    def backward(self, delta: Tensor) -> Tensor:
        sizes = [out.shape[2] for out in self.parts.outs]
        *self.parts.waiting, last = torch.split(delta, [*sizes, delta.shape[2] - sum(sizes)], 2)
        return last

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


@dataclass
class Branch:
    """What the steps of two branches hand each other.

    Attributes:
        x: what waits: the input of the second branch, then the output of the first.
        delta: the gradient that waits, of the output of the first, then of their common input.
    """

    x: Tensor | None = None
    delta: Tensor | None = None


def kept(x: Tensor, following: nn.Module) -> Tensor:
    """x in memory that the layer that follows leaves as it is."""
    return x if isinstance(following, _READING) else x.clone()


class ForkStep:
    """Here two branches begin.

    Args:
        branch: that of all steps of the two.
        following: the first layer of the first.
    """

    def __init__(self, branch: Branch, following: nn.Module) -> None:
        self.branch, self.following = branch, following

    def forward(self, x: Tensor) -> Tensor:
        self.branch.x = x
        return kept(x, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        assert self.branch.delta is not None
        return delta.add_(self.branch.delta)


class SwapStep:
    """Here the second branch begins; arguments as of `ForkStep`."""

    def __init__(self, branch: Branch, following: nn.Module) -> None:
        self.branch, self.following = branch, following

    def forward(self, x: Tensor) -> Tensor:
        assert self.branch.x is not None
        x, self.branch.x = self.branch.x, x
        return kept(x, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        assert self.branch.delta is not None
        delta, self.branch.delta = self.branch.delta, delta
        return delta


class AddStep:
    """Here both end.

    Args:
        branch: see `ForkStep`.
        out: room for the sum.
        spare: room for a copy of its gradient.
    """

    def __init__(self, branch: Branch, out: Tensor, spare: Tensor) -> None:
        self.branch, self.out, self.spare = branch, out, spare

    def forward(self, x: Tensor) -> Tensor:
        assert self.branch.x is not None
        return torch.add(x, self.branch.x, out=self.out)

    def backward(self, delta: Tensor) -> Tensor:
        self.branch.delta = self.spare.copy_(delta)
        return delta


@dataclass
class Parts:
    """What the steps of several parts hand each other.

    Attributes:
        need: whether the gradient of their input is wanted.
        x: their input.
        outs: what the parts so far gave.
        delta: the gradient of what all of them give.
        back: the sum of the gradients of their input, of the later parts.
        starts: where the output of each begins along the first dimension of an example.
    """

    need: bool
    x: Tensor | None = None
    outs: list[Tensor] = field(default_factory=list)
    delta: Tensor | None = None
    back: Tensor | None = None
    starts: list[int] = field(default_factory=list)

    def take(self) -> Tensor:
        """The gradient of the last part that has not had it."""
        assert self.delta is not None
        start = self.starts.pop()
        part = self.delta[:, :, start:]
        self.delta = self.delta[:, :, :start]
        return part


class SplitStep:
    """Here the first of several parts begins.

    Args:
        parts: those of all steps of the parts.
        following: the first layer.
    """

    def __init__(self, parts: Parts, following: nn.Module) -> None:
        self.parts, self.following = parts, following

    def forward(self, x: Tensor) -> Tensor:
        self.parts.x, self.parts.outs = x, []
        return kept(x, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        back, self.parts.back = self.parts.back, None
        return delta if back is None else back.add_(delta)


class NextStep:
    """Here a further part begins; arguments as of `SplitStep`."""

    def __init__(self, parts: Parts, following: nn.Module) -> None:
        self.parts, self.following = parts, following

    def forward(self, x: Tensor) -> Tensor:
        assert self.parts.x is not None
        self.parts.outs.append(x)
        return kept(self.parts.x, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        if self.parts.need:
            # memory of its own: parts of one gradient may come back as they are
            back = self.parts.back
            self.parts.back = delta.clone() if back is None else back.add_(delta)
        return self.parts.take()


class JoinStep:
    """Here all parts end: one behind the other they are copied together.

    Args:
        parts: see `SplitStep`.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        outs = [*self.parts.outs, x]
        self.starts = [0]
        for out in outs[:-1]:
            self.starts.append(self.starts[-1] + out.shape[2])
        return torch.cat(outs, 2)

    def backward(self, delta: Tensor) -> Tensor:
        self.parts.delta, self.parts.starts = delta, list(self.starts)
        return self.parts.take()

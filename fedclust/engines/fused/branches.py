"""Branches that part and are added up again, such as the shortcut of a residual block.

In a sequence of layers they stand one behind the other: `Fork`, the layers of one, `Swap` and the
layers of the other where it has any, `Add`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedclust.models.sequence import Add, Fork, Swap

BRANCHING = (Fork, Swap, Add)
_READING = (nn.Conv2d, nn.Linear, nn.MaxPool2d, nn.AvgPool2d, nn.BatchNorm2d, nn.GroupNorm)


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
        """See `Step`."""
        self.branch.x = x
        return kept(x, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        """See `Step`."""
        assert self.branch.delta is not None
        return delta.add_(self.branch.delta)


class SwapStep:
    """Here the second branch begins; arguments as of `ForkStep`."""

    def __init__(self, branch: Branch, following: nn.Module) -> None:
        self.branch, self.following = branch, following

    def forward(self, x: Tensor) -> Tensor:
        """See `Step`."""
        assert self.branch.x is not None
        x, self.branch.x = self.branch.x, x
        return kept(x, self.following)

    def backward(self, delta: Tensor) -> Tensor:
        """See `Step`."""
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
        """See `Step`."""
        assert self.branch.x is not None
        return torch.add(x, self.branch.x, out=self.out)

    def backward(self, delta: Tensor) -> Tensor:
        """See `Step`."""
        self.branch.delta = self.spare.copy_(delta)
        return delta

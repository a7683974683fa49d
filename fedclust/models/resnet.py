"""Residual networks with group normalisation, whose statistics are of one example alone, or with
batch normalisation, which keeps running statistics of each client's batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Width
from fedclust.models.sequence import Shape, TooSmallError, check_widths, of_images

NormLayer = Literal["group", "batch"]
_Normed = Callable[[int], nn.Module]
_STAGES = 4
_POOLINGS = 3  # of ResNet-9; each halves the sides


def resnet9(
    in_shape: Sequence[int],
    num_classes: int,
    *,
    channels: Sequence[Width],
    groups: Annotated[AtLeastOne, OnlyWith("norm_layer", "group")],
    norm_layer: NormLayer = "group",
) -> nn.Module:
    """ResNet-9 of Page (DAWNBench 2018): four convolutions, residual pairs after the second and
    fourth.

    Args:
        in_shape: (channels, height, width), at least 8 x 8.
        channels: four widths.
        groups: groups of channels that are normalised together; divides every width.

    Raises:
        ConfigError: for smaller images, or a width that is no multiple.
    """
    normed = _check(channels, groups, norm_layer)

    def build(shape: Shape) -> nn.Module:
        if min(shape[1:]) < 2**_POOLINGS:
            raise TooSmallError
        return _ResNet9(shape[0], num_classes, channels, normed)

    return of_images("resnet9", tuple(int(size) for size in in_shape), build)


def resnet18(
    in_shape: Sequence[int],
    num_classes: int,
    *,
    channels: Sequence[Width],
    groups: Annotated[AtLeastOne, OnlyWith("norm_layer", "group")],
    norm_layer: NormLayer = "group",
) -> nn.Module:
    """ResNet-18 (He et al., arXiv 1512.03385) for small images: a 3x3 convolution without pooling
    in front.

    Args:
        in_shape: (channels, height, width).
        channels: four widths, of two blocks each; the second to fourth halve the sides.
        groups: groups of channels that are normalised together; divides every width.

    Raises:
        ConfigError: when the examples are no images, or a width is no multiple.
    """
    normed = _check(channels, groups, norm_layer)

    def build(shape: Shape) -> nn.Module:
        return _ResNet18(shape[0], num_classes, channels, normed)

    return of_images("resnet18", tuple(int(size) for size in in_shape), build)


def _check(channels: Sequence[int], groups: int, norm_layer: NormLayer) -> _Normed:
    """What makes a normalisation of channels; refuses widths and groups that do not fit."""
    check_widths("model.channels", channels)
    four = len(channels) == _STAGES
    require(four, "model.channels", list(channels), f"{_STAGES} widths of at least 1")
    if norm_layer == "batch":
        return nn.BatchNorm2d
    fits = groups >= 1 and all(width % groups == 0 for width in channels)
    require(fits, "model.groups", groups, f"a divisor of all of model.channels={list(channels)}")
    return partial(nn.GroupNorm, groups)


def _conv(inside: int, outside: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the sides, or divides them by the stride; the norm has the bias."""
    return nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False)


class _ResNet9(nn.Module):
    tried_at_once = True  # a test does, see `fedclust.engines.suits`

    def __init__(self, inside: int, num_classes: int, channels: Sequence[int], normed: _Normed):
        super().__init__()
        first, second, third, fourth = channels

        def unit(before: int, after: int, *more: nn.Module) -> nn.Sequential:
            norm = normed(after)
            return nn.Sequential(_conv(before, after, 3), norm, nn.ReLU(), *more)

        self.first = unit(inside, first)
        self.second = unit(first, second, nn.MaxPool2d(2))
        self.pair2 = nn.Sequential(unit(second, second), unit(second, second))
        self.third = unit(second, third, nn.MaxPool2d(2))
        self.fourth = unit(third, fourth, nn.MaxPool2d(2))
        self.pair4 = nn.Sequential(unit(fourth, fourth), unit(fourth, fourth))
        self.head = nn.Linear(fourth, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, Y] of x [B, C, H, W]."""
        x = self.second(self.first(x))
        x = x + self.pair2(x)
        x = self.fourth(self.third(x))
        x = x + self.pair4(x)
        logits: Tensor = self.head(F.max_pool2d(x, x.shape[2:]).flatten(1))
        return logits


class _Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int, normed: _Normed):
        super().__init__()
        self.conv1 = _conv(inside, outside, 3, stride)
        self.norm1 = normed(outside)
        self.conv2 = _conv(outside, outside, 3)
        self.norm2 = normed(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(_conv(inside, outside, 1, stride), normed(outside))

    def forward(self, x: Tensor) -> Tensor:
        """Features [B, C', H', W'] of x [B, C, H, W]."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class _ResNet18(nn.Module):
    tried_at_once = True

    def __init__(self, inside: int, num_classes: int, channels: Sequence[int], normed: _Normed):
        super().__init__()
        self.conv = _conv(inside, channels[0], 3)
        self.norm = normed(channels[0])
        blocks, before = [], channels[0]
        for stage, width in enumerate(channels):
            blocks.append(_Block(before, width, 2 if stage else 1, normed))
            blocks.append(_Block(width, width, 1, normed))
            before = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, Y] of x [B, C, H, W]."""
        features = self.blocks(F.relu(self.norm(self.conv(x))))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits

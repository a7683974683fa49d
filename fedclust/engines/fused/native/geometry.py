"""Sizes of a block of layers that begins with a convolution, and which pixels meet which taps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_LARGEST = 254  # places of a window that a byte can tell, besides "none"


def pair(value: Any) -> tuple[int, int]:
    """A layer's option as (height, width)."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


@dataclass(frozen=True, kw_only=True)
class Block:
    """Layers that are computed together.

    Attributes:
        pads: zeros (left, right, top, bottom) around the images.
        layer: number of the convolution.
        pool: the maximum that follows, None for none.
        end: number of the layer after the block.
    """

    pads: tuple[int, int, int, int]
    layer: int
    conv: nn.Conv2d
    relu: bool
    pool: nn.MaxPool2d | None
    end: int

    @classmethod
    def at(cls, layers: Sequence[nn.Module], first: int) -> Block | None:
        """The block that begins with a layer; None where none does."""
        padding, at = layers[first], first
        outer = (0, 0, 0, 0)
        if isinstance(padding, nn.ZeroPad2d) and at + 1 < len(layers):
            left, right, top, bottom = padding.padding
            outer, at = (left, right, top, bottom), at + 1
        conv = layers[at]
        if not isinstance(conv, nn.Conv2d) or min(outer) < 0:
            return None
        vertical, horizontal = pair(conv.padding)
        own = (horizontal, horizontal, vertical, vertical)
        end = at + 1
        relu = end < len(layers) and isinstance(layers[end], nn.ReLU)
        end += relu
        pool = layers[end] if end < len(layers) else None
        pool = pool if isinstance(pool, nn.MaxPool2d) and _is_plain(pool) else None
        left, right, top, bottom = (a + b for a, b in zip(outer, own, strict=True))
        return cls(
            pads=(left, right, top, bottom),
            layer=at,
            conv=conv,
            relu=relu,
            pool=pool,
            end=end + (pool is not None),
        )


def _is_plain(pool: nn.MaxPool2d) -> bool:
    """Whether compiled code knows the maximum."""
    small = math.prod(pair(pool.kernel_size)) <= _LARGEST
    return pair(pool.padding) == (0, 0) and pair(pool.dilation) == (1, 1) and small


class Geometry(NamedTuple):
    """Sizes of a block, by their names in the C structure."""

    inputs: int
    height: int
    width: int
    outputs: int
    pooled_height: int
    pooled_width: int
    kernel_rows: int
    kernel_columns: int
    row_stride: int
    column_stride: int
    pad_top: int
    pad_left: int
    padded_height: int
    padded_width: int
    out_height: int
    out_width: int
    window_height: int
    window_width: int
    window_row_stride: int
    window_column_stride: int
    relu: bool

    @classmethod
    def of(cls, block: Block, before: tuple[int, ...], after: tuple[int, ...]) -> Geometry:
        """For images (channels, height, width) before and after the block."""
        left, right, top, bottom = block.pads
        padded = (before[1] + top + bottom, before[2] + left + right)
        conv = block.conv
        sides, strides, dilations = map(pair, (conv.kernel_size, conv.stride, conv.dilation))
        out = [
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(padded, sides, strides, dilations, strict=True)
        ]
        window = moves = (1, 1)
        if block.pool is not None:
            window, moves = pair(block.pool.kernel_size), pair(block.pool.stride)
        sizes = (*before, *after, *sides, *strides, top, left, *padded, *out, *window, *moves)
        return cls._make((*sizes, block.relu))

    @property
    def taps(self) -> int:
        """Places of a kernel."""
        return self.kernel_rows * self.kernel_columns

    @property
    def padded(self) -> int:
        """Numbers of an image with its zeros."""
        return self.padded_height * self.padded_width * self.inputs


def pixels_of_kernel(block: Block, g: Geometry) -> Tensor:
    """Where a padded image has the numbers that a kernel meets, int32 [rows, columns, in]."""
    grid = torch.arange(g.padded, dtype=torch.int32).view(g.padded_height, g.padded_width, g.inputs)
    down, right = pair(block.conv.dilation)
    return grid[: g.kernel_rows * down : down, : g.kernel_columns * right : right].contiguous()


def rows_that_meet(block: Block, g: Geometry) -> tuple[Tensor, Tensor]:
    """Kernel rows that meet the image, by row of the output, and the reverse; see `_ranges`."""
    down = pair(block.conv.dilation)[0]
    inside = [
        [0 <= h * g.row_stride + row * down - g.pad_top < g.height for row in range(g.kernel_rows)]
        for h in range(g.out_height)
    ]
    return _ranges(inside), _ranges(zip(*inside, strict=True))


def _ranges(chosen: Iterable[Sequence[bool]]) -> Tensor:
    """First and last + 1 chosen place of every list, int32 [lists, 2]; chosen are neighbours."""
    found = [[i for i, here in enumerate(some) if here] or [0, -1] for some in chosen]
    return torch.tensor([(places[0], places[-1] + 1) for places in found], dtype=torch.int32)

"""Blocks of a network that begin with a convolution: each is one call of compiled code for all
rows.

In PyTorch's operations ReLU and pooling are passes over memory of their own, results are fresh
memory, and rows take turns. `convolution.c` says what is computed, image by image.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from ctypes import POINTER, Structure, c_int, c_int64, c_void_p
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from fedclust.engines.fused.compiled import library
from fedclust.engines.fused.products import rounding
from fedclust.engines.fused.weights import Rule, Weight

_TASKS = (
    8  # least pieces of a backward pass, for the threads; every piece has a gradient of its own
)
_LARGEST = 254  # places of a window that a byte can tell, besides "none"

Room = Callable[
    ..., Tensor
]  # name and shape to a float32 buffer that begins at a multiple of 64 bytes


class _Images(Structure):
    """The C structure of the same name."""

    _fields_ = (("data", c_void_p), *((name, c_int64) for name in ("row", "image", "last")))


def compiled() -> ctypes.CDLL | None:
    """The compiled code; None where it cannot be compiled."""
    found = library("convolution")
    if found is not None:
        for verb in (found.forward, found.backward):
            verb.argtypes, verb.restype = (POINTER(_Job), c_int), None
    return found


def pair(value: Any) -> tuple[int, int]:
    """A layer's option as (height, width)."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def fits(layers: Sequence[nn.Module], device: torch.device) -> bool:
    """Whether there are convolutions in float32 on a CPU, and the code for them."""
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    return bool(convolutions) and device.type == "cpu" and not rounding() and compiled() is not None


@dataclass(frozen=True, kw_only=True)
class Block:
    """Layers that are computed together.

    Attributes:
        pads: zeros (left, right, top, bottom) around the images.
        place: of the convolution.
        conv: the convolution.
        relu: whether a ReLU follows.
        pool: the maximum that follows, None for none.
        end: place after the block.
    """

    pads: tuple[int, int, int, int]
    place: int
    conv: nn.Conv2d
    relu: bool
    pool: nn.MaxPool2d | None
    end: int

    @classmethod
    def at(cls, layers: Sequence[nn.Module], place: int) -> Block | None:
        """The block that begins at a place; None where none does."""
        padding, here = layers[place], place
        outer = (0, 0, 0, 0)
        if isinstance(padding, nn.ZeroPad2d) and here + 1 < len(layers):
            left, right, top, bottom = padding.padding
            outer, here = (left, right, top, bottom), here + 1
        conv = layers[here]
        if not isinstance(conv, nn.Conv2d) or min(outer) < 0:
            return None
        vertical, horizontal = pair(conv.padding)
        own = (horizontal, horizontal, vertical, vertical)
        end = here + 1
        relu = end < len(layers) and isinstance(layers[end], nn.ReLU)
        end += relu
        pool = layers[end] if end < len(layers) else None
        pool = pool if isinstance(pool, nn.MaxPool2d) and _is_plain(pool) else None
        left, right, top, bottom = (a + b for a, b in zip(outer, own, strict=True))
        return cls(
            pads=(left, right, top, bottom),
            place=here,
            conv=conv,
            relu=relu,
            pool=pool,
            end=end + (pool is not None),
        )


def _is_plain(pool: nn.MaxPool2d) -> bool:
    """Whether compiled code knows the maximum."""
    small = math.prod(pair(pool.kernel_size)) <= _LARGEST
    return pair(pool.padding) == (0, 0) and pair(pool.dilation) == (1, 1) and small


@dataclass(frozen=True, kw_only=True)
class _Geometry:
    """Sizes of a block, by their names in the C structure and in its order."""

    inputs: int
    height: int
    width: int
    outputs: int
    kernel_rows: int
    kernel_columns: int
    padded_height: int
    padded_width: int
    pad_top: int
    pad_left: int
    out_height: int
    out_width: int
    row_stride: int
    column_stride: int
    high: int
    wide: int
    window_height: int
    window_width: int
    window_row_stride: int
    window_column_stride: int
    relu: bool

    @classmethod
    def of(cls, block: Block, before: tuple[int, ...], after: tuple[int, ...]) -> _Geometry:
        """For images (channels, height, width) before and after the block."""
        left, right, top, bottom = block.pads
        padded = (before[1] + top + bottom, before[2] + left + right)
        sides, strides, apart = (
            pair(x) for x in (block.conv.kernel_size, block.conv.stride, block.conv.dilation)
        )
        out = [
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(padded, sides, strides, apart, strict=True)
        ]
        window = moves = (1, 1)
        if block.pool is not None:
            window, moves = pair(block.pool.kernel_size), pair(block.pool.stride)
        return cls(
            inputs=before[0],
            height=before[1],
            width=before[2],
            outputs=after[0],
            kernel_rows=sides[0],
            kernel_columns=sides[1],
            padded_height=padded[0],
            padded_width=padded[1],
            pad_top=top,
            pad_left=left,
            out_height=out[0],
            out_width=out[1],
            row_stride=strides[0],
            column_stride=strides[1],
            high=after[1],
            wide=after[2],
            window_height=window[0],
            window_width=window[1],
            window_row_stride=moves[0],
            window_column_stride=moves[1],
            relu=block.relu,
        )

    @property
    def taps(self) -> int:
        """Places of a kernel."""
        return self.kernel_rows * self.kernel_columns

    @property
    def padded(self) -> int:
        """Numbers of an image with its zeros."""
        return self.padded_height * self.padded_width * self.inputs


class _Job(Structure):
    """The C structure `Block`."""

    _fields_ = (
        *(
            (name, c_int64)
            for name in ("rows", "batch", *(field.name for field in fields(_Geometry)))
        ),
        *((name, c_int64) for name in ("rim_top", "rim_left", "rim_height", "rim_width", "parts")),
        *((name, _Images) for name in ("x", "y", "delta", "back")),
        *((name, c_void_p) for name in ("kernel", "bias", "kernel_gradient", "bias_gradient")),
        *((name, c_void_p) for name in ("places", "meets", "met")),
        *(
            (name, c_void_p)
            for name in ("places_around", "meets_around", "phases", "columns", "order")
        ),
        *(
            (name, c_void_p)
            for name in ("turned", "around", "padded", "where", "partial", "scratch")
        ),
        ("space", c_int64),
    )


class BlockStep:
    """A block of layers as a `fedclust.engines.fused.dense.Step` of tensors [R, B, channels,
    height, width].

    Args:
        block: the layers.
        shapes: (channels, height, width) of an image before and after the block.
        weight: kernels of every row, [R, out, in, height, width], channels last.
        bias: of every row, [R, 1, out].
        rule: what becomes of the gradient; None for forward only.
        batch: B.
        need: whether the gradient of the images is wanted.
        last: whether the output lies channels last, as a further block wants it; else as `Flatten`
            does.
        room: buffers that are used again.
    """

    def __init__(
        self,
        block: Block,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        weight: Weight,
        bias: Weight | None,
        rule: Rule | None,
        batch: int,
        room: Room,
        *,
        need: bool,
        last: bool,
    ) -> None:
        code = compiled()
        assert code is not None
        self.weight, self.bias, self.rule = weight, bias, rule
        self.code, self.threads = code, torch.get_num_threads()
        g, rows, kernel = (
            _Geometry.of(block, *shapes),
            len(weight.value),
            weight.value.permute(0, 1, 3, 4, 2),
        )
        around, meets, met = _Around.of(block, g, need=need), *_seen(block, g)
        parts = min(batch, -(-_TASKS // rows))

        y = (g.high, g.wide, g.outputs) if last else (g.outputs, g.high, g.wide)
        self.out = room("out", rows, batch, *y)
        self.out = self.out.permute(0, 1, 4, 2, 3) if last else self.out
        self.back = None
        if need:
            self.back = room("back", rows, batch, g.height, g.width, g.inputs).permute(
                0, 1, 4, 2, 3
            )

        lanes = code.lanes()
        v, u = -(-g.outputs // lanes), -(-g.inputs // lanes)
        outs, ins = v * lanes, u * lanes
        space = max(
            g.out_height * g.out_width * v + -(-g.padded // lanes),
            math.prod(around.rim) * v + g.height * g.width * u,
        )
        self.tensors = {  # whose addresses the structure holds
            "kernel": kernel,
            "bias": None if bias is None else bias.value,
            "places": _places(block, g),
            "meets": meets,
            "met": met,
            "places_around": (around.places.unsqueeze(1) * outs + torch.arange(outs)).to(
                torch.int32
            ),
            "meets_around": around.meets,
            "phases": around.phases,
            "columns": around.columns,
            "order": around.order,
            "turned": room("turned", rows, g.taps * g.inputs, outs),
            "scratch": room("scratch", self.threads, space, lanes),
        }
        if need:
            self.tensors["around"] = room("around", rows, g.taps * outs, ins)
        if rule is not None:
            bytes_of_where = rows * batch * g.high * g.wide * outs
            self.tensors |= {
                "kernel_gradient": room("kernel_gradient", *kernel.shape),
                "bias_gradient": None
                if bias is None
                else room("bias_gradient", rows, 1, g.outputs),
                "padded": room("padded", rows, batch, g.padded),
                "where": room("where", -(-bytes_of_where // 4)),
                "partial": room("partial", rows, parts, g.taps * g.inputs + 1, outs),
            }
        self.job = _Job(
            rows=rows,
            batch=batch,
            rim_top=around.before[0],
            rim_left=around.before[1],
            rim_height=around.rim[0],
            rim_width=around.rim[1],
            parts=parts,
            y=_images(self.out),
            back=_Images() if self.back is None else _images(self.back),
            space=space,
            **asdict(g),
            **{name: x.data_ptr() for name, x in self.tensors.items() if x is not None},
        )

    def forward(self, x: Tensor) -> Tensor:
        """See `Step`."""
        x = _whole(x)
        self.job.x = _images(x)
        self.code.forward(ctypes.byref(self.job), self.threads)
        return self.out

    def backward(self, delta: Tensor) -> Tensor:
        """See `Step`."""
        assert self.rule is not None
        delta = _whole(delta)
        self.job.delta = _images(delta)
        self.code.backward(ctypes.byref(self.job), self.threads)
        for weight, name in ((self.weight, "kernel_gradient"), (self.bias, "bias_gradient")):
            gradient = self.tensors[name]
            if weight is not None and gradient is not None and not weight.frozen:
                self.rule.whole(
                    weight, gradient.permute(0, 1, 4, 2, 3) if gradient.ndim == 5 else gradient
                )
        return delta if self.back is None else self.back


def _places(block: Block, g: _Geometry) -> Tensor:
    """Where an image with its zeros has the numbers that a kernel meets, int32 [rows, columns,
    in].
    """
    grid = torch.arange(g.padded, dtype=torch.int32).view(g.padded_height, g.padded_width, g.inputs)
    down, right = pair(block.conv.dilation)
    return grid[: g.kernel_rows * down : down, : g.kernel_columns * right : right].contiguous()


def _seen(block: Block, g: _Geometry) -> tuple[Tensor, Tensor]:
    """Rows of the kernel that meet the image itself, by row of the output, and the reverse; see
    `_ranges`.
    """
    down = pair(block.conv.dilation)[0]
    inside = [
        [0 <= h * g.row_stride + row * down - g.pad_top < g.height for row in range(g.kernel_rows)]
        for h in range(g.out_height)
    ]
    return _ranges(inside), _ranges(zip(*inside, strict=True))


def _is_last(x: Tensor) -> bool:
    """Whether the images of x [R, B, channels, height, width] lie channels last."""
    return x[0, 0].permute(1, 2, 0).is_contiguous()


def _whole(x: Tensor) -> Tensor:
    """x with every image in one piece, channels first or last."""
    return x if _is_last(x) or x[0, 0].is_contiguous() else x.contiguous()


def _images(x: Tensor) -> _Images:
    """Where the images of x lie, which are whole."""
    assert x.dtype == torch.float32
    return _Images(data=x.data_ptr(), row=x.stride(0), image=x.stride(1), last=_is_last(x))


@dataclass(frozen=True, kw_only=True)
class _Around:
    """Which pixels of the gradient of a convolution's output give that of its images.

    The row h of an image (likewise its column) meets the output's row (h + pad - apart * tap) /
    stride. So of h = phase + stride * i only the taps count for which that is whole, and the row is
    i plus that of i = 0.

    Attributes:
        before: (rows, columns) of zeros before the output's gradient, so that all of these exist.
        rim: (height, width) with the zeros before and after.
        order: int32 [taps] taps, phase after phase.
        phases: int32 [phases + 1] first of them of every phase.
        columns: int32 [stride] taps of a row by phase of the column.
        meets: int32 [height, 2] by row of the image: first and last + 1 of its phase's rows of taps
            that meet the output itself.
        places: int64 [taps] pixel of the rim that the first pixel of the phase meets.
    """

    before: tuple[int, int]
    rim: tuple[int, int]
    order: Tensor
    phases: Tensor
    columns: Tensor
    meets: Tensor
    places: Tensor

    @classmethod
    def of(cls, block: Block, g: _Geometry, *, need: bool) -> _Around:
        """Of a block; without zeros where no gradient of the images is needed."""
        size, out, strides = (
            (g.height, g.width),
            (g.out_height, g.out_width),
            (g.row_stride, g.column_stride),
        )
        if not need:
            none = torch.zeros(0, dtype=torch.int64)
            rest = dict.fromkeys(("order", "phases", "columns", "meets", "places"), none)
            return cls(before=(0, 0), rim=out, **rest)
        sides, pads, apart = (
            (g.kernel_rows, g.kernel_columns),
            (g.pad_top, g.pad_left),
            pair(block.conv.dilation),
        )
        met = [_met(*options) for options in zip(sides, strides, apart, pads, strict=True)]
        before, rim = [0, 0], [0, 0]
        for axis in range(2):
            first = [(phase, pixel) for phase, some in enumerate(met[axis]) for _, pixel in some]
            before[axis] = max(0, *(-pixel for _, pixel in first))
            # the last pixel of the phase
            reach = (pixel + (size[axis] - 1 - phase) // strides[axis] for phase, pixel in first)
            rim[axis] = before[axis] + max(out[axis], *(pixel + 1 for pixel in reach))
        rows_met = [
            [pixel + h // strides[0] for _, pixel in met[0][h % strides[0]]] for h in range(size[0])
        ]
        order, places, phases = [], [], [0]
        for rows, columns in product(*met):
            for (row, y), (column, x) in product(rows, columns):
                order.append(row * sides[1] + column)
                places.append((y + before[0]) * rim[1] + x + before[1])
            phases.append(len(order))
        return cls(
            before=(before[0], before[1]),
            rim=(rim[0], rim[1]),
            order=torch.tensor(order, dtype=torch.int32),
            phases=torch.tensor(phases, dtype=torch.int32),
            columns=torch.tensor([len(some) for some in met[1]], dtype=torch.int32),
            meets=_ranges([[row in range(out[0]) for row in rows] for rows in rows_met]),
            places=torch.tensor(places),
        )


def _ranges(chosen: Iterable[Sequence[bool]]) -> Tensor:
    """First and last + 1 chosen place of every list, int32 [lists, 2]; the chosen ones are
    neighbours.
    """
    found = [[i for i, here in enumerate(some) if here] or [0, -1] for some in chosen]
    return torch.tensor([(places[0], places[-1] + 1) for places in found], dtype=torch.int32)


def _met(side: int, stride: int, apart: int, pad: int) -> list[list[tuple[int, int]]]:
    """By phase: the taps that meet its pixels, and the pixel of the output that the first one
    meets.
    """
    return [
        [
            (tap, (phase + pad - apart * tap) // stride)
            for tap in range(side)
            if (phase + pad - apart * tap) % stride == 0
        ]
        for phase in range(stride)
    ]

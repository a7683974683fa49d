"""Blocks that begin with a convolution: each is one call of compiled code for all rows.
In PyTorch's operations ReLU and pooling are passes over memory of their own, results are fresh
memory, and rows take turns. `convolution.c` says what is computed, image by image.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from fedclust.engines.fused.native.compiled import library, structure
from fedclust.engines.fused.native.geometry import (
    Block,
    Geometry,
    pair,
    pixels_of_kernel,
    rows_that_meet,
)
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Rule
from fedclust.engines.fused.weights import Weight

# least pieces of a backward pass, for the threads; every piece has a gradient of its own, so there
# are fewer of them where the values of a kernel take so many bytes that they fill the caches
_TASKS, _FEW, _HEAVY = 8, 2, 1 << 20
# bytes of the values of a kernel from which they are made where they are needed, and a row is one
# piece
_LARGE = 1 << 22

# of `convolution_winograd.h`: values along the side of a square, and the channels that pay for them
_POINTS, _ENOUGH = 6, 16

# numbers of a kernel from which PyTorch's own convolutions are faster, but by squares: what is done
# to a kernel in every step is then not earned by the few pixels that such layers have
_LARGE_KERNEL = 1 << 18

# name and shape to a float32 buffer that begins at a multiple of 64 bytes
Room = Callable[..., Tensor]


compiled = partial(library, "convolution")
_Block, _Rooms, _Images = (
    structure("convolution.c", name) for name in ("Block", "Rooms", "Images")
)


def computes(layers: Sequence[nn.Module], device: torch.device) -> bool:
    """Whether there are convolutions on a CPU, and the code for them."""
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    return bool(convolutions) and device.type == "cpu" and compiled() is not None


def is_large(conv: nn.Conv2d, products: Products) -> bool:
    """Whether PyTorch's own code is faster for a convolution. Strides over single pixels are ours:
    of them oneDNN's gradient writes where it must not, channels last.
    """
    large = conv.weight.numel() >= _LARGE_KERNEL
    return large and not strides_over(conv) and not _side(conv, products)


def strides_over(conv: nn.Conv2d) -> bool:
    """Whether a convolution looks at single pixels, and not at all of them."""
    return pair(conv.kernel_size) == (1, 1) and pair(conv.stride) != (1, 1)


def _side(conv: nn.Conv2d, products: Products) -> int:
    """Sums along a side of the squares that `convolution_winograd.h` works on; 0 without."""
    kernel, moves = pair(conv.kernel_size), (pair(conv.stride), pair(conv.dilation))
    enough = min(conv.in_channels, conv.out_channels) >= _ENOUGH
    if products.rounds or not enough or moves != ((1, 1), (1, 1)) or kernel not in ((3, 3), (5, 5)):
        return 0
    return _POINTS + 1 - kernel[0]


class BlockStep:
    """A block of layers as a `fedclust.engines.fused.dense.DenseStep` of tensors [R, B, channels,
    height, width].

    Args:
        shapes: (channels, height, width) of an image before and after the block.
        weight: kernels of every row, [R, out, in, height, width], channels last.
        bias: of every row, [R, 1, out].
        products: whether factors are rounded.
        need: whether the gradient of the images is wanted.
        last: whether the output lies channels last, as a further block wants it; else as `Flatten`
            does.
    """

    def __init__(
        self,
        block: Block,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        weight: Weight,
        bias: Weight | None,
        rule: Rule | None,
        products: Products,
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
        g, rows = Geometry.of(block, *shapes), len(weight.value)
        kernel, (meets, met) = weight.value.permute(0, 1, 3, 4, 2), rows_that_meet(block, g)
        side = _side(block.conv, products)
        # whether sums are what it gives, see `is_bare` of `convolution_winograd.h`
        self.bare = side > 0 and last and not block.relu and block.pool is None and bias is None
        values = 4 * _POINTS**2 * g.inputs * g.outputs if side else 0  # bytes
        large, tasks = values >= _LARGE, _TASKS if values < _HEAVY else _FEW
        parts = 1 if large else min(batch, -(-tasks // rows))
        # neighbours in a row of the kernel are neighbours in the image, unless it is dilated
        pieces = 1 if pair(block.conv.dilation)[1] == 1 else g.kernel_columns

        (channels, *sides), self.back = shapes[1], None
        if last:
            self.out = room("out", rows, batch, *sides, channels).movedim(-1, 2)
        else:
            self.out = room("out", rows, batch, channels, *sides)
        if need:
            self.back = room("back", rows, batch, g.height, g.width, g.inputs).movedim(-1, 2)

        self.tensors = {  # whose addresses the structure holds
            "kernel": kernel,
            "bias": None if bias is None else bias.value,
            "places": pixels_of_kernel(block, g),
            "meets": meets,
            "met": met,
            "channels": torch.arange(max(g.inputs, g.outputs), dtype=torch.int32),
        }
        if rule is not None:
            wanted = weight.gradient  # made where the rule wants it, it is not copied
            if wanted is None:
                self.tensors["kernel_gradient"] = room("kernel_gradient", *kernel.shape)
            else:
                self.tensors["kernel_gradient"] = wanted.permute(0, 1, 3, 4, 2)
            if bias is not None:
                self.tensors["bias_gradient"] = room("bias_gradient", rows, 1, g.outputs)
        self.job = _Block(
            rows=rows,
            batch=batch,
            pieces=pieces,
            parts=parts,
            rounds=products.rounds,
            side=side,
            large=large,
            y=_images(self.out),
            back=_Images() if self.back is None else _images(self.back),
            **g._asdict(),
        )
        if bias is not None:  # which decides how much room sums need
            self.job.bias = bias.value.data_ptr()
        size = _Rooms()
        code.rooms(ctypes.byref(self.job), ctypes.byref(size))
        self.tensors["turned"] = room("turned", rows, size.turned)
        self.tensors["scratch"] = room("scratch", self.threads, size.scratch)
        if need:
            self.tensors["back_turned"] = room("back_turned", rows, size.back_turned)
        if rule is not None:
            self.tensors["padded"] = room("padded", rows, batch, size.padded)
            self.tensors["where"] = room("where", rows, batch, size.where)
            self.tensors["partial"] = room("partial", rows, parts, size.partial)
        for name, tensor in self.tensors.items():
            if tensor is not None:
                setattr(self.job, name, tensor.data_ptr())

    def forward(self, x: Tensor) -> Tensor:
        self.x = _whole(x, last=self.job.side > 0)  # until the way back
        self.job.x = _images(self.x)
        self.code.forward(ctypes.byref(self.job), self.threads)
        return self.out

    def backward(self, delta: Tensor) -> Tensor:
        assert self.rule is not None
        delta = _whole(delta, last=self.bare)
        self.job.delta = _images(delta)
        self.code.backward(ctypes.byref(self.job), self.threads)
        for weight, name in ((self.weight, "kernel_gradient"), (self.bias, "bias_gradient")):
            gradient = self.tensors.get(name)
            if weight is not None and gradient is not None and not weight.frozen:
                self.rule.whole(weight, gradient.movedim(-1, 2) if gradient.ndim == 5 else gradient)
        return delta if self.back is None else self.back


def _is_last(x: Tensor) -> bool:
    """Whether the images of x [R, B, channels, height, width] lie channels last."""
    return x[0, 0].permute(1, 2, 0).is_contiguous()


def _whole(x: Tensor, *, last: bool) -> Tensor:
    """x with every image in one piece, channels last, or first where that is taken too."""
    if _is_last(x) or (not last and x[0, 0].is_contiguous()):
        return x
    return x.movedim(2, -1).contiguous().movedim(-1, 2) if last else x.contiguous()


def _images(x: Tensor) -> ctypes.Structure:
    """Where the images of x lie, which are whole."""
    assert x.dtype == torch.float32
    return _Images(data=x.data_ptr(), row=x.stride(0), image=x.stride(1), last=_is_last(x))

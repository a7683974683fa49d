"""What a node of a module's graph does, as layers that engines know.

A signal [C, L] is an image [C, 1, L], so that convolutions along a length are those of images.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from fedclust.models.exchanged import plain
from fedclust.models.sequence import (
    ACTIVATIONS,
    KNOWN,
    Clamp,
    Columns,
    Shape,
    Shaped,
    Turn,
    Whole,
)

Layers = list[tuple[nn.Module, Shape]]  # each with the shape of an example's output

_ALONG = (nn.Conv1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d)
_AS_THEY_ARE = (
    *KNOWN,
    *ACTIVATIONS,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.AvgPool2d,
)
TAKEN = (*_AS_THEY_ARE, *_ALONG, nn.Embedding)


class Place(NamedTuple):
    """Where a node stands."""

    node: fx.Node  # of the graph
    part: nn.Module | None  # the module that it calls, if it calls one
    # before, after: what it is given and what it makes of it, with the batch dimension
    before: Tensor
    after: Tensor
    now: Shape  # shape of an example as the layers so far give it
    first: bool  # whether nothing was computed with the inputs but what is done here

    @property
    def given(self) -> tuple[Any, ...]:
        """Arguments beside the tensor."""
        return self.node.args[1:]

    @property
    def options(self) -> dict[str, Any]:
        """Arguments by name."""
        return dict(self.node.kwargs)

    @property
    def lifted(self) -> bool:
        """Whether a signal lies as an image."""
        return self.before.dim() == 3 and self.now == _lifted(self.before)

    def calls(self, *targets: Any) -> bool:
        """Whether the node calls one of some functions or methods."""
        return self.part is None and self.node.target in targets


def layers_of(place: Place) -> Layers | None:
    """The layers that do what a node does; None where there are none."""
    for way in (_reshaped, _of_columns, _averaged, _along):
        found = way(place)
        if found is not None:
            return found
    layer = _layer(place)
    if layer is None or isinstance(layer, nn.Identity):
        return None if layer is None else []
    after = place.after
    return [(layer, _lifted(after) if place.lifted and after.dim() == 3 else _example(after))]


def _example(x: Tensor) -> Shape:
    """Shape of an example."""
    return tuple(x.shape[1:])


def _lifted(x: Tensor) -> Shape:
    """Shape of a signal of x [B, C, L] as an image."""
    return (x.shape[1], 1, x.shape[2])


def _lift(place: Place) -> Layers:
    """What makes signals images, where they are none yet."""
    shape = _lifted(place.before)
    return [] if place.lifted else [(Shaped(shape), shape)]


def _reshaped(place: Place) -> Layers | None:
    """Of what changes no number."""
    before, after = place.before, place.after
    if place.calls(*_TURNING) and before.dim() == 3 and not place.lifted:
        turned = before.transpose(1, 2)
        if after.shape == turned.shape and torch.equal(after, turned):
            return [(Turn(), _example(after))]
    if not place.calls(*_RESHAPING) and not isinstance(place.part, nn.Flatten | nn.Unflatten):
        return None
    if after.shape == before.shape:
        return []
    if after.shape == (len(before), math.prod(before.shape[1:])):
        return [(nn.Flatten(), _example(after))]
    if place.first and len(after) == len(before) and after.dim() > 1:
        return [(Shaped(_example(after)), _example(after))]
    return None


def _of_columns(place: Place) -> Layers | None:
    """Of what is done with the rows of a table before there are parameters."""
    before, after = place.before, place.after
    if isinstance(place.part, nn.Embedding):
        alone = place.part.max_norm is None and not place.part.scale_grad_by_freq
        return [(place.part, _example(after))] if alone else None
    if not place.first:
        return None
    if place.calls(operator.getitem) and before.dim() == 2 and len(place.given) == 1:
        which = _columns(place.given[0])
        return None if which is None else [(Columns(which), _example(after))]
    if place.calls("long", "int", "to", "type", "float"):
        if after.dtype == before.dtype:
            return []
        whole = not after.is_floating_point() and torch.equal(after.long(), before.long())
        return [(Whole(), _example(after))] if whole else None
    if place.calls("clamp", "clip", torch.clamp, torch.clip):
        return [(_bounds(*place.given, **place.options), _example(after))]
    return None


def _columns(asked: Any) -> slice | int | None:
    """Which columns are asked for, if it is they and all rows."""
    if not isinstance(asked, tuple) or len(asked) != 2:
        return None
    rows, which = asked
    if rows is not Ellipsis and rows != slice(None):
        return None
    if isinstance(which, slice):
        ends = (which.start, which.stop, which.step)
        return which if all(end is None or isinstance(end, int) for end in ends) else None
    return which if isinstance(which, int) else None


def _bounds(min: Any = None, max: Any = None) -> Clamp:  # noqa: A002
    """The layer, from the arguments of the function."""
    return Clamp(min, max)


def _averaged(place: Place) -> Layers | None:
    """Of a mean over all pixels of an image, a length, or the tokens of a text."""
    before, after = place.before, place.after
    if not place.calls("mean", torch.mean):
        return None
    flat = (nn.Flatten(), _example(after))
    if before.dim() == 4 and after.shape == before.shape[:2]:
        channels, *sides = before.shape[1:]
        return [(nn.AvgPool2d((sides[0], sides[1])), (channels, 1, 1)), flat]
    if before.dim() != 3 or after.dim() != 2:
        return None
    channels, length = before.shape[1:]
    if _same(after, before.mean(2)):
        return [*_lift(place), (nn.AvgPool2d((1, length)), (channels, 1, 1)), flat]
    if place.lifted or not _same(after, before.mean(1)):
        return None
    tokens, width = before.shape[1:]
    return [
        (Turn(), (width, tokens)),
        (Shaped((width, 1, tokens)), (width, 1, tokens)),
        (nn.AvgPool2d((1, tokens)), (width, 1, 1)),
        flat,
    ]


def _same(own: Tensor, other: Tensor) -> bool:
    """Whether numbers are equal but for rounding."""
    return own.shape == other.shape and torch.allclose(own, other, rtol=1e-4, atol=1e-6)


def _along(place: Place) -> Layers | None:
    """Of what works along the length of a signal."""
    part, before, after = place.part, place.before, place.after
    if before.dim() != 3 or after.dim() != 3:
        return None
    make = next((make for kind, make in _IMAGES.items() if _is(part, kind)), None)
    if part is not None:
        layer = None if make is None else make(part, before)
    elif place.calls(functional.max_pool1d, torch.max_pool1d):
        layer = _as_image(_pooling(*place.given, **place.options))
    elif place.calls(functional.avg_pool1d):
        layer = _average(nn.AvgPool1d(*place.given, **place.options))
    elif place.calls(functional.adaptive_avg_pool1d) and after.shape[2] == 1:
        layer = nn.AvgPool2d((1, before.shape[2]))
    elif place.calls(functional.adaptive_max_pool1d) and after.shape[2] == 1:
        layer = nn.MaxPool2d((1, before.shape[2]))
    else:
        return None
    return None if layer is None else [*_lift(place), (layer, _lifted(after))]


def _is(part: nn.Module | None, kind: type[nn.Module]) -> bool:
    """Whether a module is of a kind, and of no other that is made of it."""
    return part is not None and plain(part) is kind


def _convolution(part: nn.Module, _: Tensor) -> nn.Conv2d:
    """Along a length."""
    conv = cast("nn.Conv1d", part)
    (kernel,), (stride,), (dilation,) = conv.kernel_size, conv.stride, conv.dilation
    padding = conv.padding if isinstance(conv.padding, str) else (0, conv.padding[0])
    made = nn.Conv2d(
        conv.in_channels,
        conv.out_channels,
        (1, kernel),
        (1, stride),
        padding,
        (1, dilation),
        conv.groups,
        conv.bias is not None,
        conv.padding_mode,
        device="meta",
    )
    made.weight, made.bias = nn.Parameter(conv.weight.detach().unsqueeze(2)), conv.bias
    return _by_number(made)


def _by_number(conv: nn.Conv2d) -> nn.Conv2d:
    """With its padding as numbers, where it is called "same" and as many on either side."""
    if conv.padding == "valid":
        conv.padding = (0, 0)
    if conv.padding == "same":
        sides = [d * (k - 1) for k, d in zip(conv.kernel_size, conv.dilation, strict=True)]
        if not any(side % 2 for side in sides):
            conv.padding = (sides[0] // 2, sides[1] // 2)
    return conv


def _as_image(pool: nn.MaxPool2d | nn.MaxPool1d) -> nn.MaxPool2d:
    """A maximum along a length; its options are numbers, or tuples of one."""
    sides = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
    kernel, stride, padding, dilation = (_only(side) for side in sides)
    return nn.MaxPool2d(
        (1, kernel),
        (1, stride),
        (0, padding),
        (1, dilation),
        pool.return_indices,
        pool.ceil_mode,
    )


def _average(pool: nn.AvgPool1d) -> nn.AvgPool2d:
    """A mean along a length."""
    kernel, stride, padding = (_only(x) for x in (pool.kernel_size, pool.stride, pool.padding))
    return nn.AvgPool2d(
        (1, kernel), (1, stride), (0, padding), pool.ceil_mode, pool.count_include_pad
    )


def _only(value: Any) -> int:
    """A number, or the only one of a tuple."""
    return int(value[0] if isinstance(value, tuple | list) else value)


def _normalising(part: nn.Module, _: Tensor) -> nn.BatchNorm2d:
    """Of a batch along a length."""
    norm = cast("nn.BatchNorm1d", part)
    made = nn.BatchNorm2d(
        norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats
    )
    made.weight, made.bias = norm.weight, norm.bias
    for name, value in norm.named_buffers(recurse=False):
        setattr(made, name, value)
    return made.train(norm.training)


def _whole_length(kind: type[nn.AvgPool2d | nn.MaxPool2d]) -> Callable[..., nn.Module | None]:
    """Over all of a length, if that is what an adaptive one does."""

    def make(part: Any, before: Tensor) -> nn.Module | None:
        return kind((1, before.shape[2])) if part.output_size in (1, (1,)) else None

    return make


def _layer_norm(part: nn.Module, before: Tensor) -> nn.LayerNorm:
    """Of all of a signal, or of each of its channels."""
    norm = cast("nn.LayerNorm", part)
    if len(norm.normalized_shape) == 1:
        return norm
    made = nn.LayerNorm(
        _lifted(before), norm.eps, norm.elementwise_affine, norm.bias is not None, device="meta"
    )
    for name, value in norm.named_parameters():
        setattr(made, name, nn.Parameter(value.detach().unsqueeze(1)))
    return made


_IMAGES: dict[type[nn.Module], Callable[[Any, Tensor], nn.Module | None]] = {
    nn.Conv1d: _convolution,
    nn.MaxPool1d: lambda part, _: _as_image(part),
    nn.AvgPool1d: lambda part, _: _average(part),
    nn.AdaptiveAvgPool1d: _whole_length(nn.AvgPool2d),
    nn.AdaptiveMaxPool1d: _whole_length(nn.MaxPool2d),
    nn.BatchNorm1d: _normalising,
    nn.LayerNorm: _layer_norm,
}


def _layer(place: Place) -> nn.Module | None:
    """The one layer that does what a node does; None where there is none."""
    before, after = tuple(place.before.shape), tuple(place.after.shape)
    if isinstance(place.part, nn.AdaptiveAvgPool2d) or place.calls(functional.adaptive_avg_pool2d):
        whole = len(before) == 4 and after == (*before[:2], 1, 1)
        return nn.AvgPool2d((before[2], before[3])) if whole else None
    return _called(place) if place.part is None else _as_it_is(place.part, before)


def _as_it_is(part: nn.Module, before: Shape) -> nn.Module | None:
    """The layer that does what a module does of inputs of the shape `before`."""
    match part:
        case nn.LogSoftmax():
            return _log_softmax(part.dim, before)
        case nn.Dropout() if _is(part, nn.Dropout):
            return nn.Dropout(part.p) if part.p else nn.Identity()
        case nn.Conv2d():
            return _by_number(part) if _is(part, nn.Conv2d) else None
    return part if plain(part) in (*_AS_THEY_ARE, nn.Identity) else None


def _called(place: Place) -> nn.Module | None:
    """The layer that does what a function or method does."""
    for kind, calls in _FUNCTIONS.items():
        if place.calls(*calls):
            return kind(*place.given, **place.options)
    if place.calls(*_LOGS):
        dim = place.options.get("dim", place.given[0] if place.given else None)
        return _log_softmax(dim, place.before.shape)
    return None


def _log_softmax(dim: Any, before: Shape) -> nn.LogSoftmax | None:
    """The layer, where it is over what is given of one example."""
    return nn.LogSoftmax(1) if len(before) == 2 and dim in (1, -1) else None


def _pooling(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    **_: Any,
) -> nn.MaxPool2d:
    """The layer, from the arguments of the function."""
    return nn.MaxPool2d(kernel_size, stride or None, padding, dilation, return_indices, ceil_mode)


def _rectifier(*_: Any, **__: Any) -> nn.ReLU:
    """The layer, in place or not."""
    return nn.ReLU()


# what makes a layer of the arguments of some functions
_FUNCTIONS: dict[Callable[..., nn.Module], tuple[Any, ...]] = {
    nn.AvgPool2d: (functional.avg_pool2d,),
    _pooling: (functional.max_pool2d, torch.max_pool2d),
    _rectifier: (functional.relu, functional.relu_, torch.relu, torch.relu_, "relu", "relu_"),
    nn.GELU: (functional.gelu,),
    nn.SiLU: (functional.silu,),
    nn.Tanh: (functional.tanh, torch.tanh, "tanh"),
    nn.Sigmoid: (functional.sigmoid, torch.sigmoid, "sigmoid"),
    nn.LeakyReLU: (functional.leaky_relu,),
    nn.ELU: (functional.elu,),
    nn.ReLU6: (functional.relu6,),
    nn.Hardswish: (functional.hardswish,),
}
_LOGS = (functional.log_softmax, torch.log_softmax, "log_softmax")
_RESHAPING = (
    *(torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze),
    *("flatten", "reshape", "view", "contiguous", "squeeze", "unsqueeze"),
)
_TURNING = (torch.transpose, torch.permute, "transpose", "permute", "swapaxes")

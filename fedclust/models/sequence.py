"""A model as a sequence of known layers, which every engine can read layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedclust.helpers.errors import ConfigError, require
from fedclust.models.dropout import keep
from fedclust.models.initial import Init

KNOWN = (
    *(nn.Flatten, nn.Linear, nn.Conv2d, nn.ReLU, nn.MaxPool2d),
    *(nn.LocalResponseNorm, nn.ZeroPad2d, nn.Dropout),
)
# elementwise, beside ReLU; of the monotone ones a maximum may be taken before or behind
ACTIVATIONS = (
    *(nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid),
    *(nn.LeakyReLU, nn.ELU, nn.ReLU6, nn.Hardswish),
)
Shape = tuple[int, ...]
Built = TypeVar("Built", bound=nn.Module)


class Fork(nn.Module):
    """Behind it two branches begin, see `Reading`."""


class Swap(nn.Module):
    """Behind it the second branch begins, with the input of the first."""


class Add(nn.Module):
    """The sum of what both branches give, or of one and its input."""


class Split(nn.Module):
    """Behind it the first of several parts begins, see `Reading`."""


class Next(nn.Module):
    """Behind it the next part begins, with the input of the first."""


class Join(nn.Module):
    """What all parts give, one behind the other along the first dimension of an example."""


class Shaped(nn.Module):
    """The same numbers of an example in another shape."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """[B, *shape] of x [B, ...]."""
        return x.reshape(len(x), *self.shape)

    def extra_repr(self) -> str:
        """The shape."""
        return str(self.shape)


class Turn(nn.Module):
    """The last two dimensions exchanged."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., b, a] of x [..., a, b]."""
        return x.transpose(-1, -2)


class Columns(nn.Module):
    """Some of the numbers, a range or one, of an example that is a row of a table."""

    def __init__(self, which: slice | int) -> None:
        super().__init__()
        self.which = which

    def forward(self, x: Tensor) -> Tensor:
        """[..., k] of x [..., F], or [...] where it is one number."""
        return x[..., self.which]

    def extra_repr(self) -> str:
        """Which ones."""
        return str(self.which)


class Whole(nn.Module):
    """Numbers as ids: what stands before the point."""

    def forward(self, x: Tensor) -> Tensor:
        """int64 of x, of the same shape."""
        return x.long()


class Clamp(nn.Module):
    """Numbers that are too small or too large become the bounds, of which one may be missing."""

    def __init__(self, low: float | None, high: float | None) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        """Of the shape of x."""
        return x.clamp(self.low, self.high)

    def extra_repr(self) -> str:
        """The bounds."""
        return f"{self.low}, {self.high}"


INPUTS = (Columns, Whole, Clamp)  # of inputs only: behind them nothing is differentiated


@dataclass(frozen=True)
class Reading:
    """A model as layers one after the other. Where two branches are added up, these are `Fork`, the
    layers of the first, `Swap` and those of the second if it has any, `Add`. Where parts are put
    one behind the other, these are `Split`, the layers of the first, `Next` and those of the
    second, and so on, `Join`.
    """

    layers: tuple[nn.Module, ...]  # the layers
    # input shape of every layer, then the output's, without the batch dimension
    shapes: tuple[Shape, ...]
    owners: tuple[str, ...]  # what every layer is called in the names of the model's parameters
    # of every dropout layer, by its number, the place that its masks are drawn for
    places: Mapping[int, int]
    # whether a log-softmax stands behind them, which changes no cross entropy of a softmax
    logs: bool = False

    def named(self, part: str) -> Reading:
        """The same, where the model is a part of another one."""
        return replace(self, owners=tuple(f"{part}.{owner}" for owner in self.owners))

    def forward(self, x: Tensor) -> Tensor:
        """What the layers make of x [B, *shape], without dropout."""
        waiting: list[Tensor] = []
        parts: list[list[Tensor]] = []
        for layer in self.layers:
            match layer:
                case Split():
                    waiting.append(x)
                    parts.append([])
                case Next():
                    parts[-1].append(x)
                    x = waiting[-1]
                case Join():
                    waiting.pop()
                    x = torch.cat([*parts.pop(), x], 1)
                case Fork():
                    waiting.append(x)
                case Swap():
                    x, waiting[-1] = waiting[-1], x
                case Add():
                    x = x + waiting.pop()
                case nn.ReLU():
                    x = x.relu()  # elsewhere, since another branch may need x
                case nn.Dropout():
                    pass
                case _:
                    x = layer(x)
        return x.log_softmax(1) if self.logs else x


class Model(nn.Sequential):
    """A sequence of layers of the types `KNOWN`, with what engines must know beside them.

    Its own parameters are placeholders, zeros that all lie in one number, so that a model of any
    size is built in no memory: engines keep parameters in flat tensors, `draw` makes fresh ones.

    Attributes:
        shapes: input shape of every layer, then the output's, without the batch dimension.
        l2: coefficient c by parameter name. Every engine adds the gradient 2cW of the penalty c·ΣW²
            in training; losses never include it.
        dropout: rate by place in the sequence.
        draws, lone, statistics: see `fedclust.models.foreign.Foreign`.
    """

    draws, lone = False, True
    statistics: tuple[str, ...] = ()

    def take_renewed(self) -> dict[str, Tensor]:
        """No statistics."""
        return {}

    def __init__(
        self, layers: list[nn.Module], shapes: list[Shape], inits: list[Init], l2: dict[str, float]
    ):
        assert len(shapes) == len(layers) + 1, "one shape per layer, and the output's"
        unknown = [type(layer).__name__ for layer in layers if type(layer) not in KNOWN]
        assert not unknown, f"layers no engine knows: {unknown}"
        super().__init__(*layers)
        for layer in layers:  # `to_empty` would do it, and import PyTorch's compiler: a second
            for name, value in layer.named_parameters():
                setattr(layer, name, nn.Parameter(torch.zeros(()).expand(value.shape)))
        self.shapes = tuple(shapes)
        self.l2 = dict(l2)
        self.dropout = {
            i: layer.p for i, layer in enumerate(layers) if isinstance(layer, nn.Dropout)
        }
        self._inits = tuple(inits)

    def draw(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters from a CPU generator, [P] float32 in the order of `parameters()`."""
        layers = [layer for layer in self if isinstance(layer, (nn.Linear, nn.Conv2d))]
        drawn = [
            part.flatten()
            for layer, init in zip(layers, self._inits, strict=True)
            for part in init(layer, generator)
        ]
        return torch.cat(drawn)

    def reading(self) -> Reading:
        """The model itself."""
        owners = tuple(name for name, _ in self.named_children())
        return Reading(tuple(self), self.shapes, owners, {place: place for place in self.dropout})

    def masks(self, key: Tensor, step: int, batch: int) -> dict[int, Tensor]:
        """Dropout masks by place in the sequence, each [C, batch, *features], of `dropout.keep`."""
        return {i: keep(key, step, i, batch, self.shapes[i], p) for i, p in self.dropout.items()}

    def forward(self, x: Tensor, masks: Mapping[int, Tensor] | None = None) -> Tensor:
        """Logits [B, Y] of x [B, *shape]; without `masks` (each [B, *features]) no dropout."""
        for i, layer in enumerate(self):
            if not isinstance(layer, nn.Dropout):
                x = layer(x)
            elif masks is not None:
                x = x * masks[i]
        return x


class TooSmallError(Exception):
    """An input whose height or width a layer reduces to nothing."""


def check_widths(key: str, widths: Sequence[int]) -> None:
    """Refuse anything but a list of widths with a `ConfigError` that names the key."""
    is_list = isinstance(widths, Sequence) and not isinstance(widths, str)
    good = is_list and all(isinstance(width, int) and width >= 1 for width in widths)
    given, allowed = list(widths) if is_list else widths, "a list of widths of at least 1"
    require(good, key, given, f"{allowed}, such as [32,64]")


def shape_after(layer: nn.Module, shape: Shape) -> Shape:
    """Shape of one example behind a layer; to ask the meta device would import a compiler."""
    match layer:
        case nn.Flatten():
            return (prod(shape),)
        case nn.Linear():
            return (*shape[:-1], layer.out_features)
        case nn.ZeroPad2d():
            left, right, top, bottom = layer.padding
            return (shape[0], shape[1] + top + bottom, shape[2] + left + right)
        case nn.Conv2d():
            sides = [
                (size + 2 * int(layer.padding[i]) - layer.kernel_size[i]) // layer.stride[i] + 1
                for i, size in enumerate(shape[1:])
            ]
            return (layer.out_channels, *sides)
        case nn.MaxPool2d():
            return (shape[0], *(_pooled(layer, size) for size in shape[1:]))
    return shape  # the others work on each value


def _pooled(layer: nn.MaxPool2d, size: int) -> int:
    """Windows along one side; one that may reach past the edge still begins inside."""
    kernel, stride = int(layer.kernel_size), int(layer.stride)  # type: ignore[arg-type]
    if not layer.ceil_mode:
        return (size - kernel) // stride + 1
    windows = -(-(size - kernel) // stride) + 1
    return windows - 1 if (windows - 1) * stride >= size else windows


@dataclass
class Stack:
    """Builds a `Model` layer by layer, following the shape; every method returns the stack."""

    shape: Shape  # shape of one example after the layers so far
    init: Init  # how weighted layers are initialised unless they say otherwise
    _layers: list[nn.Module] = field(default_factory=list)
    _shapes: list[Shape] = field(default_factory=list)
    _inits: list[Init] = field(default_factory=list)
    _l2: dict[str, float] = field(default_factory=dict)

    def _add(self, layer: nn.Module) -> Stack:
        self._shapes.append(self.shape)
        self._layers.append(layer)
        self.shape = shape_after(layer, self.shape)
        return self

    def _add_weighted(self, layer: nn.Linear | nn.Conv2d, l2: float, init: Init | None) -> Stack:
        if l2:
            self._l2[f"{len(self._layers)}.weight"] = l2
        self._inits.append(init or self.init)
        return self._add(layer)

    def linear(self, width: int, *, l2: float = 0.0, init: Init | None = None) -> Stack:
        """Fully connected; flattens what comes before, l2 on the kernel."""
        if len(self.shape) > 1:
            self._add(nn.Flatten())
        return self._add_weighted(nn.Linear(self.shape[0], width, device="meta"), l2, init)

    def conv(
        self,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        init: Init | None = None,
    ) -> Stack:
        """Convolution, zero-padded on all sides."""
        self._check(kernel, 2 * padding)
        layer = nn.Conv2d(self.shape[0], channels, kernel, stride, padding, device="meta")
        return self._add_weighted(layer, 0.0, init)

    def conv_same(self, channels: int, kernel: int, stride: int) -> Stack:
        """Convolution to ceil(size / stride), the odd pixel of padding right and bottom."""
        pads = []
        for size in self.shape[:0:-1]:  # width first, as nn.ZeroPad2d takes them
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        if len(set(pads)) == 1:
            return self.conv(channels, kernel, stride=stride, padding=pads[0])
        left, right, top, bottom = pads
        self._add(nn.ZeroPad2d((left, right, top, bottom)))
        return self.conv(channels, kernel, stride=stride)

    def relu(self) -> Stack:
        """Rectifier."""
        return self._add(nn.ReLU())

    def pool(self, kernel: int, stride: int, *, same: bool = False) -> Stack:
        """Maximum over windows; with `same` the last may reach past the right and bottom edge."""
        self._check(1 if same else kernel, 0)
        return self._add(nn.MaxPool2d(kernel, stride, ceil_mode=same))

    def response_norm(self, size: int, alpha: float, beta: float, k: float) -> Stack:
        """Local response normalisation over `size` channels."""
        return self._add(nn.LocalResponseNorm(size, alpha, beta, k))

    def dropout(self, p: float) -> Stack:
        """Dropout with probability p."""
        require(0 <= p < 1, "model.dropout", p, "a rate in [0, 1)")
        return self._add(nn.Dropout(p)) if p else self

    def model(self) -> Model:
        """The finished model."""
        return Model(self._layers, [*self._shapes, self.shape], self._inits, self._l2)

    def _check(self, kernel: int, padding: int) -> None:
        if min(self.shape[1:]) + padding < kernel:
            raise TooSmallError


def of_images(what: str, in_shape: Shape, build: Callable[[Shape], Built]) -> Built:
    """The model `build` makes for images of shape (channels, height, width), or raises
    `TooSmallError`; `what` is the architecture in words, for messages.

    Raises:
        ConfigError: when the examples are no images, or too small ones.
    """
    if len(in_shape) != 3:
        raise ConfigError(
            f"model: {what} needs images (channels, height, width), the dataset has shape "
            f"{in_shape}; choose model=linear or model=mlp, or another dataset"
        )
    try:
        return build(in_shape)
    except TooSmallError:
        pass
    for side in range(min(in_shape[1:]) + 1, 512):
        smallest = (in_shape[0], side, side)
        try:
            build(smallest)
        except TooSmallError:
            continue
        raise ConfigError(
            f"model: {what} needs images of at least {smallest}, the dataset has {in_shape}; "
            "choose another model or dataset"
        )
    raise AssertionError(f"{what} fits no image below 512 x 512")

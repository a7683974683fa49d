"""The models and data of a task in PyTorch; needs torch only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.against.task import Layer, Task

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
}


def layers_of(model: nn.Sequential) -> tuple[Layer, ...]:
    """The model's layers by kind and sizes.

    Raises:
        ValueError: for a layer that `build` could not make.
    """
    layers: list[Layer] = []
    for layer in model:
        if isinstance(layer, nn.Linear):
            layers.append(("linear", (layer.in_features, layer.out_features)))
        elif isinstance(layer, nn.Conv2d) and layer.stride == (1, 1) and layer.bias is not None:
            padding = layer.padding[0]
            assert isinstance(padding, int), "zeros on every side"
            sizes = (layer.in_channels, layer.out_channels, layer.kernel_size[0], padding)
            layers.append(("conv", sizes))
        elif isinstance(layer, nn.MaxPool2d) and layer.kernel_size == layer.stride == 2:
            layers.append(("pool", ()))
        elif isinstance(layer, nn.ReLU):
            layers.append(("relu", ()))
        elif isinstance(layer, nn.Flatten):
            layers.append(("flatten", ()))
        else:
            raise ValueError(f"no description for {layer}")
    return tuple(layers)


class Block(nn.Module):
    """Two convolutions with batch normalisation beside a shortcut, as in ResNet-18."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Features [B, C', H', W'] of x [B, C, H, W]."""
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


class Mean(nn.Module):
    """Means over all places."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C] of x [B, C, H, W]."""
        return x.mean((2, 3))


_MAKERS: dict[str, Callable[..., nn.Module]] = {
    "linear": nn.Linear,
    "conv": lambda inside, outside, side, pad: nn.Conv2d(inside, outside, side, padding=pad),
    "bare_conv": lambda inside, outside, side, pad: nn.Conv2d(
        inside, outside, side, padding=pad, bias=False
    ),
    "pool": lambda: nn.MaxPool2d(2),
    "relu": nn.ReLU,
    "flatten": nn.Flatten,
    "norm": nn.BatchNorm2d,
    "block": Block,
    "mean": Mean,
}


def build(layers: tuple[Layer, ...]) -> nn.Sequential:
    """A PyTorch model, freshly initialised, from its layers by kind and sizes."""
    return nn.Sequential(*(_MAKERS[kind](*sizes) for kind, sizes in layers))


def resnet18(channels: Sequence[int], classes: int) -> tuple[Layer, ...]:
    """ResNet-18 with batch normalisation for small images of three colours.

    Args:
        channels: four widths, of two blocks each; the second to fourth halve the sides.
        classes: Y.
    """
    first, blocks, before = channels[0], [], channels[0]
    for stage, width in enumerate(channels):
        blocks.append(("block", (before, width, 2 if stage else 1)))
        blocks.append(("block", (width, width, 1)))
        before = width
    stem = ("bare_conv", (3, first, 3, 1)), ("norm", (first,)), ("relu", ())
    return *stem, *blocks, ("mean", ()), ("linear", (before, classes))


def random_clients(task: Task, most: int = 10000) -> list[tuple[Tensor, Tensor]]:
    """Inputs [n, *shape] float32 and labels [n] int64 of every client of the population, in memory.

    Clients are slices of at most `most` random examples, which they share where that is too few for
    all: speed does not depend on what images show.
    """
    generator = torch.Generator().manual_seed(0)
    count = max(task.examples, min(most, task.population * task.examples))
    x = torch.rand(count, *task.shape, generator=generator)
    y = torch.randint(0, task.classes, (count,), generator=generator)
    places = count // task.examples
    starts = [i % places * task.examples for i in range(task.population)]
    return [
        (x[start : start + task.examples], y[start : start + task.examples]) for start in starts
    ]

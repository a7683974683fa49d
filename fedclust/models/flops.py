"""Floating-point operations of a model for one example."""

from __future__ import annotations

import math

from torch import nn

from fedclust.models.sequence import Model


def forward_flops(model: Model) -> list[int]:
    """Multiplications and additions of every layer with parameters for one example, in order."""
    flops = []
    for place, layer in enumerate(model):
        if isinstance(layer, nn.Linear):
            flops.append(2 * layer.weight.numel())
        elif isinstance(layer, nn.Conv2d):
            flops.append(2 * layer.weight.numel() * math.prod(model.shapes[place + 1][1:]))
    return flops


def step_flops(model: Model) -> int:
    """Operations of a step for one example: the first layer needs no gradient of its input."""
    flops = forward_flops(model)
    return 3 * sum(flops) - flops[0]

"""How fresh parameters are drawn: one function per scheme, from an explicit generator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedclust.helpers.errors import ConfigError

Weighted = nn.Linear | nn.Conv2d
Init = Callable[[Weighted, torch.Generator], tuple[Tensor, Tensor]]


def torch_default(layer: Weighted, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Kernel and bias as PyTorch initialises them: both uniform in ±1/sqrt(fan in).

    The numbers equal those of `layer.reset_parameters()` under a global generator in the same
    state.
    """
    kernel, bias = torch.empty(layer.weight.shape), torch.empty(layer.weight.shape[0])
    nn.init.kaiming_uniform_(kernel, a=math.sqrt(5), generator=generator)
    bound = 1 / math.sqrt(kernel[0].numel())
    return kernel, bias.uniform_(-bound, bound, generator=generator)


def keras_default(layer: Weighted, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Kernel and bias as Keras initialises them: Glorot uniform, and zero."""
    kernel = nn.init.xavier_uniform_(torch.empty(layer.weight.shape), generator=generator)
    return kernel, torch.zeros(layer.weight.shape[0])


def truncated_normal(std: float, bias: float) -> Init:
    """Kernels from N(0, std²) within two standard deviations, and a constant bias."""

    def draw(layer: Weighted, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        kernel = torch.empty(layer.weight.shape)
        nn.init.trunc_normal_(kernel, std=std, a=-2 * std, b=2 * std, generator=generator)
        return kernel, torch.full((layer.weight.shape[0],), bias)

    return draw


_NAMED: dict[str, Init] = {"torch": torch_default, "keras": keras_default}


def named_init(name: str) -> Init:
    """The scheme a config names; a `ConfigError` for any other name."""
    if name not in _NAMED:
        raise ConfigError(f"model.init={name} is not allowed: one of {', '.join(_NAMED)}")
    return _NAMED[name]

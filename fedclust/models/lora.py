"""Low-rank adapters (LoRA, Hu et al., arXiv 2106.09685): the weights of linear layers stay, and a
product of two small matrices is added to each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Positive, Ranged
from fedclust.models.naming import few, meets


@dataclass(frozen=True, kw_only=True)
class Lora(Ranged):
    """What is adapted, and how."""

    rank: AtLeastOne = 8  # r, of the product
    alpha: Positive = 16.0  # the product is multiplied by alpha / r
    # names or patterns of linear layers; None for all but the last, which is trained as a whole
    layers: Sequence[str] | None = None

    def adapt(self, module: nn.Module) -> None:
        """Give linear layers their adapters, which with the last layer are all that is trained.
        Raises `ConfigError` if a pattern meets no linear layer, or there is none but the last.
        """
        linear = {name: one for name, one in module.named_modules() if isinstance(one, nn.Linear)}
        last = next(reversed(linear), "")
        allowed = f"names or patterns of linear layers{few(linear)}"
        for pattern in self.layers or ():
            require(any(meets(pattern, name) for name in linear), "lora.layers", pattern, allowed)
        chosen = [
            name
            for name in linear
            if (name != last if self.layers is None else any(meets(p, name) for p in self.layers))
        ]
        allowed = "some of the linear layers; there is none"
        require(bool(chosen), "lora.layers", self.layers or "null", allowed)
        for name, value in module.named_parameters():
            value.requires_grad = name.rpartition(".")[0] == last and last not in chosen
        for name in chosen:
            low = _Low(linear[name].weight, self.rank, self.alpha)
            parametrize.register_parametrization(linear[name], "weight", low, unsafe=True)


class _Low(nn.Module):
    """W + alpha / r · B A, with A [r, in] drawn and B [out, r] zero."""

    def __init__(self, weight: Tensor, rank: int, alpha: float):
        super().__init__()
        self.a = nn.Parameter(torch.empty(rank, weight.shape[1]))
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, weight: Tensor) -> Tensor:
        """The layer's weight [out, in]."""
        return weight + self.scale * (self.b @ self.a)

"""Angle between clients' gradients: GradCos in the figures of LCFL, arXiv:2407.09360.

Differs from the released code (wenh06/LCFL): the gradient is that of the whole training set; the code takes
what the last mini-batch of the last local training left behind, which is close to noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedclust.errors import require
from fedclust.ops import cosine
from fedclust.types import Round
from fedclust.verbs import Engine

Where = Literal["common", "local"]


@dataclass(frozen=True, kw_only=True)
class GradCosine:
    """d(i, j) = 1 - cos(g_i, g_j), g_i the full training gradient of client i.

    Attributes:
        gradient: taken at the server's `common` model, as the paper's formula, or at each client's `local`
            model.
    """

    gradient: Where = "common"

    def __post_init__(self) -> None:
        allowed = "one of " + ", ".join(get_args(Where))
        require(self.gradient in get_args(Where), "cluster_metric.gradient", self.gradient, allowed)

    def __call__(self, engine: Engine, models: Tensor, common: Tensor, clients: Tensor, rnd: Round) -> Tensor:
        """[C, C] float32 in [0, 2]; see `fedclust.verbs.ClusterMetric`."""
        if self.gradient == "common":
            gradient = engine.grad(common, torch.zeros_like(clients), clients, rnd)
        else:
            own = torch.arange(len(clients), device=clients.device)
            gradient = engine.grad(models, own, clients, rnd)
        distance = 1 - cosine(gradient, gradient)
        # a matrix product need not be symmetric to the last bit
        return distance.maximum(distance.T).fill_diagonal_(0)

    def transfers(self, num_clients: int) -> tuple[int, int]:
        """Every gradient goes to the server once."""
        return 0, num_clients

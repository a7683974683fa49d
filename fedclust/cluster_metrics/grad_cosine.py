"""Angle between clients' gradients: GradCos in the figures of LCFL, arXiv:2407.09360.

Differs from the released code (wenh06/LCFL): the gradient is by default that of the whole training
set; the code takes what the last mini-batch of the last local training left behind, which is close
to noise. The published curves show that: `gradient: last_batch` takes a random mini-batch at the
client's model after that training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedclust.core.front import Clients, Gradient
from fedclust.core.types import Round
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.ops import cosine, symmetric
from fedclust.helpers.ranges import AtLeastOne, Ranged

Where = Literal["common", "local", "last_batch"]


@dataclass(frozen=True, kw_only=True)
class GradCosine(Ranged):
    """d(i, j) = 1 - cos(g_i, g_j), g_i a training gradient of client i."""

    # of all training data at the server's `common` model, as the paper's formula, or at each
    # client's `local` model; or of one random mini-batch at each client's model, `last_batch`
    gradient: Where = "common"
    # examples of that mini-batch; None for all
    batch_size: Annotated[AtLeastOne | None, OnlyWith("gradient", "last_batch")] = None

    num_components: ClassVar[None] = None

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        """[C, C] float32 in [0, 2]; see `fedclust.verbs.ClusterMetric`."""
        batch_size = self.batch_size if self.gradient == "last_batch" else None
        asked = Gradient(models, torch.arange(len(ids), device=ids.device), ids, batch_size)
        if self.gradient == "common":
            asked = Gradient(common, torch.zeros_like(ids), ids)
        gradient = clients.grad(asked)
        return symmetric(1 - cosine(gradient, gradient))

    def reads(self, ids: Tensor, rnd: Round) -> Tensor:
        """Nobody's model with gradients at the `common` one; see `fedclust.verbs.ClusterMetric`."""
        return ids[:0] if self.gradient == "common" else ids

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """Every gradient goes to the server once, the common model to every client before."""
        return num_clients if self.gradient == "common" else 0, num_clients, 0

"""A model as engines run it, tried on examples of the pool that it is for."""

from __future__ import annotations

import torch
from torch import nn

from fedclust.core.pool import Pool
from fedclust.models.foreign import Runnable, adopt


def adopted(model: nn.Module, pool: Pool) -> Runnable:
    """A model as engines run it, tried on two examples of the pool, on its device."""
    two = torch.tensor([0, len(pool.y) - 1], device=pool.x.device)
    examples = pool.inputs(two)
    if pool.vocabulary is not None:
        examples[1] = pool.vocabulary - 1  # which the Embedding must have
    return adopt(model, pool.shape, examples, pool.width).to(pool.x.device)

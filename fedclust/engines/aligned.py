"""How gradients lie to directions, from the gradients themselves: right for every model."""

from __future__ import annotations

import torch

from fedclust.core.calls import AlignCall, Alignment, GradCall, LossCall
from fedclust.core.verbs import Engine
from fedclust.helpers.ops import inner_products

_AT_ONCE = 64 << 20  # numbers of the gradients that are there at a time


def by_gradients(engine: Engine, call: AlignCall) -> Alignment:
    """The answer to a call from gradients, some rows and one model at a time."""
    loss = engine.answer(LossCall(call.models, call.shards))
    rows = call.undecided(loss).nonzero().squeeze(1)
    inner = torch.zeros_like(loss, dtype=torch.float64)
    square = torch.zeros_like(inner)
    each = max(1, _AT_ONCE // call.models.shape[1])
    for first in range(0, len(rows), each):
        some = rows[first : first + each]
        shards = call.shards.take(some)
        for k, direction in enumerate(call.directions):
            gradient = engine.answer(GradCall(call.models, torch.full_like(some, k), shards))
            along, square[some, k] = inner_products(gradient, direction.unsqueeze(0))
            inner[some, k] = along.squeeze(1)
    return Alignment(inner, square, loss)

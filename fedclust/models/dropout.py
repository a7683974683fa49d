"""Dropout masks from (row key, local step, layer, place in the batch): the same in every engine."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedclust.helpers.rng import fold, uniform

# "dropout"; keeps masks apart from the batch order, which folds the same key
PURPOSE = 0x64726F706F7574


def keep(
    key: Tensor, step: int, layer: int, batch: int, features: tuple[int, ...], p: float
) -> Tensor:
    """What a dropout layer multiplies its input with: 0 with probability p, else 1 / (1 - p).

    The example at place j of a batch has its own key, so its mask depends neither on the padded
    width of the batch nor on who else is in the call.

    Args:
        key: [C] int64, the row keys of the call (`Shards.key`).
        layer: place of the dropout layer in its model's sequence.
        features: shape of the layer's input without the batch dimension.

    Returns:
        [C, B, *features] float32.
    """
    row = fold(fold(fold(key, PURPOSE), step), layer)
    place = fold(row.unsqueeze(1), torch.arange(batch, device=key.device))  # [C, B]
    kept = uniform(place, math.prod(features)) >= p
    return kept.to(torch.float32).mul_(1 / (1 - p)).view(*place.shape, *features)

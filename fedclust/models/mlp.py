"""Fully connected networks, from softmax regression upwards."""

from __future__ import annotations

from collections.abc import Sequence

from fedclust.helpers.errors import require
from fedclust.helpers.ranges import NonNegative, Width
from fedclust.models.initial import named_init
from fedclust.models.sequence import Model, Stack, check_widths


def mlp(
    in_shape: Sequence[int],
    num_classes: int,
    *,
    hidden: Sequence[Width],
    init: str = "torch",
    l2: NonNegative = 0.0,
) -> Model:
    """Fully connected layers with ReLU between them; without hidden layers, softmax regression.

    Args:
        in_shape: shape of one example; flattened.
        hidden: widths of the hidden layers.
        init: `torch` or `keras`, see `fedclust.models.initial`.
        l2: c of the penalty c·ΣW² on every kernel.
    """
    check_widths("model.hidden", hidden)
    require(l2 >= 0, "model.l2", l2, "at least 0")
    stack = Stack(tuple(int(size) for size in in_shape), named_init(init))
    for width in hidden:
        stack.linear(width, l2=l2).relu()
    return stack.linear(num_classes, l2=l2).model()

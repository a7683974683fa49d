"""Layers that clusters share with all others, beside those each has for itself: HCFL, LCFed."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from fedclust.algorithms.steps import zeros
from fedclust.core.calls import LocalResult
from fedclust.core.front import Clients
from fedclust.helpers.errors import require
from fedclust.helpers.ops import cluster_mean
from fedclust.models.params import Layout

Layers = Literal["body", "all"]


def check_layers(layers: Layers, layout: Layout) -> None:
    """Raise `ConfigError` if the body is to be shared, and the model has none."""
    deep = layers == "all" or layout.num_layers > 1
    require(deep, "algorithm.layers", layers, "all, for the model has a single layer")


def shared(layers: Layers, layout: Layout) -> Tensor:
    """What is shared, [P] bool: all but the last layer, which is the `body`, or `all`."""
    names = layout.last_layers() if layers == "body" else ()
    return ~layout.mask(names)


def common_mean(
    clients: Clients, local: LocalResult, models: Tensor, label: Tensor, weight: Tensor | None
) -> Tensor:
    """The mean [1, P] of all participants' models, which started from `models` [K, P] by `label`
    [C]; `weight` [C], None = equal.

    The server's robust mean is that of their updates, what each made of its own cluster's model: it
    is added to the mean of the models they had.
    """
    one = zeros(label)
    mean = cluster_mean(local.params, one, weight, empty=models[:1])
    if clients.server.aggregation is None:
        return mean
    start = models[label]
    middle = cluster_mean(start, one, weight, empty=models[:1])
    moved = middle + (local.params - start)
    return clients.server.combined(middle, moved, mean, one, weight)

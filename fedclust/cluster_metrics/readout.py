"""Inputs of a model's last layer, read off losses, so that every engine can answer."""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.errors import DivergedError, require

# nats: far above what is read, so that only the class that has it counts in the sum of exponentials
_SURE = 100.0
_LOWEST = -80.0  # nats: below, the other classes begin to count
_FARTHEST = 1e30  # inputs of any model are nearer


def last_width(clients: Clients) -> int:
    """Inputs of the model's last layer; a `ConfigError` if it is not a linear layer with a bias."""
    names = clients.layout.last_layers()
    shapes = [clients.layout.shapes[clients.layout.names.index(name)] for name in names]
    linear = len(shapes) == 2 and len(shapes[0]) == 2 and shapes[1] == shapes[0][:1]
    require(linear, "model", ", ".join(names), "one that ends in a linear layer with a bias")
    return shapes[0][1]


def projections(
    model: Tensor, directions: Tensor, ids: Tensor, clients: Clients, rnd: Round
) -> Tensor:
    """Inputs of the last layer for every training example, along given directions, [C, n, d].

    A last layer that gives class c the logit 100 and all others -r h has, for an example of another
    class, the loss 100 + r h + log(1 + (Y - 1) exp(-100 - r h)), which is 100 + r h to rounding as
    long as r h is above -80; where it is not, shorter directions are read. Two such layers, sure of
    class 0 and of class 1, serve the examples of all classes. Errors are 1e-5 of the largest |r h|,
    or of 100. A client that reads its last layer's input makes one forward pass; so it counts as
    one.

    Args:
        model: [1, P], whose last layer is exchanged.
        directions: [d, H] rows r.
        ids: [C] int64 clients.
    """
    weight, bias = (clients.layout[name] for name in clients.layout.last_layers())
    num_classes, count = bias.stop - bias.start, len(directions)
    index, size = rnd.fed.train.take(ids)
    label = rnd.fed.pool.y[index]  # [C, n]
    missing = torch.arange(index.shape[1], device=ids.device) >= size.unsqueeze(1)
    scale, passes = 1.0, 1
    while scale < _FARTHEST:
        read = []
        for sure in torch.eye(num_classes, device=model.device)[:2]:  # [Y], 1 for its class
            models = model.repeat(count, 1)
            rows = (sure - 1).unsqueeze(1) * (directions / scale).unsqueeze(1)
            models[:, weight] = rows.flatten(1)
            models[:, bias] = _SURE * sure
            read.append(clients.example_losses(models, ids, passes) - _SURE)
            passes = 0
        found = torch.where((label == 0).unsqueeze(2), read[1], read[0])
        if not bool((found < _LOWEST).masked_fill(missing.unsqueeze(2), False).any()):
            return found * scale
        scale *= 4
    raise DivergedError("what reaches the model's last layer has no end; a smaller lr may help")

"""The plain loop, as most code is written: one client at a time, `deepcopy`, autograd and
`torch.optim`.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.against.steps import fit
from fedclust.core.types import Pool


def train(
    model: nn.Module, pool: Pool, clients: Tensor, epochs: int, batch: int | None, lr: float
) -> list[nn.Module]:
    """Local training of every client from the same model.

    Args:
        model: where every client starts.
        pool: all examples.
        clients: [C, n] int64 pool rows of every client.
        epochs: passes over a client's data, shuffled.
        batch: examples of a step; None for all, unshuffled.
        lr: learning rate.

    Returns:
        The trained models.
    """
    trained = []
    for rows in clients:
        local = copy.deepcopy(model)
        sgd = torch.optim.SGD(local.parameters(), lr=lr)
        for _ in range(epochs):
            order = rows if batch is None else rows[torch.randperm(len(rows), device=rows.device)]
            met = order.split(batch or len(rows))
            fit(local, sgd, ((_inputs(pool, index), pool.y[index]) for index in met))
        trained.append(local)
    return trained


@torch.no_grad()
def losses(models: list[nn.Module], pool: Pool, clients: Tensor) -> Tensor:
    """Mean loss of every model on every client's data [C, n], [C, K] nats per example."""
    table = torch.empty(len(clients), len(models))
    for i, rows in enumerate(clients):
        x, y = _inputs(pool, rows), pool.y[rows]
        for k, model in enumerate(models):
            table[i, k] = functional.cross_entropy(model(x), y)
    return table


def _inputs(pool: Pool, index: Tensor) -> Tensor:
    if pool.vocabulary is not None:
        return pool.x[index].long()
    return pool.x[index].to(torch.float32).mul_(pool.scale).add_(pool.shift)

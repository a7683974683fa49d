"""The model of least loss on a client's data: who joins which cluster, and who is served what."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedclust.algorithms.steps import arrived, clients_with_data
from fedclust.core.front import Clients
from fedclust.core.types import Cost, Round, Served

ClusterChoice = Literal["train_loss", "test_loss"]


def join_cheapest(
    models: Tensor, label: Tensor, ids: Tensor, clients: Clients
) -> tuple[Tensor, Cost]:
    """Labels [M] in which those of `ids` [A] without one (-1) have that of least training loss, and
    what that cost: a newcomer gets all K models, says which it chose, and gets that once more to
    train.
    """
    new = ids[label[ids] < 0]
    if not len(new):
        return label, Cost()
    if len(models) == 1:  # nothing to choose, so nothing to send
        return label.index_fill(0, new, 0), Cost()
    label = label.index_copy(0, new, clients.loss(models, new).argmin(1))
    return label, Cost(models_down=len(new) * len(models), scalars_up=len(new))


def serve_joined(models: Tensor, label: Tensor, clients: Clients, rnd: Round) -> Served:
    """Each client's model is that of its cluster, of least training loss where it has none."""
    label, _ = join_cheapest(models, label, clients_with_data(rnd), clients)
    return Served(models=models, label=arrived(label, rnd))


def serve_cheapest(
    models: Tensor, clients: Clients, rnd: Round, choose_by: ClusterChoice
) -> Served:
    """Every client that is there gets the model [K, P] of least loss on its own data, ties to the
    smallest index; `test_loss` looks at test labels as the IFCA code does.
    """
    label = torch.full_like(rnd.fed.group, -1)
    if choose_by == "train_loss":
        ids = clients_with_data(rnd)
        label[ids] = clients.loss(models, ids).argmin(1)
        return Served(models=models, label=label)
    ids = (rnd.present & (rnd.fed.test.count > 0)).nonzero().squeeze(1)
    losses = []
    for cluster in range(len(models)):
        label[ids] = cluster
        losses.append(clients.trial(Served(models=models, label=label)).loss_sum[ids])
    chosen = torch.full_like(label, -1)
    chosen[ids] = torch.stack(losses, 1).argmin(1)
    return Served(models=models, label=chosen)

"""Profiles of clients' data, on a scale that stays: what FLUX and FEROMA compare clients by."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.ops import distances
from fedclust.helpers.rng import permutations


class DescribesClients(Protocol):
    """Describes clients' data; `fedclust.cluster_metrics.descriptor.DescribesClients` is one."""

    def blocks(
        self, model: Tensor, ids: Tensor, clients: Clients, rnd: Round, times: Tensor | None = None
    ) -> list[Tensor]:
        """Moments of what the examples of the clients `ids` [C] put into the last layer of a model
        [1, P]: mean and deviation of all, then those of the Y classes; only the first two can do
        without labels. `times` [C, n] says how often each example counts.
        """
        ...


def fitted(blocks: list[Tensor]) -> Tensor:
    """The scale [2, D] of profiles: the mean, and a root mean square about it of every block."""
    centre = torch.cat([block.mean(0) for block in blocks])
    spread = [(block - block.mean(0)).square().mean().sqrt().clamp(min=1e-12) for block in blocks]
    wide = [one.expand(block.shape[1]) for one, block in zip(spread, blocks, strict=True)]
    return torch.stack([centre, torch.cat(wide)])


def placed(blocks: list[Tensor], scale: Tensor) -> Tensor:
    """Profiles [C, D] on a scale [2, D]."""
    return (torch.cat(blocks, 1) - scale[0]) / scale[1]


def unlabelled(profile: Tensor, num_classes: int) -> Tensor:
    """The part of profiles [C, D] that needs no labels."""
    return profile[:, : profile.shape[1] // (1 + num_classes)]


def nearest(profile: Tensor, others: Tensor, num_classes: int) -> Tensor:
    """Which of `others` [S, D] is nearest to each profile [C, D] without labels, [C] int64."""
    parts = (unlabelled(one, num_classes) for one in (profile, others))
    return distances(*parts).argmin(1)


def random_halves(ids: Tensor, count: int, rnd: Round) -> Tensor:
    """In how many of `count` random halves each training example is, [C, n] int64.

    Every half has ceil(n_i / 2) examples of client i, drawn anew for every round and client.
    """
    index, size = rnd.fed.train.take(ids)
    times = torch.zeros_like(index)
    half = torch.arange(index.shape[1], device=ids.device) < ((size + 1) // 2).unsqueeze(1)
    for one in range(count):
        key = rnd.stream("half of the examples", one).keys(ids)
        order = permutations(key, size, index.shape[1])  # real examples come first
        times.scatter_add_(1, order, half.long())
    return times

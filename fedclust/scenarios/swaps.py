"""Pairs of clients, and index tables in which they have exchanged data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedclust.core.types import Federation, Round, Split
from fedclust.helpers.rng import uniform


def matched(rnd: Round, eligible: Tensor) -> Tensor:
    """A random perfect matching of `eligible` [E], pairs [E // 2, 2] int64 in random order."""
    order = (rnd.stream("swap").keys(eligible) >> 1).argsort(stable=True)
    return eligible[order][: len(eligible) // 2 * 2].view(-1, 2)


def chosen(rnd: Round, pairs: Tensor, probability: float) -> Tensor:
    """Those of `pairs` [S, 2], in order, that swap in this round, each with the probability."""
    chance = uniform(rnd.stream("swap_chance").keys(pairs[:, 0]), 1).squeeze(1)
    return pairs[chance < probability]


def exchanged(fed: Federation, pairs: Tensor) -> Federation:
    """The federation after both clients of every pair [S, 2] exchanged all data and groups."""
    owner = torch.arange(fed.num_clients, device=pairs.device)  # whose data a client gets
    owner[pairs[:, 0]], owner[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
    moved: dict[str, Any] = {name: _of_owners(one, owner) for name, one in fed.splits.items()}
    return replace(fed, group=fed.group[owner], **moved)


def _of_owners(split: Split, owner: Tensor) -> Split:
    """The split in which client i has the rows that `owner[i]` [M] has in this one."""
    count = split.count[owner]
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    size, step = len(split.index), split.start[owner] - start[:-1]
    back = torch.repeat_interleave(step, count, output_size=size)
    return Split(split.index[torch.arange(len(back), device=back.device) + back], start)


def labels_owned(fed: Federation, clients: Tensor) -> Tensor:
    """Which classes each of `clients` [C] has both training and test examples of, [C, Y] bool."""
    owned = torch.ones(len(clients), fed.pool.num_classes, dtype=torch.bool, device=clients.device)
    for split in (fed.train, fed.test):
        index, real = _rows(split, clients)
        examples = torch.zeros(owned.shape, dtype=torch.int64, device=owned.device)
        owned &= examples.scatter_add_(1, fed.pool.y[index], real.to(torch.int64)) > 0
    return owned


def is_swappable(fed: Federation) -> bool:
    """Whether two clients exist that each own a class in both splits which the other does not."""
    owned = labels_owned(fed, torch.arange(fed.num_clients, device=fed.group.device))
    owned = owned[owned.sum(1).argsort(stable=True)]
    # else the sets of classes contain each other in a chain
    return bool((owned[:-1] & ~owned[1:]).any())


def draw_labels(rnd: Round, pairs: Tensor) -> Tensor:
    """What the clients of pairs [S, 2] give each other: [S, 2] int64 classes, each drawn from those
    that one has in both splits and the other has not, or -1 where there is none.
    """
    owned = labels_owned(rnd.fed, pairs.flatten()).view(*pairs.shape, rnd.fed.pool.num_classes)
    candidates = owned & ~owned.flip(1)
    draw = uniform(rnd.stream("swap_label").keys(pairs), candidates.shape[2])
    best = torch.where(candidates, draw, -1.0).max(2)
    return torch.where(best.values >= 0, best.indices, -1)


def exchanged_labels(fed: Federation, pairs: Tensor, label: Tensor) -> Federation:
    """The federation after the clients of pairs [S, 2], no client twice, gave each other all
    examples of a class: `label` [S, 2].
    """
    y, splits = fed.pool.y, fed.splits
    moved: dict[str, Any] = {k: _given(one, y, pairs, label) for k, one in splits.items()}
    return replace(fed, **moved)


def _given(split: Split, y: Tensor, pairs: Tensor, label: Tensor) -> Split:
    """The split after the exchange; clients outside the pairs [S, 2] are not visited."""
    clients = pairs.flatten()
    index, real = _rows(split, clients)
    given = real & (y[index] == label.flatten().unsqueeze(1))
    other = torch.arange(len(clients), device=clients.device) ^ 1  # the neighbour within the pair
    mine = torch.cat([real & ~given, given[other]], 1)  # [2 S, 2 n] what a client has now
    index, size = torch.cat([index, index[other]], 1)[mine], mine.sum(1)

    count = split.count.index_copy(0, clients, size)
    start = torch.cat([count.new_zeros(1), count.cumsum(0)])
    owner, place = split.owner_and_place()
    moved = torch.zeros_like(count, dtype=torch.bool).index_fill(0, clients, True)[owner]
    rows = torch.empty_like(split.index)  # as many as before: nothing is lost
    rows[(start[owner] + place)[~moved]] = split.index[~moved]
    first = torch.repeat_interleave(start[clients] - (size.cumsum(0) - size), size)
    rows[first + torch.arange(len(index), device=index.device)] = index.to(torch.int32)
    return Split(rows, start)


def _rows(split: Split, clients: Tensor) -> tuple[Tensor, Tensor]:
    """Padded pool rows of `clients` [C], and which are no padding: [C, n] int64 and bool."""
    index, count = split.take(clients)
    return index, torch.arange(index.shape[1], device=index.device) < count.unsqueeze(1)

"""Clusters that become one: StoCFL, arXiv:2303.00897."""

from __future__ import annotations

import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor


def linked(similarity: Tensor, least: float) -> Tensor:
    """The set of every row, [A] int64: rows whose `similarity` [A, A] is at least `least` are in
    one set, also through others (single linkage).
    """
    _, part = connected_components((similarity >= least).cpu().numpy(), directed=False)
    return torch.from_numpy(part).to(similarity.device, torch.int64)


def unite(
    label: Tensor, clusters: Tensor, part: Tensor, known: int, num_clusters: int
) -> tuple[Tensor, Tensor]:
    """The labels [M] after the clusters of one set became one, and whose model each has now, [K'].

    The smallest number of a set survives, then numbers close up. The model is that of the largest
    of the `known` clusters in the set, of the first one where none is known.

    Args:
        clusters: [A] int64, ascending.
        part: [A] int64 set of every one of them.
        known: how many clusters there were before this round; the others have no model of their
            own.
    """
    target = torch.arange(num_clusters, device=label.device)
    least = target.new_full((len(part),), num_clusters).scatter_reduce(0, part, clusters, "amin")
    target = target.index_copy(0, clusters, least[part])
    left: Tensor = target.unique()  # type: ignore[no-untyped-call]
    size = label[label >= 0].bincount(minlength=num_clusters)
    size[known:] = 0
    largest = ((target == left.unsqueeze(1)) * (size + 1)).argmax(1)  # ties to the smallest number
    after = torch.searchsorted(left, target[label.clamp(min=0)])
    return after.where(label >= 0, -1), largest

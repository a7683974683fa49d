"""Random participants work in clusters that nobody chose: JGL, arXiv:2311.13665, Algorithm 1.

`refill` moves them into empty clusters only, `anchor_all` one into every cluster in every round,
redrawn each time; the paper's text can be read as either.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedclust.types import Round

EmptyCluster = Literal["refill", "anchor_all", "none"]


def occupied(chosen: Tensor, num_clusters: int, how: EmptyCluster, rnd: Round) -> Tensor:
    """The clusters the participants work in, [C] int64 in [0, K).

    Args:
        chosen: [C] int64 the clusters they chose.
        num_clusters: K.
        how: see above; `none` leaves them where they are.
        rnd: the round.
    """
    if how == "none":
        return chosen
    order = rnd.stream("refill").numpy().permutation(len(chosen)).tolist()
    label, size = chosen.tolist(), chosen.bincount(minlength=num_clusters).tolist()
    if how == "anchor_all":
        for cluster, row in zip(range(num_clusters), order, strict=False):
            label[row] = cluster
    else:
        for cluster in [k for k in range(num_clusters) if not size[k]]:
            row = next((row for row in order if size[label[row]] > 1), None)
            if row is not None:  # there may be fewer participants than clusters
                size[label[row]], size[cluster] = size[label[row]] - 1, 1
                label[row] = cluster
    return torch.tensor(label, device=chosen.device)

"""Groups that a clustering has just found get the models that are there: one model for each group.

Least total cost in a bipartite graph (Kuhn, Naval Research Logistics Quarterly 1955), as CLoVE
(arXiv:2506.22427) and CFL-GP (PMLR 235, kim24p) do it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from fedclust.core.verbs import ClusterMethod
from fedclust.helpers.errors import require


def at_most(method: Any, num_clusters: int) -> ClusterMethod:
    """The method, whose `auto` tries at most `num_clusters` clusters; any other as it is."""
    most = getattr(method, "max_clusters", None)
    limited: ClusterMethod = method
    if method.num_clusters == "auto" and most is not None:
        one = num_clusters == 1  # which auto does not try
        limit = {"num_clusters": 1} if one else {"max_clusters": min(most, num_clusters)}
        limited = replace(method, **limit)
    return limited


def matched(cost: Tensor) -> Tensor:
    """The model of every group, [A] int64, all different, so that the sum of `cost` [A, K] is
    least.

    Raises:
        ConfigError: if there are more groups than models.
    """
    groups, models = cost.shape
    allowed = f"at least the {groups} groups that the clustering has found, or let it find fewer"
    require(groups <= models, "num_clusters", models, allowed)
    _, column = linear_sum_assignment(cost.detach().double().cpu().numpy())
    return torch.from_numpy(column).to(cost.device)


def renumbered(found: Tensor, before: Tensor, num_models: int) -> Tensor:
    """The labels `found` [C] from 0, renumbered in [0, num_models) so that most clients keep the
    label they had `before` [C], -1 for none; [C] int64.

    Raises:
        ConfigError: if there are more groups than models.
    """
    had = before >= 0
    overlap = torch.zeros(int(found.max()) + 1, num_models, device=found.device)
    one = torch.ones(int(had.sum()), device=found.device)
    overlap.index_put_((found[had], before[had]), one, accumulate=True)
    return matched(-overlap)[found]

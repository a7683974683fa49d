"""Clusters against groups: the table that every measure of recovery starts from.

Apart from `fedclust.metrics.recovery`, so that a report does not wait for PyTorch to load.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def contingency(label: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Clients per used cluster and occurring group, [used clusters, groups] int64, from the cluster
    [M] and the true group [M] of every client.
    """
    clusters, row = np.unique(label, return_inverse=True)
    groups, column = np.unique(group, return_inverse=True)
    table = np.zeros((len(clusters), len(groups)), dtype=np.int64)
    np.add.at(table, (row, column), 1)
    return table

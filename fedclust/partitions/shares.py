"""How many examples of each class each cluster gets, in whole numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from fedclust.helpers.errors import ConfigError

Table = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def equal_shares(weight: Table, supply: Counts) -> Counts:
    """The examples `supply` [Y] of every class divided among the clusters in proportion to weights
    [G, Y] >= 0, [G, Y]; without weight, none.
    """
    total = weight.sum(0)
    ends = np.rint(supply * weight.cumsum(0) / np.where(total > 0, total, 1)).astype(np.int64)
    shares: Counts = np.diff(ends, axis=0, prepend=0)
    return shares


def solved_shares(owns: Table, supply: Counts, sizes: Counts) -> Counts:
    """Shares [G, Y] whose clusters have exactly the given sizes [G], of the classes that they own:
    1 in `owns` [G, Y], else 0.

    Of all tables with these sizes and class totals proportional to the supply [Y], the one nearest
    to equal shares in relative entropy (iterative proportional fitting), then rounded.

    Raises:
        ConfigError: no such table exists.
    """
    wanted = supply * owns.any(0)
    wanted = wanted * (sizes.sum() / wanted.sum())
    shares = owns * wanted
    for _ in range(2000):
        shares *= (sizes / shares.sum(1))[:, None]
        column = shares.sum(0)
        shares *= np.where(column > 0, wanted / np.where(column > 0, column, 1), 0)
    if sizes.sum() > (supply * owns.any(0)).sum() or np.abs(shares.sum(1) - sizes).max() > 0.5:
        raise ConfigError(
            f"partition.cluster_sizes={sizes.tolist()} is not allowed: the clusters' classes hold "
            f"{int((supply * owns.any(0)).sum())} examples and cannot be shared so; change it or "
            "partition.subsets"
        )
    return _rounded(shares, supply, sizes)


def _rounded(shares: Table, supply: Counts, sizes: Counts) -> Counts:
    """Whole numbers beside `shares` [G, Y] with row sums `sizes` and column sums within `supply`.

    Which entries are rounded up is a transport problem, whose simplex solutions are whole numbers.
    """
    floor = np.floor(shares + 1e-6).astype(np.int64)
    num_rows, num_columns = shares.shape
    rows = np.repeat(np.eye(num_rows), num_columns, axis=1)
    columns = np.tile(np.eye(num_columns), num_rows)
    up = linprog(
        -(shares - floor).ravel(),
        A_ub=columns,
        b_ub=supply - floor.sum(0),
        A_eq=rows,
        b_eq=sizes - floor.sum(1),
        bounds=[(0, 1 if share > 0 else 0) for share in shares.ravel()],
        method="highs-ds",
    )
    if up.x is None:
        raise ConfigError(
            f"partition.cluster_sizes={sizes.tolist()} is not allowed: they cannot be met exactly"
        )
    rounded: Counts = floor + np.rint(up.x).astype(np.int64).reshape(shares.shape)
    return rounded

"""Whether clusters recover, merge or split the true groups, seed by seed and in plain words."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedclust.helpers.errors import counted
from fedclust.metrics.contingency import contingency
from fedclust.report.arms import Arm

_MOST_LISTED = 5  # seeds whose values are given one by one


def words(arm: Arm) -> str:
    """One sentence, such as "ifca merges true groups in 2 of 3 seeds (purity …)"; may be empty."""
    counts = verdicts(arm)
    if not counts:
        return ""
    purity = _listed(arm.last("purity"))
    if set(counts) <= {ONE, OWN, ALONE}:
        return f"{arm.label}: {' / '.join(counts)} (purity {purity})"
    total = counted(counts.total(), "seed")
    where = ", ".join(f"{what} in {count} of {total}" for what, count in counts.most_common())
    return f"{arm.label} {where} (purity {purity})"


def verdicts(arm: Arm) -> Counter[str]:
    """What the clusters do to the groups, and in how many seeds; empty where `words` is."""
    clients = arm.run.final_clients
    if not len(clients):
        return Counter()
    clients = clients[(clients["group"] >= 0) & (clients["label"] >= 0)]
    return Counter(_verdict(rows) for _, rows in clients.groupby("seed"))


def _listed(values: NDArray[np.float64]) -> str:
    """The value of every seed; of many seeds the mean and the range."""
    if len(values) <= _MOST_LISTED:
        return ", ".join(map(_shown, values.tolist()))
    low, high = _shown(float(values.min())), _shown(float(values.max()))
    if low == high:
        return f"{low} in every seed"
    return f"mean {_shown(float(values.mean()))}, {low} to {high}"


def _shown(value: float) -> str:
    """Two digits; three where they would make 1 of less."""
    text = f"{value:.2f}"
    return f"{math.floor(1000 * value) / 1000:.3f}" if value < 1 and text == "1.00" else text


ONE = "all clients are in one cluster, so no groups are distinguished"
OWN = "every client has its own model, so purity says nothing"
ALONE = "there is one group only"
EXACT = "recovers the true groups exactly"
SPLITS = "splits true groups"
MERGES = "merges true groups"
MISPLACES = "misplaces some clients"


def _verdict(rows: pd.DataFrame) -> str:
    """Whether the clusters of one seed recover, merge or split the true groups."""
    label, group = (rows[name].to_numpy(dtype=np.int64) for name in ("label", "group"))
    table = contingency(label, group)
    clusters, groups = table.shape
    home = table.argmax(axis=0)  # [groups] the cluster that holds most of each group
    if groups == 1:
        return ALONE
    if clusters == 1:
        return ONE
    if clusters == len(rows):
        return OWN
    if len(set(home)) < groups:
        return MERGES
    if (table > 0).sum() == groups == clusters:
        return EXACT
    if (table > 0).sum(axis=1).max() == 1:
        return SPLITS
    return MISPLACES

"""How well the clusters recover the true groups.

Purity as in Lin et al. (arXiv 2311.13665); adjusted Rand index (Hubert and Arabie, 1985),
normalised mutual information and Hungarian-matched accuracy as usual.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedclust.metrics.contingency import contingency
from fedclust.types import Evaluation, Round


def recovery(evaluation: Evaluation, rnd: Round) -> dict[str, float]:
    """Purity, ARI, NMI and matched accuracy of the labels against the groups.

    Only clients with a group and a label count; without any such client all four are absent. A
    method that gives every client its own model is treated like any other: its purity is 1, its ARI
    0.
    """
    label = evaluation.served.label.cpu().numpy()
    group = rnd.fed.group.cpu().numpy()
    known = (label >= 0) & (group >= 0)
    if not known.any():
        return {}
    return dict(_scores(label[known].tobytes(), group[known].tobytes()))


@lru_cache(maxsize=256)
def _scores(labels: bytes, groups: bytes) -> dict[str, float]:
    """The scores of int64 labels; kept, since most rounds leave the clusters of most seeds as they
    were.
    """
    from scipy.optimize import linear_sum_assignment

    # a second to import, which a start that finds everything done does not need
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    label, group = np.frombuffer(labels, dtype=np.int64), np.frombuffer(groups, dtype=np.int64)
    table = contingency(label, group)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return {
        "purity": float(table.max(axis=1).sum()) / len(label),  # (1/N) sum_c max_j |G_j ∩ C_c|
        "ari": float(adjusted_rand_score(group, label)),
        "nmi": float(normalized_mutual_info_score(group, label)),
        "matched_accuracy": float(table[rows, columns].sum()) / len(label),
    }


def sizes(evaluation: Evaluation, rnd: Round) -> dict[str, float]:  # noqa: ARG001 - a Metric
    """Clusters in use and not, and the sizes of the largest and smallest one in use, in clients.

    Absent where no client has a label.
    """
    label = evaluation.served.label.cpu().numpy()
    count = np.unique(label[label >= 0], return_counts=True)[1]
    if not len(count):
        return {}
    return {
        "num_clusters": float(len(count)),
        "empty": float(len(evaluation.served.models) - len(count)),
        "largest_cluster": float(count.max()),
        "smallest_cluster": float(count.min()),
    }

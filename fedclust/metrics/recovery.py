"""How well the clusters recover the true groups.

Purity as in Lin et al. (arXiv 2311.13665); adjusted Rand index (Hubert and Arabie, 1985),
normalised mutual information and Hungarian-matched accuracy as usual.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedclust.core.federation import concept_shares
from fedclust.core.types import Evaluation, Round
from fedclust.metrics.contingency import contingency

OF_GROUPS = ("purity", "ari", "nmi", "matched_accuracy")  # absent without true groups


def recovery(evaluation: Evaluation, rnd: Round) -> dict[str, float]:
    """Purity, ARI, NMI and matched accuracy of the labels against the groups.

    Only honest clients with a group and a label count; without any such client all four are absent.
    A method that gives every client its own model is treated like any other: its purity is 1, its
    ARI 0.
    """
    label = evaluation.served.label.cpu().numpy()
    group = rnd.fed.group.cpu().numpy()
    known = (label >= 0) & (group >= 0)
    if rnd.fed.hostile is not None:
        known &= ~rnd.fed.hostile.cpu().numpy()
    if not known.any():
        return {}
    return dict(_scores(label[known].tobytes(), group[known].tobytes()))


@lru_cache(maxsize=256)
def _scores(labels: bytes, groups: bytes) -> dict[str, float]:
    """The scores of int64 labels; kept, since most rounds leave most seeds' clusters alone."""
    label, group = np.frombuffer(labels, dtype=np.int64), np.frombuffer(groups, dtype=np.int64)
    table = contingency(label, group)
    return {
        "purity": float(table.max(axis=1).sum()) / len(label),  # (1/N) sum_c max_j |G_j ∩ C_c|
        "ari": adjusted_rand_index(table),
        "nmi": normalised_mutual_information(table),
        "matched_accuracy": _matched(table) / len(label),
    }


def adjusted_rand_index(table: NDArray[np.int64]) -> float:
    """Pairs of clients on which clusters and groups agree, corrected for chance, in [-0.5, 1].

    (sum_ij C(n_ij, 2) - E) / (mean of a and b - E) with a = sum_i C(n_i., 2), b = sum_j C(n_.j, 2)
    and E = ab / C(n, 2); 1 where both put all clients together, or both put none together.
    `table` [clusters, groups] holds numbers of clients.
    """
    pairs, total = _pairs(table), _pairs(table.sum())
    a, b = _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    if a == b == pairs:  # the same partition
        return 1.0
    # times C(n, 2), so that all is whole until the one division
    return 2 * (total * pairs - a * b) / (total * (a + b) - 2 * a * b)


def _pairs(count: NDArray[np.int64]) -> int:
    """Sum of n (n - 1) / 2."""
    return int((count * (count - 1) // 2).sum())


def normalised_mutual_information(table: NDArray[np.int64]) -> float:
    """I(cluster; group) over the mean of both entropies, in [0, 1]; 1 where both are 0. `table`
    [clusters, groups] holds numbers of clients.
    """
    total, clusters, groups = table.sum(), table.sum(axis=1), table.sum(axis=0)
    mean = (_entropy(clusters / total) + _entropy(groups / total)) / 2
    if mean == 0:
        return 1.0
    i, j = table.nonzero()
    # independent clusters and groups have a ratio of exactly 1 everywhere, and give 0
    ratio = total * table[i, j] / (clusters[i] * groups[j])
    return min(float((table[i, j] * np.log(ratio)).sum() / total) / mean, 1.0)


def _entropy(share: NDArray[np.float64]) -> float:
    """Entropy of a distribution without zeros, in nats."""
    return -float((share * np.log(share)).sum())


def _matched(table: NDArray[np.int64]) -> float:
    """Most clients on the diagonal, over all ways to match clusters with groups one to one."""
    if len(set(table.argmax(axis=1).tolist())) == len(table):  # every cluster gets its best group
        return float(table.max(axis=1).sum())
    from scipy.optimize import linear_sum_assignment  # half a second to import

    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum())


def churn(before: Tensor, label: Tensor) -> float:
    """The share of clients that moved between two clusterings [C] int64, whatever their numbers:
    those that are wrong under the best one-to-one match of clusters before and after.
    """
    table = contingency(label.cpu().numpy(), before.cpu().numpy())
    return 1 - _matched(table) / len(label)


def apart(evaluation: Evaluation, rnd: Round) -> dict[str, float]:
    """Share of hostile clients in clusters without honest ones; absent without hostile clients."""
    if rnd.fed.hostile is None:
        return {}
    label, hostile = evaluation.served.label.cpu(), rnd.fed.hostile.cpu()
    labels = label[hostile & (label >= 0)]
    if not len(labels):
        return {}
    alone = ~torch.isin(labels, label[~hostile])
    return {"attackers_apart": float(alone.double().mean())}


def share_error(evaluation: Evaluation, rnd: Round) -> dict[str, float]:
    """How far the shares of a mixture's models are from the true shares of concepts.

    mean_i sum_k |w_ik - pi_ig(k)| under the best one-to-one match g of models and concepts, where a
    model or concept without a partner counts with its whole share. Absent where no mixture is
    served, or the pool has one concept.
    """
    weight, concepts = evaluation.served.weight, rnd.fed.pool.concepts
    if weight is None or concepts < 2:
        return {}
    served = evaluation.served.label.cpu() >= 0
    if not bool(served.any()):
        return {}
    from scipy.optimize import linear_sum_assignment  # half a second to import

    given = weight.cpu().double()[served].numpy()
    true = concept_shares(rnd.fed).cpu()[served].numpy()
    most = max(given.shape[1], true.shape[1])
    given, true = (np.pad(part, ((0, 0), (0, most - part.shape[1]))) for part in (given, true))
    differ = np.abs(given[:, :, None] - true[:, None, :]).mean(0)  # [models, concepts]
    return {"share_error": float(differ[linear_sum_assignment(differ)].sum())}


def sizes(evaluation: Evaluation, rnd: Round) -> dict[str, float]:  # noqa: ARG001 - a Metric
    """Clusters in use and not, and the sizes of the largest and smallest one in use, in clients;
    absent where no client has a label.
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

"""DBSCAN: clusters are regions where clients lie densely; finds their number itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from sklearn.cluster import DBSCAN
from torch import Tensor

from fedclust.cluster_methods import Floats, Labels, as_labels, as_matrix, noise_as_cluster
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Positive, Ranged
from fedclust.helpers.rng import Stream

_LEAST = 1e-12  # DBSCAN refuses an eps of 0, which identical clients would give


@dataclass(frozen=True, kw_only=True)
class Dbscan(Ranged):
    """DBSCAN (Ester, Kriegel, Sander, Xu, KDD 1996) on given distances; uses no randomness.

    Clients that belong nowhere form one more cluster together, or with `knee` one each.
    """

    # k, used only where eps is None; "auto" needs an eps
    num_clusters: Annotated[AtLeastOne | str, OnlyWith("eps", None)]
    # largest distance of neighbours; None takes the 100 / (k - 1) percentile of all entries of the
    # distance matrix, as the LCFL code does. With k clusters of one size that percentile lies above
    # the share 1 / k of pairs inside clusters, so it tends to merge the nearest of them. `knee`, as
    # in the code of FLUX (arXiv:2511.22305): where the sorted distances to the nearest neighbour
    # turn upwards, see `knee`; that code multiplies it by `eps_scaling`, which is 1 in its config.
    # The knee is one of the distances, so who lies at exactly eps hangs on their last bit: computed
    # in another way, they can part others.
    eps: Positive | Literal["knee"] | None = None
    # neighbours, itself included, that make a client a core of a cluster
    min_samples: AtLeastOne = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        k, allowed = self.num_clusters, "at least 2 with cluster_method=dbscan"
        fits = self.eps is not None or (isinstance(k, int) and k >= 2)
        require(fits, "num_clusters", k, f"{allowed}, or give cluster_method.eps")

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        matrix = as_matrix(distance)
        model = DBSCAN(eps=self._radius(matrix), min_samples=self.min_samples, metric="precomputed")
        found = model.fit_predict(matrix)
        apart = noise_apart(found) if self.eps == "knee" else noise_as_cluster(found)
        return as_labels(apart, distance)

    def _radius(self, matrix: Floats) -> float:
        """The largest distance of neighbours, from `eps` and the distances [C, C]."""
        if self.eps is None:
            assert isinstance(self.num_clusters, int)
            return max(float(np.percentile(matrix, 100 / (self.num_clusters - 1))), _LEAST)
        return knee(matrix) if self.eps == "knee" else self.eps


def knee(matrix: Floats) -> float:
    """The first confirmed knee of the sorted distances [C, C] to the nearest neighbour, a convex
    curve that increases.

    Where the curve has no knee nobody stands out: the largest of these distances, 0 for one client.
    """
    nearest = np.sort(np.where(np.eye(len(matrix), dtype=bool), np.inf, matrix).min(1))
    if len(nearest) < 2:
        return _LEAST
    where = kneedle(nearest) if nearest[0] < nearest[-1] else None  # a flat curve has no scale
    return max(float(nearest[-1 if where is None else where]), _LEAST)


def kneedle(values: Floats) -> int | None:
    """The place of the first knee of a convex curve that increases, seen from its high end.

    Kneedle (Satopää, Albrecht, Irwin, Raghavan, ICDCS Workshops 2011) with sensitivity 1 and
    without smoothing, as FLUX's code calls it. Both axes are scaled to [0, 1] and turned around, so
    that the curve is concave. A knee is a local maximum of the curve minus the diagonal after which
    that difference falls by more than the mean distance of two points, before it rises again.

    Args:
        values: [n] sorted, the first less than the last.
    """
    # in steps as the library `kneed` rounds them: where two neighbours are equal, the difference
    # falls by just that distance, and the last bit decides
    along = (1 - np.arange(len(values)) / (len(values) - 1))[::-1]
    up = (1 - (values - values[0]) / (values[-1] - values[0]))[::-1]
    above, least_fall = up - along, np.diff(along).mean()
    before, after = np.pad(above, 1, mode="edge")[:-2], np.pad(above, 1, mode="edge")[2:]
    is_top = (above >= before) & (above >= after)
    top = None
    for i in range(len(values) - 1):
        if is_top[i]:
            top = i
        if top is not None and above[i + 1] < above[top] - least_fall:
            return len(values) - 1 - top
    return None


def noise_apart(found: Labels) -> Labels:
    """Labels [C] in which every noise point, -1, is a cluster of its own."""
    return np.where(found < 0, found.max() + 1 + np.arange(len(found)), found)

"""DBSCAN: clusters are regions where clients lie densely; finds their number itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import DBSCAN
from torch import Tensor

from fedclust.cluster_methods import as_labels, as_matrix, noise_as_cluster
from fedclust.errors import require
from fedclust.ranges import AtLeastOne, Positive
from fedclust.rng import Stream


@dataclass(frozen=True, kw_only=True)
class Dbscan:
    """DBSCAN (Ester, Kriegel, Sander, Xu, KDD 1996) on given distances; uses no randomness.

    Clients that belong nowhere form one more cluster together.

    Attributes:
        num_clusters: k, used only where eps is None; "auto" needs an eps.
        eps: largest distance of neighbours; None takes the 100 / (k - 1) percentile of all entries
            of the distance matrix, as the LCFL code does. With k clusters of one size that
            percentile lies above the share 1 / k of pairs inside clusters, so it tends to merge the
            nearest of them.
        min_samples: neighbours, itself included, that make a client a core of a cluster.
    """

    num_clusters: AtLeastOne | str
    eps: Positive | None = None
    min_samples: AtLeastOne = 5

    def __post_init__(self) -> None:
        require(
            self.eps is None or self.eps > 0, "cluster_method.eps", self.eps, "above 0, or null"
        )
        require(self.min_samples >= 1, "cluster_method.min_samples", self.min_samples, "at least 1")
        require(
            self.eps is not None or (isinstance(self.num_clusters, int) and self.num_clusters >= 2),
            "num_clusters",
            self.num_clusters,
            "at least 2 with cluster_method=dbscan, or give cluster_method.eps",
        )

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:  # noqa: ARG002
        """See `fedclust.verbs.ClusterMethod`."""
        matrix = as_matrix(distance)
        eps = self.eps
        if eps is None:
            assert isinstance(self.num_clusters, int)
            # DBSCAN refuses an eps of 0, which many identical clients would give
            eps = max(float(np.percentile(matrix, 100 / (self.num_clusters - 1))), 1e-12)
        model = DBSCAN(eps=eps, min_samples=self.min_samples, metric="precomputed")
        return as_labels(noise_as_cluster(model.fit_predict(matrix)), distance)

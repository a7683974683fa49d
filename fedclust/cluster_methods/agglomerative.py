"""Agglomerative clustering: the two closest clusters are merged until k are left, or all are far
apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor

from fedclust.cluster_methods import Count, as_labels, as_matrix, check_count, cluster
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastTwo, Positive, Silhouette
from fedclust.helpers.rng import Stream

Linkage = Literal["average", "complete", "single"]


@dataclass(frozen=True, kw_only=True)
class Agglomerative:
    """Agglomerative clustering on given distances; uses no randomness.

    Attributes:
        num_clusters: k, or "auto".
        linkage: distance of two clusters: the `average`, largest (`complete`) or least (`single`)
            distance of their members.
        threshold: no clusters at this distance or a larger one are merged, however many are left
            then; null merges until num_clusters are left.
        max_clusters, min_silhouette: of auto, see `fedclust.cluster_methods.cluster`.
    """

    num_clusters: Annotated[Count, OnlyWith("threshold", None)]
    linkage: Linkage = "average"
    threshold: Positive | None = None
    max_clusters: Annotated[AtLeastTwo, OnlyWith("num_clusters", "auto")] = 10
    min_silhouette: Annotated[Silhouette, OnlyWith("num_clusters", "auto")] = 0.25

    def __post_init__(self) -> None:
        check_count(self.num_clusters, self.max_clusters, self.min_silhouette)
        above = "a distance above 0, or null to use num_clusters"
        require(
            self.threshold is None or self.threshold > 0,
            "cluster_method.threshold",
            self.threshold,
            above,
        )

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:  # noqa: ARG002
        """See `fedclust.verbs.ClusterMethod`."""
        matrix = as_matrix(distance)

        def split(k: int) -> Any:
            model = AgglomerativeClustering(
                n_clusters=k, metric="precomputed", linkage=self.linkage
            )
            return model.fit_predict(matrix)

        if self.threshold is not None:
            if len(matrix) < 2:
                return as_labels(np.zeros(len(matrix), np.int64), distance)
            model = AgglomerativeClustering(
                None, metric="precomputed", linkage=self.linkage, distance_threshold=self.threshold
            )
            return as_labels(model.fit_predict(matrix), distance)
        found = cluster(matrix, self.num_clusters, self.max_clusters, self.min_silhouette, split)
        return as_labels(found, distance)

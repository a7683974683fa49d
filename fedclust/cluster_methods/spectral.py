"""Spectral clustering: k-means on the leading eigenvectors of the clients' affinities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from sklearn.cluster import SpectralClustering
from torch import Tensor

from fedclust.cluster_methods import (
    Count,
    Floats,
    as_labels,
    as_matrix,
    check_count,
    cluster,
    random_state,
)
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.ranges import AtLeastTwo, Silhouette
from fedclust.helpers.rng import Stream


@dataclass(frozen=True, kw_only=True)
class Spectral:
    """Spectral clustering (Ng, Jordan, Weiss, NIPS 2001) with affinity exp(-D^2 / (2 sigma^2)).

    sigma is the median of the positive distances.

    Attributes:
        num_clusters: k, or "auto".
        max_clusters, min_silhouette: of auto, see `fedclust.cluster_methods.cluster`.
    """

    num_clusters: Count
    max_clusters: Annotated[AtLeastTwo, OnlyWith("num_clusters", "auto")] = 10
    min_silhouette: Annotated[Silhouette, OnlyWith("num_clusters", "auto")] = 0.25

    def __post_init__(self) -> None:
        check_count(self.num_clusters, self.max_clusters, self.min_silhouette)

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        """See `fedclust.verbs.ClusterMethod`."""
        matrix = as_matrix(distance)
        affinity = _affinity(matrix)

        def split(k: int) -> Any:
            model = SpectralClustering(k, affinity="precomputed", random_state=random_state(stream))
            return model.fit_predict(affinity)

        found = cluster(matrix, self.num_clusters, self.max_clusters, self.min_silhouette, split)
        return as_labels(found, distance)


def _affinity(distance: Floats) -> Floats:
    """Affinities in [0, 1], [C, C]; 1 everywhere if all distances are 0."""
    positive = distance[distance > 0]
    sigma = np.median(positive) if len(positive) else 1.0
    affinity: Floats = np.exp(-np.square(distance) / (2 * sigma**2))
    return affinity

"""Agglomerative clustering: the two closest clusters are merged until k are left, or all are far
apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor

from fedclust.cluster_methods import Count, CountOrAuto, Floats, Labels, as_labels, as_matrix
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.ranges import Positive
from fedclust.helpers.rng import Stream

Linkage = Literal["average", "complete", "single"]


@dataclass(frozen=True, kw_only=True)
class Agglomerative(CountOrAuto):
    """Agglomerative clustering on given distances; uses no randomness.

    Attributes:
        linkage: distance of two clusters: the `average`, largest (`complete`) or least (`single`)
            distance of their members.
        num_clusters: k, or "auto"; without effect beside a threshold.
        threshold: no clusters at this distance or a larger one are merged, however many are left
            then; null merges until num_clusters are left.
    """

    num_clusters: Annotated[Count, OnlyWith("threshold", None)]
    linkage: Linkage = "average"
    threshold: Positive | None = None

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        matrix = as_matrix(distance)

        def labels(matrix: Floats, k: int | None, most: float | None = None) -> Labels:
            how: dict[str, Any] = {"metric": "precomputed", "linkage": self.linkage}
            model = AgglomerativeClustering(k, distance_threshold=most, **how)
            found: Labels = model.fit_predict(matrix)
            return found

        if self.threshold is None:
            found = self.labels(matrix, lambda some: partial(labels, some), stream)
        elif len(matrix) < 2:
            found = np.zeros(len(matrix), np.int64)
        else:
            found = labels(matrix, None, self.threshold)
        return as_labels(found, distance)

"""Agglomerative clustering: the closest clusters merge until k are left, or all are far apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor

from fedclust.cluster_methods import Count, CountOrAuto, Floats, Labels, Split, as_labels, as_matrix
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.ranges import Positive
from fedclust.helpers.rng import Stream

Linkage = Literal["average", "complete", "single"]


@dataclass(frozen=True, kw_only=True)
class Agglomerative(CountOrAuto):
    """Agglomerative clustering on given distances; uses no randomness."""

    # k, or "auto"; without effect beside a threshold
    num_clusters: Annotated[Count, OnlyWith("threshold", None)]
    # distance of two clusters: the `average`, largest (`complete`) or least (`single`) distance of
    # their members
    linkage: Linkage = "average"
    # no clusters at this distance or a larger one are merged, however many are left then; null
    # merges until num_clusters are left
    threshold: Positive | None = None

    def split(self, distance: Floats, stream: Stream) -> Split:
        return partial(self._merged, distance)

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        if self.threshold is None:
            return super().__call__(distance, stream)
        if len(distance) < 2:
            return torch.zeros(len(distance), dtype=torch.int64, device=distance.device)
        return as_labels(self._merged(as_matrix(distance), None), distance)

    def _merged(self, distance: Floats, k: int | None) -> Labels:
        """Labels of k clusters; None for as many as are `threshold` apart."""
        most = self.threshold if k is None else None
        model = AgglomerativeClustering(
            k, metric="precomputed", linkage=self.linkage, distance_threshold=most
        )
        labels: Labels = model.fit_predict(distance)
        return labels

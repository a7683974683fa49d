"""Spectral clustering: k-means on the leading eigenvectors of the clients' affinities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import SpectralClustering

from fedclust.cluster_methods import CountOrAuto, Floats, Split, random_state
from fedclust.helpers.rng import Stream


@dataclass(frozen=True, kw_only=True)
class Spectral(CountOrAuto):
    """Spectral clustering (Ng, Jordan, Weiss, NIPS 2001) with affinity exp(-D^2 / (2 sigma^2)).

    sigma is the median of the positive distances.
    """

    def split(self, distance: Floats, stream: Stream) -> Split:
        affinity, seed = _affinity(distance), random_state(stream)
        return lambda k: SpectralClustering(
            k, affinity="precomputed", random_state=seed
        ).fit_predict(affinity)


def _affinity(distance: Floats) -> Floats:
    """Affinities in [0, 1], [C, C]; 1 everywhere if all distances are 0."""
    positive = distance[distance > 0]
    sigma = np.median(positive) if len(positive) else 1.0
    affinity: Floats = np.exp(-np.square(distance) / (2 * sigma**2))
    return affinity

"""k-means: clusters around their means, on the points that the distances describe."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from fedclust.cluster_methods import (
    CountOrAuto,
    Floats,
    as_labels,
    as_matrix,
    random_state,
)
from fedclust.helpers.ranges import AtLeastOne, Starts
from fedclust.helpers.rng import Stream

_NEGLIGIBLE = 1e-6  # of the largest variance; float32 distances know nothing below it


@dataclass(frozen=True, kw_only=True)
class KMeans(CountOrAuto):
    """k-means++ (Arthur, Vassilvitskii, SODA 2007) and Lloyd's iterations, the best of several
    starts.

    k-means is the same in all coordinates with the same distances, so it needs distances only: see
    `coordinates`. Exact for Euclidean distances, such as those of `edc` and `param_norm`.

    Attributes:
        starts: random starts.
        max_iter: at most so many iterations of one start.
        The others are those of `CountOrAuto`.
    """

    starts: Starts = 10
    max_iter: AtLeastOne = 300

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        """Labels [C] from distances [C, C]."""
        matrix = as_matrix(distance)
        points = coordinates(matrix)

        def split(k: int) -> Any:
            model = SklearnKMeans(
                k, n_init=self.starts, max_iter=self.max_iter, random_state=random_state(stream)
            )
            with warnings.catch_warnings():
                # fewer different points than clusters; the labels in use are renumbered anyway
                warnings.simplefilter("ignore", ConvergenceWarning)
                return model.fit_predict(points)

        return as_labels(self.labels(matrix, split), distance)


def coordinates(distance: Floats) -> Floats:
    """Points [C, F] with these distances: classical scaling (Torgerson, Psychometrika 1952).

    Distances that no points have, because the triangle inequality or more fails, are approximated:
    what would need imaginary coordinates is left out.
    """
    square = np.square(distance)
    mean = square.mean(0)
    inner = (
        mean + mean[:, None] - square - mean.mean()
    ) / 2  # products of the points about their mean
    variance, axis = np.linalg.eigh(inner)
    kept = variance > _NEGLIGIBLE * variance[-1]
    if variance[-1] <= 0:
        return np.zeros((len(distance), 1))
    points: Floats = axis[:, kept] * np.sqrt(variance[kept])
    return points

"""k-means: clusters around their means, on the points that the distances describe."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.exceptions import ConvergenceWarning

from fedclust.cluster_methods import CountOrAuto, Floats, Split, random_state
from fedclust.cluster_methods.choosing import coordinates
from fedclust.helpers.ranges import AtLeastOne, Starts
from fedclust.helpers.rng import Stream


@dataclass(frozen=True, kw_only=True)
class KMeans(CountOrAuto):
    """k-means++ (Arthur, Vassilvitskii, SODA 2007) and Lloyd's iterations, the best of several
    starts.

    k-means is the same in all coordinates with the same distances, so it needs distances only: see
    `coordinates`. Exact for Euclidean distances, such as those of `edc` and `param_norm`.
    """

    starts: Starts = 10  # random starts
    max_iter: AtLeastOne = 300  # at most so many iterations of one start

    def split(self, distance: Floats, stream: Stream) -> Split:
        points = coordinates(distance)

        def labels(k: int) -> Any:
            model = SklearnKMeans(
                k, n_init=self.starts, max_iter=self.max_iter, random_state=random_state(stream)
            )
            with warnings.catch_warnings():
                # fewer different points than clusters; the labels in use are renumbered anyway
                warnings.simplefilter("ignore", ConvergenceWarning)
                return model.fit_predict(points)

        return labels

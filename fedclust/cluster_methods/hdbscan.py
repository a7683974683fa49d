"""HDBSCAN: DBSCAN over all radii at once, keeping the most stable clusters, however many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sklearn.cluster import HDBSCAN
from torch import Tensor

from fedclust.cluster_methods import as_labels, as_matrix, noise_as_cluster
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, AtLeastTwo, Ranged
from fedclust.helpers.rng import Stream


@dataclass(frozen=True, kw_only=True)
class Hdbscan(Ranged):
    """HDBSCAN (Campello, Moulavi, Sander, PAKDD 2013) on given distances; uses no randomness.

    Clients that belong nowhere form one more cluster together.
    """

    min_cluster_size: AtLeastTwo = 5  # clients of the smallest cluster
    # neighbours that make a client a core; None takes min_cluster_size
    min_samples: AtLeastOne | None = None

    num_clusters: ClassVar[None] = None

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        """Raises `ConfigError` if there are fewer clients than `min_samples`."""
        matrix = as_matrix(distance)
        name = "min_cluster_size" if self.min_samples is None else "min_samples"
        samples = self.min_samples or self.min_cluster_size
        allowed = f"at most the {len(matrix)} clients to cluster"
        require(samples <= len(matrix), f"cluster_method.{name}", samples, allowed)
        model = HDBSCAN(
            min_cluster_size=self.min_cluster_size,
            min_samples=self.min_samples,
            metric="precomputed",
            copy=True,
        )
        return as_labels(noise_as_cluster(model.fit_predict(matrix)), distance)

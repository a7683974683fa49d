"""OPTICS: clusters are valleys of the reachability plot; finds their number itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sklearn.cluster import OPTICS
from torch import Tensor

from fedclust.cluster_methods import as_labels, as_matrix, noise_as_cluster
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastTwo, InnerFraction, Ranged
from fedclust.helpers.rng import Stream


@dataclass(frozen=True, kw_only=True)
class Optics(Ranged):
    """OPTICS (Ankerst, Breunig, Kriegel, Sander, SIGMOD 1999) on given distances; uses no
    randomness.

    Clients that belong nowhere form one more cluster together.
    """

    # neighbours, itself included, that make a client a core; also the smallest cluster
    min_samples: AtLeastTwo = 5
    xi: InnerFraction = 0.05  # least relative steepness of a valley's sides

    num_clusters: ClassVar[None] = None

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        """Raises `ConfigError` if there are fewer clients than `min_samples`."""
        matrix = as_matrix(distance)
        least, allowed = self.min_samples, f"at most the {len(matrix)} clients to cluster"
        require(least <= len(matrix), "cluster_method.min_samples", least, allowed)
        model = OPTICS(min_samples=self.min_samples, xi=self.xi, metric="precomputed")
        return as_labels(noise_as_cluster(model.fit_predict(matrix)), distance)

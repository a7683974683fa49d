"""Distances to labels, one file each; here what every method does before and after.

Labels are consecutive from 0 in the order of each cluster's first client. Same distances and
stream, same labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedclust.cluster_methods.choosing import Floats as Floats
from fedclust.cluster_methods.choosing import Split as Split
from fedclust.cluster_methods.choosing import eigengap, gap, stability
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import DivergedError, require
from fedclust.helpers.ranges import AtLeastOne, AtLeastTwo, Ranged, Silhouette
from fedclust.helpers.rng import Stream

Labels = NDArray[np.int64]
Count = AtLeastOne | Literal["auto"]
Rule = Literal["silhouette", "gap", "eigengap", "stability"]


def as_matrix(distance: Tensor) -> Floats:
    """The distances [C, C] float64 on the CPU, a copy made exactly symmetric with a zero diagonal.
    Raises `DivergedError` if one is not finite.
    """
    assert distance.shape == (len(distance), len(distance)), tuple(distance.shape)
    if not bool(torch.isfinite(distance).all()):
        raise DivergedError(
            "a distance between clients is not finite; a smaller solver.lr may help"
        )
    both = distance.detach().double().cpu()
    # products on a device can differ in the last bit across the diagonal, and some methods insist
    matrix: Floats = (both + both.T).div_(2).fill_diagonal_(0).numpy()
    return matrix


def as_labels(found: NDArray[Any], distance: Tensor) -> Tensor:
    """Labels [C] int64 on the device of `distance`, in the order of their first clients."""
    _, first, member = np.unique(found, return_index=True, return_inverse=True)
    rank = first.argsort().argsort()
    return torch.from_numpy(rank[member.reshape(-1)]).to(distance.device, torch.int64)


def noise_as_cluster(found: NDArray[Any]) -> NDArray[Any]:
    """Labels of a density method with its noise, -1, as one more cluster."""
    return np.where(found < 0, found.max() + 1, found)


def random_state(stream: Stream) -> int:
    """A seed below 2^31, as scikit-learn takes them."""
    return int(stream.key >> 33)


@dataclass(frozen=True, kw_only=True)
class CountOrAuto(Ranged, ABC):
    """A method that is given the number of clusters, or finds it.

    Attributes:
        num_clusters: k, or "auto".
        auto_by: how auto finds it: by the best mean `silhouette` (Rousseeuw 1987), or by a rule of
            `fedclust.cluster_methods.choosing`.
        max_clusters: largest number that auto tries.
        min_silhouette: all clients form one cluster if auto finds no better mean silhouette.
    """

    num_clusters: Count
    auto_by: Annotated[Rule, OnlyWith("num_clusters", "auto")] = "silhouette"
    max_clusters: Annotated[AtLeastTwo, OnlyWith("num_clusters", "auto")] = 10
    min_silhouette: Annotated[Silhouette, OnlyWith("auto_by", "silhouette")] = 0.25

    @abstractmethod
    def split(self, distance: Floats, stream: Stream, /) -> Split:
        """What gives labels [A] for a number of clusters from 2 to A - 1, from distances [A, A]."""

    def __call__(self, distance: Tensor, stream: Stream) -> Tensor:
        """Clients at distance 0 stay together: where fewer differ than clusters are asked for,
        there are only so many clusters.

        Raises:
            ConfigError: if there are more clusters than clients.
        """
        return as_labels(self._labels(as_matrix(distance), stream), distance)

    def _labels(self, distance: Floats, stream: Stream) -> NDArray[Any]:
        def splitter(distance: Floats) -> Split:
            return self.split(distance, stream)

        size, k = len(distance), self.num_clusters
        most = min(self.max_clusters, size - 1)
        if k == "auto" and self.auto_by != "silhouette":
            k = 1
            if most >= 2 and self.auto_by == "eigengap":
                k = eigengap(distance, most)
            elif most >= 2:
                k = {"gap": gap, "stability": stability}[self.auto_by](
                    distance, most, splitter, stream
                )
        if k != "auto":
            require(k <= size, "num_clusters", k, f"at most the {size} clients to cluster")
            if k == 1:
                return np.zeros(size, np.int64)
            first = (distance == 0).argmax(1)  # of a client and its copies
            few = k == size or len(np.unique(first)) < k
            return first if few else splitter(distance)(k)
        from sklearn.metrics import silhouette_score  # a second, for those who need it

        best, quality = np.zeros(size, np.int64), self.min_silhouette
        split = splitter(distance)
        for k in range(2, most + 1):
            found = split(k)
            if not 2 <= len(np.unique(found)) < size:
                continue  # identical clients can leave a method with fewer clusters than asked for
            silhouette = float(silhouette_score(distance, found, metric="precomputed"))
            if silhouette > quality:
                best, quality = found, silhouette
        return best

"""k-medoids: clusters around clients, with the least sum of distances to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedclust.cluster_methods import CountOrAuto, Floats, Labels, Split, random_state
from fedclust.cluster_methods.fasterpam import build, fasterpam
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.ranges import AtLeastOne, Starts
from fedclust.helpers.rng import Stream

Variant = Literal["fasterpam", "alternate"]


@dataclass(frozen=True, kw_only=True)
class KMedoids(CountOrAuto):
    """k-medoids on given distances."""

    # `fasterpam` (Schubert, Rousseeuw, Information Systems 2021), the best of several starts; or
    # `alternate` (Park, Jun, Expert Systems with Applications 2009) as in scikit-learn-extra, which
    # the LCFL code uses: started from the k most central clients, it can merge true clusters
    variant: Variant = "fasterpam"
    # of fasterpam: the greedy one (PAM's BUILD) and random ones
    starts: Annotated[Starts, OnlyWith("variant", "fasterpam")] = 10
    max_iter: AtLeastOne = 300  # at most so many passes of one start

    def split(self, distance: Floats, stream: Stream) -> Split:
        if self.variant == "alternate":
            return lambda k: alternate(distance, k, self.max_iter)
        return lambda k: self._fasterpam(distance, k, stream)

    def _fasterpam(self, distance: Floats, k: int, stream: Stream) -> Labels:
        """Labels of the start with the least sum of distances, the first of equals."""

        def run(start: int) -> tuple[Labels, float]:
            draw = np.random.default_rng(random_state(stream.fold(start)))
            order, size = draw.permutation(len(distance)), len(distance)
            medoids = draw.choice(size, k, replace=False) if start else build(distance, k)
            return fasterpam(distance, medoids, order, self.max_iter)

        return min(map(run, range(self.starts)), key=lambda found: found[1])[0]


def alternate(distance: Floats, k: int, max_iter: int) -> Labels:
    """Labels [C] of alternating k-medoids, without randomness.

    Starts from the k clients with the least sums of distances, the first of equals; then, until no
    medoid changes: everybody to the nearest medoid, and every medoid replaced by the member of its
    cluster with the least sum of distances inside the cluster if that is strictly less. An empty
    cluster keeps its medoid.
    """
    medoids = distance.sum(1).argsort(kind="stable")[:k]
    for _ in range(max_iter):
        label = distance[medoids].argmin(0)
        before = medoids.copy()
        for c in range(k):
            members = np.flatnonzero(label == c)
            if not len(members):
                continue
            cost = distance[np.ix_(members, members)].sum(1)
            if cost.min() < distance[medoids[c], members].sum():
                medoids[c] = members[cost.argmin()]
        if (medoids == before).all():
            break
    nearest: Labels = distance[medoids].argmin(0)
    return nearest

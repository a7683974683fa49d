"""How many clusters there are: rules that `num_clusters=auto` can follow.

Each is given the distances [C, C] and what clusters them, and returns a number of clusters from 1
to the largest that is tried. What they find where the number is known: docs/finding-k.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.rng import Stream

Floats = NDArray[np.float64]
Split = Callable[[int], NDArray[np.int64]]  # labels [C] for a number of clusters
Splitter = Callable[[Floats], Split]  # of distances [C, C]

_REFERENCES = 20  # of the gap statistic: sets of uniform points
_PAIRS = 20  # of the stability: pairs of subsamples
_SUBSAMPLE, _STABLE = 0.8, 0.9
_NEIGHBOUR = 7  # at most, whose distance scales a client's affinities
_NEGLIGIBLE = 1e-6  # of the largest variance; float32 distances know nothing below it


def coordinates(distance: Floats) -> Floats:
    """Points [C, F] with these distances: classical scaling (Torgerson, Psychometrika 1952).

    Distances that no points have, because the triangle inequality or more fails, are approximated:
    what would need imaginary coordinates is left out.
    """
    square = np.square(distance)
    mean = square.mean(0)
    inner = (mean + mean[:, None] - square - mean.mean()) / 2  # of the points about their mean
    variance, axis = np.linalg.eigh(inner)
    kept = variance > _NEGLIGIBLE * variance[-1]
    if variance[-1] <= 0:
        return np.zeros((len(distance), 1))
    points: Floats = axis[:, kept] * np.sqrt(variance[kept])
    return points


def gap(distance: Floats, most: int, splitter: Splitter, stream: Stream) -> int:
    """The gap statistic (Tibshirani, Walther, Hastie, JRSS B 2001), with its box along the
    principal axes: the smallest k with gap(k) >= gap(k + 1) - s(k + 1).

    gap(k) is how much lower the logarithm of the scatter inside k clusters is than that of uniform
    points in the box around the clients; s is the standard error of the latter. Asks for 20
    clusterings of uniform points for every k. Three equidistant groups can pass for one, since two
    clusters explain no more of them than of uniform points.
    """
    points = coordinates(distance)
    generator = stream.fold(1).numpy()
    low, high = points.min(0), points.max(0)
    drawn = [generator.uniform(low, high, points.shape) for _ in range(_REFERENCES)]
    from scipy.spatial.distance import pdist, squareform  # half a second to import

    others = [squareform(pdist(one)) for one in drawn]
    splits, own = [splitter(other) for other in others], splitter(distance)
    gaps, errors = list[float](), list[float]()
    for k in range(1, most + 1):
        within = scatter(distance, _labels(own, k, len(distance)))
        if within <= 0:  # as many different clients as clusters: no more can be told apart
            return k
        both = zip(others, splits, strict=True)
        scatters = [scatter(other, _labels(split, k, len(other))) for other, split in both]
        logs = np.log(np.maximum(scatters, 1e-300))
        gaps.append(float(logs.mean() - np.log(within)))
        errors.append(float(logs.std()) * (1 + 1 / _REFERENCES) ** 0.5)
        if k > 1 and gaps[-2] >= gaps[-1] - errors[-1]:
            return k - 1
    return most


def scatter(distance: Floats, label: NDArray[np.int64]) -> float:
    """Sum of squared distances to the means of the clusters, from those of the pairs."""
    total = 0.0
    for k in np.unique(label):
        members = label == k
        total += float(np.square(distance[np.ix_(members, members)]).sum() / (2 * members.sum()))
    return total


def eigengap(distance: Floats, most: int) -> int:
    """The largest gap between neighbouring eigenvalues of the normalised Laplacian (von Luxburg,
    Statistics and Computing 2007) of affinities exp(-d(i, j)^2 / (s_i s_j)), s_i the distance to
    a near neighbour: the seventh (Zelnik-Manor, Perona, NIPS 2004, of hundreds of points), or,
    where `most` groups of so many clients have fewer, the last one of such a group.
    """
    size = len(distance)
    scale = np.sort(distance, 1)[:, min(_NEIGHBOUR, max(1, size // most - 1), size - 1)]
    affinity = np.exp(-np.square(distance) / np.maximum(np.outer(scale, scale), 1e-300))
    np.fill_diagonal(affinity, 0)
    root = 1 / np.sqrt(np.maximum(affinity.sum(1), 1e-300))
    values = np.linalg.eigvalsh(np.eye(size) - affinity * np.outer(root, root))
    return int(np.diff(values)[:most].argmax()) + 1


def stability(distance: Floats, most: int, splitter: Splitter, stream: Stream) -> int:
    """The k whose clusters are most alike in other subsamples (after Ben-Hur, Elisseeff, Guyon, PSB
    2002), the largest of equals.

    Twenty pairs of subsamples of 80 % of the clients are clustered. Of the pairs of clients that
    are together in one of the two, the share that is together in both says how alike they are; with
    less than nine in ten everybody is one cluster. The paper looks at histograms of such numbers.
    It says little of fewer than twenty clients, and groups that lie regularly are unstable at their
    true number.
    """
    size, generator = len(distance), stream.fold(2).numpy()
    taken = max(2, round(_SUBSAMPLE * size))
    chosen = [
        [np.sort(generator.choice(size, taken, replace=False)) for _ in range(2)]
        for _ in range(_PAIRS)
    ]
    splits = [[splitter(distance[np.ix_(ids, ids)]) for ids in pair] for pair in chosen]
    best, quality = 1, _STABLE
    for k in range(2, min(most, taken - 1) + 1):
        alike = []
        for pair, both in zip(chosen, splits, strict=True):
            label = np.full((2, size), -1)
            for row, ids, split in zip(label, pair, both, strict=True):
                row[ids] = split(k)
            alike.append(jaccard(*label[:, (label >= 0).all(0)]))
        if np.mean(alike) >= quality:
            best, quality = k, float(np.mean(alike))
    return best


def jaccard(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Pairs of clients that are together in both clusterings / in one of them; 1 for none."""
    both = [np.triu(label[:, None] == label, 1) for label in (one, other)]
    either = int((both[0] | both[1]).sum())
    return int((both[0] & both[1]).sum()) / either if either else 1.0


def _labels(split: Split, k: int, size: int) -> NDArray[np.int64]:
    return np.zeros(size, np.int64) if k == 1 else split(k)

"""k-means from distances alone is k-means on the points."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans as SklearnKMeans

from fedclust.cluster_methods.kmeans import KMeans, coordinates
from fedclust.helpers.rng import Stream

STREAM = Stream.of(0, "clustering", 5)


def points(count: int, dimensions: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(
        count, dimensions, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def inertia(place: torch.Tensor, label: torch.Tensor) -> float:
    return sum(
        float((place[label == k] - place[label == k].mean(0)).square().sum())
        for k in label.unique()
    )


def test_coordinates_have_the_distances() -> None:
    place = points(15, 4)
    distance = torch.cdist(place, place)
    found = coordinates(distance.numpy())
    assert found.shape == (15, 4), "as many dimensions as the points span"
    np.testing.assert_allclose(
        torch.cdist(torch.from_numpy(found), torch.from_numpy(found)), distance
    )
    assert (coordinates(np.zeros((3, 3))) == 0).all()


def test_it_needs_no_more_than_distances() -> None:
    """On points without structure it reaches the inertia of k-means on the points themselves."""
    place = points(60, 5)
    label = KMeans(num_clusters=4, starts=30)(torch.cdist(place, place).float(), STREAM)
    on_points = SklearnKMeans(4, n_init=30, random_state=0).fit(place.numpy())
    assert inertia(place, label) == pytest.approx(on_points.inertia_, rel=0.01)


def test_one_dimension_by_hand() -> None:
    place = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [30.0]])
    label = KMeans(num_clusters=3)(torch.cdist(place, place), STREAM)
    assert label.tolist() == [0, 0, 0, 1, 1, 2]


def test_distances_that_no_points_have_are_approximated() -> None:
    """Violates the triangle inequality; the two far blocks are found all the same."""
    distance = torch.full((6, 6), 5.0)
    distance[:3, :3] = distance[3:, 3:] = 0.5
    distance[0, 4] = distance[4, 0] = 8.0
    assert KMeans(num_clusters=2)(distance.fill_diagonal_(0), STREAM).tolist() == [0, 0, 0, 1, 1, 1]

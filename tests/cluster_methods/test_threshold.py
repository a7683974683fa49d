"""Agglomerative clustering that stops at a distance."""

from __future__ import annotations

import pytest
import torch

from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream

STREAM = Stream.of(0, "clustering")


def test_clusters_nearer_than_the_threshold_are_merged_and_others_are_not() -> None:
    place = torch.tensor([0.0, 1.0, 10.0, 11.5, 30.0])
    distance = (place.unsqueeze(1) - place).abs()
    expected = {
        0.5: [0, 1, 2, 3, 4],
        1.2: [0, 0, 1, 2, 3],
        2.0: [0, 0, 1, 1, 2],
        12.0: [0, 0, 0, 0, 1],
    }
    for threshold, label in expected.items():
        method = Agglomerative(num_clusters=2, linkage="complete", threshold=threshold)
        assert method(distance, STREAM).tolist() == label
    assert Agglomerative(num_clusters=2, threshold=99.0)(distance, STREAM).tolist() == [0] * 5


def test_the_threshold_is_met_by_the_chosen_linkage() -> None:
    """{0 1} and {10 11.5} are 9 apart at least, 10.25 on average and 11.5 at most."""
    place = torch.tensor([0.0, 1.0, 10.0, 11.5])
    distance = (place.unsqueeze(1) - place).abs()
    for threshold, merged in ((9.5, ["single"]), (11.0, ["single", "average"])):
        for linkage in ("single", "average", "complete"):
            method = Agglomerative(num_clusters=2, linkage=linkage, threshold=threshold)  # type: ignore[arg-type]
            expected = [0] * 4 if linkage in merged else [0, 0, 1, 1]
            assert method(distance, STREAM).tolist() == expected


def test_one_client_is_one_cluster() -> None:
    assert Agglomerative(num_clusters=1, threshold=1.0)(torch.zeros(1, 1), STREAM).tolist() == [0]


def test_a_threshold_of_zero_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"Agglomerative\.threshold=0"):
        Agglomerative(num_clusters=2, threshold=0.0)

"""k-medoids beside the answers that scikit-learn-extra gave, without that package and with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedclust.cluster_methods.kmedoids import KMedoids
from fedclust.cluster_methods.kmedoids_sklearn_extra import KMedoidsSklearnExtra
from fedclust.helpers.rng import Stream

CASES = json.loads(Path(__file__).with_name("scikit_learn_extra.json").read_text())["cases"]
STREAM = Stream.of(0, "clustering", 5)


def distances(case: dict[str, Any]) -> Tensor:
    """[C, C] sums of absolute differences of points: whole numbers, so that no bit is lost."""
    point = torch.tensor(case["points"])
    return (point.unsqueeze(1) - point).abs().sum(-1).double()


def loss(distance: Tensor, label: Tensor) -> float:
    """The sum of distances to the best medoid of every cluster."""
    return sum(
        float(distance[label == j][:, label == j].sum(1).min()) for j in label.unique().tolist()
    )


def test_alternate_gives_the_kept_labels() -> None:
    for case in CASES:
        found = KMedoids(num_clusters=case["k"], variant="alternate")(distances(case), STREAM)
        assert found.tolist() == case["alternate"]


def test_fasterpam_is_no_worse_than_either_kept_answer() -> None:
    """Of ten starts; in most cases better than `alternate`, and than PAM in some."""
    losses = np.array(
        [
            [
                loss(distance, KMedoids(num_clusters=case["k"])(distance, STREAM)),
                *(loss(distance, torch.tensor(case[method])) for method in ("pam", "alternate")),
            ]
            for case, distance in ((case, distances(case)) for case in CASES)
        ]
    )
    ours, pam, alternate = losses.T
    assert (ours <= pam).all()
    assert (ours <= alternate).all()
    assert (ours < alternate).sum() >= 12


@pytest.mark.sklearn_extra
@pytest.mark.parametrize(
    "options", [{"method": "alternate"}, {"method": "pam", "start": "build"}], ids=str
)
def test_the_package_gives_the_kept_labels(options: dict[str, Any]) -> None:
    for case in CASES:
        theirs = KMedoidsSklearnExtra(num_clusters=case["k"], **options)
        assert theirs(distances(case), STREAM).tolist() == case[options["method"]]

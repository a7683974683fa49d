"""On real images: a dozen clients of rotated MNIST, four rotations."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from fronts import Front
from planted import configured, partition_of

from fedclust.core import federation
from fedclust.core.types import Federation
from fedclust.datasets.images import MNIST
from fedclust.engines import make_engine
from fedclust.models.mlp import mlp
from fedclust.partitions.rotated import Rotated
from fedclust.scenarios.static import Static


@pytest.fixture(scope="module")
def rotated(data_root: Path) -> Federation:
    partition = Rotated(num_clients=12, num_rotations=4, examples_per_client=150)
    return federation.build(MNIST(root=str(data_root)).load(), partition, 0)


def run(name: str, fed: Federation, *overrides: str) -> tuple[torch.Tensor, float, list[Any]]:
    """Labels, pooled test accuracy and states after 7 rounds."""
    algorithm = configured(name, "num_clusters=4", "solver.lr=0.05", "solver.epochs=4", *overrides)
    clients = Front(make_engine("auto", mlp((1, 28, 28), 10, hidden=[]), fed.pool))
    states: list[Any] = []
    for rnd in islice(Static().rounds(fed, 0), 7):
        state = states[-1] if states else algorithm.init(clients.at(rnd), rnd)[0]
        states.append(algorithm.round(state, clients.at(rnd), rnd)[0])
    evaluation = clients.at(rnd).evaluate(algorithm.serve(states[-1], clients.at(rnd), rnd))
    return (
        evaluation.served.label,
        int(evaluation.sums.sum()) / int(evaluation.count.sum()),
        states,
    )


@pytest.mark.full
def test_clusters_are_the_rotations_and_pay_off(rotated: Federation) -> None:
    _, fedavg, fedavg_states = run("fedavg", rotated)
    _, oracle, _ = run("oracle", rotated)
    for name in ("lcfl", "diffnorm", "gradcos"):
        label, accuracy, states = run(name, rotated)
        assert partition_of(label) == partition_of(rotated.group), name
        assert torch.equal(states[4].models, fedavg_states[4].model)
        assert accuracy > fedavg + 0.03, name
        assert accuracy > oracle - 0.06, name
    assert oracle > 0.7


def test_auto_finds_the_number_of_rotations(rotated: Federation) -> None:
    label, _, _ = run("lcfl", rotated, "cluster_method.num_clusters=auto")
    assert partition_of(label) == partition_of(rotated.group)


@pytest.mark.full
def test_directions_of_early_training_tell_the_rotations(rotated: Federation) -> None:
    """FlexCFL by either measure, and FeSEM once its models begin apart."""
    _, fedavg, _ = run("fedavg", rotated)
    madc = (
        "cluster_metric@algorithm.cold_start.metric=madc",
        "cluster_method@algorithm.cold_start.method=agglomerative",
    )
    pretrained = ("algorithm.first_assignment=kmeans_pretrained",)
    for name, overrides in (("flexcfl", ()), ("fedgroup", madc), ("fesem", pretrained)):
        label, accuracy, _ = run(name, rotated, *overrides)
        assert partition_of(label) == partition_of(rotated.group), name
        assert accuracy > fedavg + 0.03, name

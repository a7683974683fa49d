"""The loss metric from a few models only, and distances of updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fronts import AllTrained
from torch import Tensor
from toys import federation_of, pool_of

from fedclust.cluster_methods.kmedoids import KMedoids
from fedclust.cluster_metrics.loss import Loss
from fedclust.cluster_metrics.update_distance import UpdateDistance
from fedclust.core.types import Round
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.scenarios.static import Static


@dataclass
class Groups:
    """Clients with squared loss around a target of their group; counts what it computes."""

    target: Tensor
    entries: int = 0

    def at(self, rnd: Any) -> Any:
        return self

    def loss(self, models: Tensor, ids: Tensor) -> Tensor:
        self.entries += len(models) * len(ids)
        return torch.cdist(self.target[ids], models).square()


def clients_of(groups: int, each: int, seed: int = 0) -> tuple[Groups, Tensor, Tensor]:
    """An engine, the clients' trained models and their groups."""
    draw = torch.Generator().manual_seed(seed)
    group = torch.arange(groups * each) % groups
    target = 3 * torch.randn(groups, 4, generator=draw)[group]
    target += 0.3 * torch.randn(len(group), 4, generator=draw)
    return Groups(target), target + 0.2 * torch.randn(len(group), 4, generator=draw), group


def a_round(ids: int, seed: int = 0) -> Round:
    pool = pool_of(torch.zeros(ids, 1), torch.zeros(ids, dtype=torch.int64), 1)
    fed = federation_of(pool, torch.arange(ids).split(1), group=torch.full((ids,), -1))
    return next(Static().rounds(fed, seed))


def measured(metric: Any, clients: Any, models: Tensor, rnd: Round) -> Tensor:
    distance: Tensor = metric(clients, models, models[:1], torch.arange(len(models)), rnd)
    return distance


def test_all_landmarks_give_the_same_bits() -> None:
    clients, models, _ = clients_of(3, 5)
    rnd, everybody = a_round(15), torch.arange(15)
    whole = measured(Loss(), clients, models, rnd)
    assert torch.equal(Loss(landmarks=15)._by_landmarks(clients, models, everybody, rnd), whole)  # type: ignore[arg-type]
    assert torch.equal(measured(Loss(landmarks=40), clients, models, rnd), whole)


def test_a_landmark_stands_for_itself_where_another_fits_better() -> None:
    """Clients at 0 and 1 have made 5 and 0.5: |25 - 0.25| + |16 - 0.25|."""
    clients = Groups(torch.tensor([[0.0], [10.0], [1.0]]))
    models, everybody = torch.tensor([[5.0], [10.0], [0.5]]), torch.arange(3)
    few: Any = Loss(landmarks=3)
    distance = few._by_landmarks(clients, models, everybody, a_round(3))
    assert float(distance[0, 2]) == pytest.approx(24.75 + 15.75)


def test_entries_equal_their_definition_and_landmarks_stand_for_themselves() -> None:
    clients, models, _ = clients_of(3, 5)
    rnd, everybody = a_round(15), torch.arange(15)
    distance = measured(Loss(landmarks=6), clients, models, rnd)
    table = clients.at(rnd).loss(models, everybody)
    chosen = (rnd.stream("landmarks").keys(everybody) >> 1).argsort()[:6].tolist()
    stands = [
        i if i in chosen else min(chosen, key=lambda j, i=i: float(table[i, j])) for i in range(15)
    ]  # type: ignore[misc]
    for i in range(15):
        for j in range(15):
            mine, theirs = stands[i], stands[j]
            expected = (table[i, mine] - table[i, theirs]).abs() + (
                table[j, mine] - table[j, theirs]
            ).abs()
            assert float(distance[i, j]) == pytest.approx(float(expected), abs=1e-5)
    assert torch.equal(distance, distance.T)
    assert (distance.diagonal() == 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_fifth_of_the_models_recovers_planted_groups(seed: int) -> None:
    clients, models, group = clients_of(4, 25, seed)
    distance = measured(Loss(landmarks=20), clients, models, a_round(100, seed))
    assert clients.entries == 100 * 20
    label = KMedoids(num_clusters=4)(distance, Stream.of(0, "clustering"))
    pairs = (label.unsqueeze(1) == label) == (group.unsqueeze(1) == group)
    assert bool(pairs.all())


def test_landmarks_are_those_of_the_seed_not_of_the_company() -> None:
    clients, models, _ = clients_of(3, 5)
    first, again = (
        measured(Loss(landmarks=4), clients, models, a_round(15, seed)) for seed in (0, 0)
    )
    other = measured(Loss(landmarks=4), clients, models, a_round(15, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_transfers_grow_with_the_landmarks() -> None:
    assert Loss(landmarks=10).transfers(100, 10) == (990, 10, 1000)
    assert Loss(landmarks=100).transfers(100, 10) == Loss().transfers(100, 10) == (9900, 100, 9900)
    assert Loss(landmarks=500).transfers(100, 10) == (9900, 100, 9900)
    with pytest.raises(ConfigError, match=r"Loss\.landmarks=1"):
        Loss(landmarks=1)


@pytest.mark.parametrize("norm", ["l1", "l2", "cosine"])
def test_distances_of_updates_equal_their_definitions(norm: str) -> None:
    draw = torch.Generator().manual_seed(3)
    models, common = torch.randn(6, 50, generator=draw), torch.randn(1, 50, generator=draw)
    update = models - common
    gap = update.unsqueeze(1) - update
    expected = {
        "l1": gap.abs().sum(2),
        "l2": gap.square().sum(2).sqrt(),
        "cosine": 1 - torch.nn.functional.cosine_similarity(update.unsqueeze(1), update, dim=2),
    }[norm].fill_diagonal_(0)
    metric: Any = UpdateDistance(norm=norm)  # type: ignore[arg-type]
    found = metric(AllTrained(), models, common, torch.arange(6), None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(found, found.T)
    assert metric.transfers(6, 10) == (0, 6, 0)


def test_an_update_of_length_zero_has_no_direction() -> None:
    common = torch.ones(1, 3)
    models = torch.cat([common, common + 1, common + 2])
    metric: Any = UpdateDistance(norm="cosine")
    found = metric(AllTrained(), models, common, torch.arange(3), None)
    torch.testing.assert_close(
        found, torch.tensor([[0.0, 1, 1], [1, 0, 0], [1, 0, 0]]), atol=1e-6, rtol=0
    )

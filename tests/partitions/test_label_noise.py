"""Wrong training labels: how many, which, and that test labels stay right."""

from __future__ import annotations

import pytest
import torch
from fakes import fake

from fedclust.core.federation import build
from fedclust.core.types import Dataset, Federation
from fedclust.helpers.errors import ConfigError
from fedclust.partitions.iid import IID
from fedclust.partitions.label_map import LabelMap
from fedclust.partitions.label_noise import LabelNoise
from fedclust.scenarios.drift import Drift

RATES = (0.0, 0.3, 0.6)


def right(dataset: Dataset, fed: Federation, index: torch.Tensor) -> torch.Tensor:
    """Whether rows have the label of the dataset."""
    y = torch.cat([dataset.y_train, dataset.y_test])
    return fed.pool.y[index.long()] == y[fed.pool.images(index.long())]


def test_every_group_has_its_share_of_wrong_labels() -> None:
    dataset = fake(6000, 300)
    fed = build(dataset, LabelNoise(base=IID(num_clients=12), rates=RATES), 0)
    assert fed.group.bincount().tolist() == [4, 4, 4]
    assert len(fed.pool.x) == 6300, "images are stored once"
    owner, _ = fed.train.owner_and_place()
    fine = right(dataset, fed, fed.train.index)
    for g, rate in enumerate(RATES):
        part = float((~fine[fed.group[owner] == g]).double().mean())
        assert abs(part - rate) <= 5 * (rate * (1 - rate) / 2000) ** 0.5
    assert bool(right(dataset, fed, fed.test.index).all()), "nobody is tested on wrong labels"


def test_noise_is_uniform_over_the_other_classes_and_nested() -> None:
    dataset = fake(9000, 10)
    table = LabelNoise(base=IID(num_clients=4), rates=(0.2, 1.0)).pool(dataset).y.view(-1, 3)
    shift = (table[:, 2] - table[:, 0]) % 10
    assert int(shift.min()) == 1, "at rate 1 every label is wrong"
    count = shift.bincount(minlength=10)[1:].double()
    assert float((count - count.mean()).abs().max()) < 5 * float(count.mean()) ** 0.5
    wrong = table[:, 1] != table[:, 0]
    assert torch.equal(table[wrong, 1], table[wrong, 2])


def test_the_labels_know_no_seed_of_the_run() -> None:
    dataset = fake(200, 20)
    one, other = (LabelNoise(base=IID(num_clients=4), data_seed=s) for s in (0, 1))
    assert one.pool(dataset).digest == one.pool(dataset).digest
    assert one.pool(dataset).digest != other.pool(dataset).digest


def test_noise_comes_on_top_of_mapped_labels() -> None:
    dataset = fake(300, 60)
    base = LabelMap(base=IID(num_clients=6), maps="fedrc")
    noisy = LabelNoise(base=base, rates=(0.0, 0.5))
    plain, fed = build(dataset, base, 0), build(dataset, noisy, 0)
    assert len(fed.pool.y) == 3 * len(plain.pool.y)
    assert fed.group.bincount().tolist() == [3, 3]


def test_what_does_not_fit_is_one_line() -> None:
    for rates in ([], [0.1], [0.2, 0.2], [0.0, 1.5]):
        with pytest.raises(ConfigError, match=r"partition.rates=.* two different rates or more"):
            LabelNoise(base=IID(num_clients=4), rates=rates)
    fed = build(fake(100, 20), LabelNoise(base=IID(num_clients=4)), 0)
    with pytest.raises(ConfigError, match=r"scenario=drift .* needs a partition with concepts"):
        Drift().rounds(fed, 0)

"""Shares of concepts: the ones asked for, exactly, and known afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fakes import fake

from fedclust.core.federation import build, concept_shares
from fedclust.helpers.errors import ConfigError
from fedclust.partitions.dirichlet import DirichletLabels
from fedclust.partitions.iid import IID
from fedclust.partitions.label_map import LabelMap
from fedclust.partitions.mixture import Mixture, counts_of

TWO = [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]]


def two(num_clients: int) -> LabelMap:
    return LabelMap(base=IID(num_clients=num_clients), maps=TWO)


def test_linear_shares_are_those_of_the_formula() -> None:
    fed = build(fake(1000, 200), Mixture(base=two(10), shares="linear"), 0)
    wanted = (torch.arange(10).double() + 0.5) / 10
    assert concept_shares(fed)[:, 0].tolist() == pytest.approx(wanted.tolist(), abs=1e-12)
    assert fed.group.tolist() == [1] * 5 + [0] * 5
    tested = (fed.test.index % 2 == 0).double().view(10, 20).mean(1)
    assert tested.tolist() == pytest.approx(wanted.tolist(), abs=1e-12)


def test_given_shares_go_to_equally_many_clients() -> None:
    fed = build(fake(1200, 240), Mixture(base=two(12), shares=[[0.1, 0.9], [0.7, 0.3]]), 0)
    shares = concept_shares(fed)
    assert sorted(round(share, 6) for share in shares[:, 0].tolist()) == [0.1] * 6 + [0.7] * 6
    assert torch.equal(fed.group, (shares[:, 0] < 0.5).long())
    assert fed.group.tolist() != sorted(fed.group.tolist()), "in random order"
    pure = build(fake(1200, 240), Mixture(base=two(12), shares=[[1, 0], [0, 1]]), 0)
    assert sorted(concept_shares(pure)[:, 1].tolist()) == [0.0] * 6 + [1.0] * 6


def test_which_examples_are_under_a_concept_is_drawn() -> None:
    """A base may keep the examples of a client by class: half of each class, and not half of the
    classes, is under a concept.
    """
    base = LabelMap(base=DirichletLabels(num_clients=2, alpha=1e6), maps=TWO)
    dataset = fake(8000, 200)
    fed = build(dataset, Mixture(base=base, shares=[[0.5, 0.5]]), 0)
    for client in range(2):
        index = fed.train.of_client(client)
        label = dataset.y_train[index // 2]
        assert label.tolist() == sorted(label.tolist()), "by class"
        first = label[index % 2 == 0].bincount(minlength=10) / label.bincount(minlength=10)
        assert (first - 0.5).abs().max() < 5 * (0.25 / 400) ** 0.5


def test_no_example_occurs_twice_and_all_are_the_bases() -> None:
    dataset, base = fake(900, 180), LabelMap(base=IID(num_clients=9), maps="fedrc")
    fed, plain = build(dataset, Mixture(base=base), 4), build(dataset, base, 4)
    assert sorted((fed.train.index // 3).tolist()) == list(range(900))
    assert sorted((fed.test.index // 3).tolist()) == list(range(900, 1080))
    assert torch.equal(fed.train.count, plain.train.count)
    assert len(fed.pool.x) == 1080
    one = fed.train.of_client(0)
    labels = one[one % 3 == 1] // 3
    assert torch.equal(fed.pool.y[one[one % 3 == 1]], 9 - dataset.y_train[labels])


def test_drawn_shares_have_the_moments_of_the_dirichlet_distribution() -> None:
    base = LabelMap(base=IID(num_clients=1500), maps="fedrc")
    shares = concept_shares(build(fake(150_000, 3000), Mixture(base=base, alpha=0.4), 0))
    # variance p (1 - p) / (G alpha + 1), p = 1/3, and rounding to hundredths
    wanted = (1 / 3) * (2 / 3) / 2.2
    assert float(shares.var(0).mean()) == pytest.approx(wanted, rel=0.1)
    assert shares.sum(1).tolist() == pytest.approx([1.0] * 1500)
    assert (shares.mean(0) - 1 / 3).abs().max() < 5 * (wanted / 1500) ** 0.5


def test_counts_are_whole_and_next_to_the_shares() -> None:
    shares = np.random.default_rng(0).dirichlet([0.3] * 4, 200)
    sizes = np.arange(200)
    counts = counts_of(shares, sizes).numpy()
    assert counts.sum(1).tolist() == sizes.tolist()
    assert (np.abs(counts - shares * sizes[:, None]) < 1).all()
    assert counts_of(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([3, 4])).tolist() == [
        [2, 1],
        [1, 3],
    ]


def test_what_does_not_fit_is_one_line() -> None:
    dataset = fake(100, 40)
    with pytest.raises(ConfigError, match=r"partition.base=IID .* label_map, transform or class"):
        Mixture(base=IID(num_clients=4))  # type: ignore[arg-type]
    for shares in ([], [[]], [[0.5, 0.6]], [[1.5, -0.5]]):
        with pytest.raises(ConfigError, match=r"partition.shares=.* each adding up to 1"):
            Mixture(base=two(4), shares=shares)
    three = LabelMap(base=IID(num_clients=4), maps="fedrc")
    with pytest.raises(ConfigError, match=r"partition.shares=linear .* two concepts only"):
        build(dataset, Mixture(base=three, shares="linear"), 0)
    for shares in ([[1.0]], [[0.2, 0.3, 0.5]], [[0.5, 0.5], [1.0]]):
        with pytest.raises(ConfigError, match=r"partition.shares=.* one per concept, .* has 2"):
            build(dataset, Mixture(base=two(4), shares=shares), 0)

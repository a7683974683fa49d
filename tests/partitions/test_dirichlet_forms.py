"""The forms of Dirichlet label skew: what each of them keeps fixed, and what alpha does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fakes import fake
from refusals import refused

from fedclust.core.federation import build, label_histogram
from fedclust.core.types import Dataset
from fedclust.helpers.errors import UserError
from fedclust.partitions.dirichlet import DirichletLabels
from fedclust.partitions.dirichlet_balanced import BalancedDirichlet
from fedclust.partitions.dirichlet_classes import ClassDirichlet
from fedclust.partitions.dirichlet_clients import ClientDirichlet
from fedclust.partitions.dirichlet_label_groups import LabelGroupDirichlet

FORMS = [DirichletLabels, BalancedDirichlet, ClientDirichlet, LabelGroupDirichlet]


def histogram(dataset: Dataset, partition: DirichletLabels, seed: int = 0) -> torch.Tensor:
    """Training examples of every class for every client, [M, Y]."""
    fed = build(dataset, partition, seed)
    return label_histogram(fed, torch.arange(partition.num_clients))


@pytest.mark.parametrize("form", FORMS)
def test_every_example_has_one_owner_and_a_large_alpha_is_iid(form: type[DirichletLabels]) -> None:
    dataset = fake(4000, 1000)
    fed = build(dataset, form(num_clients=8, alpha=1e6), 0)
    assert sorted(fed.train.index.tolist()) == list(range(4000))
    assert sorted(fed.test.index.tolist()) == list(range(4000, 5000))
    table = label_histogram(fed, torch.arange(8))
    slack = 5 * (500 * 0.09) ** 0.5 if form is ClientDirichlet else 1
    assert (table - 50).abs().max() <= slack
    assert (fed.group == -1).all()


@pytest.mark.parametrize("form", FORMS)
def test_test_examples_follow_the_training_examples(form: type[DirichletLabels]) -> None:
    dataset = fake(4000, 1000)
    fed = build(dataset, form(num_clients=8, alpha=0.5), 1)
    train = label_histogram(fed, torch.arange(8)).double()
    owner, _ = fed.test.owner_and_place()
    test = torch.zeros(8, 10, dtype=torch.float64)
    test.index_put_((owner, fed.pool.y[fed.test.index.long()]), torch.ones(1).double(), True)
    assert (test - train / 4).abs().max() <= 1


def test_clients_of_one_size_differ_in_labels_only() -> None:
    table = histogram(fake(4003, 1000), ClientDirichlet(num_clients=8, alpha=0.5))
    assert table.sum(1).tolist() == [501, 501, 501, *[500] * 5]
    # nine tenths of a first client's examples are of few classes: alpha p = 0.05
    assert float(table[0].sort(descending=True).values[:3].sum()) > 0.6 * 501


@pytest.mark.full
def test_shares_of_clients_are_those_of_the_dirichlet_distribution() -> None:
    """The variance of a share is p (1 - p) / (alpha + 1)."""
    partition = ClientDirichlet(num_clients=20, alpha=4.0)
    supply = np.full(10, 100_000)
    first = np.stack(
        [partition.draw(supply, np.random.default_rng(s))[0] / 50_000 for s in range(400)]
    )
    assert abs(first.mean() - 0.1) < 1e-12
    wanted = 0.1 * 0.9 / 5
    assert abs(first.var(0).mean() - wanted) < 5 * wanted * (6 / 400 / 10) ** 0.5


@pytest.mark.parametrize(("num_clients", "of_each"), [(100, 1000), (1000, 6000)])
def test_no_client_takes_what_the_others_leave(num_clients: int, of_each: int) -> None:
    """With a large alpha every client has a tenth of each of ten classes, the last one as well."""
    partition = ClientDirichlet(num_clients=num_clients, alpha=1e6)
    counts = partition.draw(np.full(10, of_each), np.random.default_rng(0))
    each = of_each / num_clients
    assert np.abs(counts - each).max() <= 2
    assert counts.sum(0).tolist() == [of_each] * 10
    assert counts.sum(1).tolist() == [10 * each] * num_clients


@pytest.mark.full
def test_the_last_client_is_as_near_to_all_as_the_first() -> None:
    """Total variation to the classes of all, mean of 40 draws; its spread is 0.07 of one draw."""
    partition, supply = ClientDirichlet(num_clients=100, alpha=10.0), np.full(10, 1000)
    tables = [partition.draw(supply, np.random.default_rng(s)) for s in range(40)]
    first, last = (np.mean([np.abs(t[i] - 10).sum() / 200 for t in tables]) for i in (0, -1))
    assert abs(first - last) < 0.05


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1.0])
def test_clients_share_out_classes_of_unequal_size(alpha: float) -> None:
    supply = np.array([5, 0, 300, 1000])
    counts = ClientDirichlet(num_clients=9, alpha=alpha).draw(supply, np.random.default_rng(1))
    assert counts.sum(0).tolist() == supply.tolist()
    assert sorted(counts.sum(1).tolist()) == [145] * 9
    assert counts.min() >= 0


def test_balanced_clients_exceed_their_part_by_less_than_a_class() -> None:
    dataset = fake(4000, 1000)
    for seed in range(5):
        sizes = histogram(dataset, BalancedDirichlet(num_clients=20, alpha=0.3), seed).sum(1)
        plain = histogram(dataset, DirichletLabels(num_clients=20, alpha=0.3), seed).sum(1)
        assert int(sizes.max()) < 200 + 400
        assert float(sizes.double().std()) < float(plain.double().std())


def test_a_client_has_as_many_classes_as_asked_and_every_class_enough_clients() -> None:
    partition = ClassDirichlet(num_clients=40, classes_per_client=3, alpha=50.0)
    table = histogram(fake(8000, 2000), partition)
    assert int((table > 0).sum(1).max()) <= 3
    assert int((table > 0).sum(0).min()) >= 3 * 40 // 10 // 2
    assert int(table.sum()) == 8000
    assert int(table.sum(1).min()) >= 10
    whole = ClassDirichlet(num_clients=8, classes_per_client=10, alpha=1e6)
    assert (histogram(fake(4000, 1000), whole) - 50).abs().max() <= 1


def test_a_client_that_is_full_gets_no_class_that_comes_later() -> None:
    partition = ClassDirichlet(num_clients=8, classes_per_client=10, alpha=0.5)
    supply, full = np.full(10, 400), 0
    for seed in range(5):
        share = partition.draw(supply, np.random.default_rng(seed))
        held = np.zeros(8)
        for c in range(10):
            assert not share[held >= 500, c].any()
            full += int((held >= 500).sum())
            held += 400 * share[:, c]
        assert held.sum() == pytest.approx(4000)
    assert full > 20, "there are such clients"


def test_every_class_has_half_of_its_mean_number_of_clients() -> None:
    """Of 40 clients with a class each, 2; one draw in two has a class with fewer."""
    partition = ClassDirichlet(num_clients=40, classes_per_client=1)
    fewest = [partition.owns(10, np.random.default_rng(s)).sum(0).min() for s in range(20)]
    assert min(fewest) == 2


def test_classes_of_a_label_group_share_their_proportions() -> None:
    table = histogram(fake(10_000, 2000), LabelGroupDirichlet(num_clients=12, label_groups=3))
    columns = (table.double() / 1000).T
    alike = torch.cdist(columns, columns, p=1) < 0.02
    assert sorted(alike.sum(1).tolist()) == [3] * 6 + [4] * 4
    assert (alike == alike.T).all()


def test_what_does_not_fit_is_one_line() -> None:
    dataset = fake(400, 100)
    for partition, words in [
        (ClassDirichlet(num_clients=4, classes_per_client=11), "classes_per_client=11 .* at most"),
        (ClassDirichlet(num_clients=2, classes_per_client=1), "classes_per_client=1 .* draws left"),
        (LabelGroupDirichlet(num_clients=4, label_groups=11), "label_groups=11 .* at most the 10"),
        (ClassDirichlet(num_clients=30, alpha=0.01), "alpha=0.01 .* fewer than"),
        (ClientDirichlet(num_clients=41), "400 for 41 clients"),
    ]:
        with refused(UserError, words):
            build(dataset, partition, 0)

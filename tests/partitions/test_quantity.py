"""Sizes: the proportions that are drawn, what stays, and that nobody ends with too few."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fakes import fake
from refusals import refused

from fedclust.core.federation import build
from fedclust.helpers.errors import DataError
from fedclust.partitions.dirichlet import DirichletLabels
from fedclust.partitions.iid import IID
from fedclust.partitions.label_map import LabelMap
from fedclust.partitions.quantity import Quantity


def test_all_examples_are_dealt_out_again_within_the_groups() -> None:
    dataset, base = fake(3000, 600), LabelMap(base=IID(num_clients=30), maps="fedrc")
    plain = build(dataset, base, 0)
    fed = build(dataset, Quantity(base=base, min_examples=7), 0)
    assert sorted((fed.train.index // 3).tolist()) == list(range(3000))
    owner, _ = fed.train.owner_and_place()
    assert torch.equal(fed.train.index % 3, fed.group[owner])
    for g in range(3):
        assert int(fed.train.count[fed.group == g].sum()) == 1000
    assert int(fed.train.count.min()) >= 7
    assert int(fed.train.count.max()) > 250
    assert fed.test.count.tolist() == plain.test.count.tolist()


def test_sizes_follow_the_dirichlet_distribution() -> None:
    """The variance of a share is p (1 - p) / (M beta + 1)."""
    partition = Quantity(base=IID(num_clients=20), beta=2.0, min_examples=1)
    fed = [build(fake(20_000, 200), partition, seed) for seed in range(60)]
    shares = torch.stack([one.train.count.double() / 20_000 for one in fed])
    assert shares.sum(1).tolist() == pytest.approx([1.0] * 60)
    wanted = 0.05 * 0.95 / 41
    assert abs(float(shares.var()) - wanted) < 5 * wanted * (5 / 1200) ** 0.5


@pytest.mark.parametrize("law", ["dirichlet", "lognormal", "truncated_normal"])
def test_a_cap_keeps_the_first_of_a_clients_own(law: str) -> None:
    base = DirichletLabels(num_clients=20, alpha=1.0, min_examples=20)
    partition = Quantity(base=base, law=law, deal="cap", min_examples=12)  # type: ignore[arg-type]
    dataset = fake(6000, 600)
    fed, plain = build(dataset, partition, 0), Quantity(base=base, deal="cap", law=law)  # type: ignore[arg-type]
    whole = build(dataset, Quantity(base=base, law=law, deal="cap", min_examples=6000), 0)  # type: ignore[arg-type]
    assert int(whole.train.count.sum()) == 6000, "nobody has more than the base gives"
    for i in range(20):
        mine = fed.train.of_client(i)
        assert torch.equal(mine, whole.train.of_client(i)[: len(mine)])
    part = fed.train.count / whole.train.count
    assert float(part.max()) == 1
    assert int(fed.train.count.min()) >= 12
    assert len(set(fed.train.count.tolist())) > 5
    assert build(dataset, plain, 1).train.count.tolist() != fed.train.count.tolist()


def test_lognormal_sizes_are_between_50_and_1000() -> None:
    weight = Quantity(base=IID(num_clients=2), law="lognormal")._drawn(
        4000, np.random.default_rng(0)
    )
    assert weight.min() > 50
    assert weight.max() == 1000
    # P(exp(4 + 2 z) > 950) = P(z > 1.428) = 0.0767
    assert abs((weight == 1000).mean() - 0.0767) < 5 * (0.0767 * 0.9233 / 4000) ** 0.5
    normal = Quantity(base=IID(num_clients=2), law="truncated_normal", spread=0.2)._drawn(
        4000, np.random.default_rng(0)
    )
    assert 0 < normal.min() < normal.max() < 1
    assert abs(normal.mean() - 0.5) < 5 * 0.2 / 4000**0.5
    # cut at 2.5 standard deviations: 0.2^2 (1 - 5 phi(2.5) / 0.98758)
    assert abs(normal.std() - 0.1909) < 5 * 0.1909 / 8000**0.5


def test_too_few_examples_are_one_line() -> None:
    with refused(DataError, r"100 for 20 clients with 10 each: lower"):
        build(fake(100, 40), Quantity(base=IID(num_clients=20)), 0)

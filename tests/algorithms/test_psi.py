"""The population stability index: closed forms, groups of class shares, what it sends."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from planted import CLIENTS, configured, federation, partition_of, rounds_of, simulate
from toy_engine import toy_federation, toy_round

from fedclust.cluster_metrics.psi import PSI, terms


def test_the_sum_of_the_terms_is_the_index() -> None:
    """p = (0.7, 0.3) and q = (0.5, 0.5); the half examples vanish among many."""
    many = 10**9
    found = terms(torch.tensor([[7 * many, 3 * many], [3 * many, 7 * many]]))
    each = [0.2 * math.log(0.7 / 0.5), -0.2 * math.log(0.3 / 0.5)]
    assert found[0].tolist() == pytest.approx(each)
    assert float(found[0].sum()) == pytest.approx(0.169460, abs=1e-6)
    assert found[1].tolist() == pytest.approx(each[::-1])


def test_terms_are_0_for_equal_shares_and_finite_without_a_class() -> None:
    count = torch.randint(0, 9, (6, 4), generator=torch.Generator().manual_seed(0))
    found = terms(count)
    assert bool(torch.isfinite(found).all())
    assert bool((found >= 0).all())
    assert bool((found.sum(1) > 0).all())
    many = (count + 1) * 10**6  # of which half an example is nothing
    merged = terms(torch.stack([many[:, :2].sum(1), many[:, 2:].sum(1)], 1))
    assert bool((merged.sum(1) <= terms(many).sum(1) + 1e-9).all())
    assert float(terms(torch.tensor([[1, 1], [2, 2]])).sum(1).max()) < 1e-9
    one = terms(torch.tensor([[2, 1]]))
    assert float(one.abs().max()) < 1e-15  # a single client is all there are


def test_half_an_example_by_hand() -> None:
    found = terms(torch.tensor([[1, 0], [0, 1]]))
    assert found[0].tolist() == pytest.approx([0.25 * math.log(1.5), 0.25 * math.log(2)])


def test_groups_of_class_shares_are_found_without_a_model() -> None:
    fed = toy_federation([[0, 0, 0, 1], [1, 2, 2, 2], [0, 0, 1, 0], [2, 2, 1, 2]])
    metric, ids = PSI(), torch.arange(4)
    nothing: Any = None
    distance = metric(nothing, nothing, nothing, ids, toy_round(fed, range(4)))
    assert distance[0, 2] == distance[1, 3] == 0
    assert float(distance[0, 1]) > 0.1
    assert torch.equal(distance, distance.T)
    order = torch.tensor([3, 1, 0])
    again = metric(nothing, nothing, nothing, order, toy_round(fed, range(4)))
    assert again[0, 1] == 0
    assert metric.transfers(7, 10) == (0, 0, 70)
    assert not len(metric.reads(ids, toy_round(fed, [0])))


def test_clients_cluster_by_their_counts_and_send_them_alone() -> None:
    states, reports = simulate(configured("lcfl", "cluster_metric=psi"), rounds_of(federation(), 6))
    clustering = next(r for r in reports if "num_clusters_found" in r.notes)
    assert clustering.floats_up == 3 * CLIENTS
    assert len(partition_of(states[-1].label)) == 3

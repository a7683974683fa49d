"""Robust means by hand, what they are the same as, and that all methods that average take them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_jobs import config_of
from planted import ALGORITHMS, configured, federation, rounds_of, same, simulate
from scipy.optimize import minimize
from test_damage import Told
from torch import Tensor

from fedclust.config.build import build
from fedclust.core.server import Server
from fedclust.core.traits import traits_of
from fedclust.helpers.errors import ConfigError
from fedclust.models.params import Layout
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.run import run
from fedclust.updates.aggregations import (
    CenteredClipping,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    NormBound,
    TrimmedMean,
)


def of(rule: Any, *updates: list[float], share: list[float] | None = None) -> list[float]:
    """The rule's mean of updates, by equal shares if none are given."""
    rows = torch.tensor(updates, dtype=torch.float64)
    weight = torch.ones(len(rows)) if share is None else torch.tensor(share)
    found: Tensor = rule(rows, (weight / weight.sum()).double())
    values: list[float] = found.tolist()
    return values


def test_median_takes_the_middle_two() -> None:
    assert of(Median(), [0.0, 9.0], [1.0, 8.0], [5.0, 7.0], [100.0, -100.0]) == [3.0, 7.5]
    assert of(Median(), [0.0], [1.0], [100.0]) == [1.0]


def test_trimmed_mean_by_coordinate_and_share() -> None:
    updates = [0.0, 10.0], [1.0, 30.0], [2.0, -50.0], [6.0, 20.0], [99.0, 0.0]
    assert of(TrimmedMean(trim=0.2), *updates) == [3.0, 10.0]
    assert of(TrimmedMean(trim=0.4), *updates) == of(Median(), *updates)
    shares = [1.0, 3.0, 1.0, 1.0, 9.0]  # 1, 2, 6 weigh 3, 1, 1
    assert of(TrimmedMean(trim=0.2), *updates, share=shares)[0] == pytest.approx(11 / 5)
    assert TrimmedMean(trim=0)(torch.zeros(4, 2), torch.full((4,), 0.25)) is None


@pytest.mark.parametrize(
    ("rule", "count", "short"),
    [
        (TrimmedMean(trim=0.2), 4, True),
        (TrimmedMean(trim=0.2), 5, False),
        (TrimmedMean(trim=0), 1, False),
        (TrimmedMean(trim=0.05), 19, True),
        (TrimmedMean(trim=0.05), 20, False),
        (TrimmedMean(trim=0.29), 100, False),
        (Krum(hostile=0.2), 4, True),
        (Krum(hostile=0.2), 5, False),
        (Krum(hostile=0), 3, False),
        (Krum(hostile=0), 2, True),
        (Krum(hostile=0.4), 5, True),
        (Krum(hostile=0.4), 7, False),
        (Median(), 1, False),
    ],
)
def test_a_share_that_is_nobody_takes_the_median(rule: Any, count: int, short: bool) -> None:
    """The last update is far away, and the median of the others' kind."""
    updates = torch.tensor([[float(i)] for i in range(count - 1)] + [[1e6]]).double()
    share = torch.arange(1, count + 1).double()
    found = rule(updates, share / share.sum())
    assert rule.is_short(count) is short
    if short:
        assert torch.equal(found, Median()(updates, share / share.sum()))


def test_means_of_too_few_are_counted() -> None:
    server = Server(TrimmedMean(trim=0.2))
    models, params = torch.zeros(3, 1), torch.arange(7.0).square().unsqueeze(1)
    label, means = torch.tensor([0, 0, 0, 0, 0, 1, 1]), torch.full((3, 1), -7.0)
    after = server.replaced(models, params, means, label, None)
    assert after.flatten().tolist() == [pytest.approx(14 / 3), 30.5, -7.0]
    assert server.short == [False, True]


def test_krum_takes_the_update_of_least_score() -> None:
    # scores 5, 2, 2, 5, 4513; of equal ones the first
    updates = [0.0], [1.0], [2.0], [3.0], [50.0]
    assert of(Krum(hostile=0.2), *updates) == [1.0]
    assert of(Krum(hostile=0.2, chosen=None), *updates) == [1.5]
    assert of(Krum(hostile=0.2, chosen=4), *updates) == [1.5]
    weighted = of(Krum(hostile=0.2, chosen=None), *updates, share=[1.0, 1.0, 3.0, 1.0, 1.0])
    assert weighted == [pytest.approx((1 + 3 * 2) / 4)]
    # squares of distances 37, 26, 34, 25, 65; of the distances themselves the least is that of 1
    assert of(Krum(hostile=0.2), [0.0], [1.0], [6.0], [9.0], [13.0]) == [9.0]
    # with m = 0 the scores of 3 are of one neighbour each
    assert of(Krum(hostile=0.2), [0.0], [3.0], [4.0]) == [3.0]
    # too few for m = 1: the median
    assert of(Krum(hostile=0.4), [0.0], [1.0], [5.0]) == [1.0]


def test_geometric_median_of_lines_squares_and_triangles() -> None:
    rule = GeometricMedian(iterations=2000)
    assert of(rule, [0.0], [1.0], [10.0]) == pytest.approx([1.0], abs=1e-4)
    square = [0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]
    assert of(rule, *square) == pytest.approx([1.0, 1.0])
    triangle = [0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]
    assert of(rule, *triangle) == pytest.approx([0.5, 0.75**0.5 / 3], abs=1e-5)
    assert of(rule, [0.0], [1.0], [10.0], share=[1.0, 1.0, 3.0]) == pytest.approx([10.0], abs=1e-4)
    assert of(GeometricMedian(smoothing=1e6), *triangle) == pytest.approx([0.5, 0.75**0.5 / 3])


def test_geometric_median_is_that_of_scipy() -> None:
    draw = torch.Generator().manual_seed(3)
    points = torch.randn(7, 4, generator=draw, dtype=torch.float64)
    share = torch.rand(7, generator=draw, dtype=torch.float64)
    share /= share.sum()

    def objective(at: Any) -> float:
        return float(share @ (points - torch.from_numpy(at)).norm(dim=1))

    best = minimize(objective, points.mean(0).numpy(), tol=1e-12)
    found = GeometricMedian()(points, share)
    assert found is not None
    assert objective(found.numpy()) == pytest.approx(best.fun, rel=1e-9)
    assert found.tolist() == pytest.approx(best.x.tolist(), abs=1e-4)


def test_centered_clipping_by_hand() -> None:
    updates = [0.0, 0.0], [3.0, 4.0], [0.0, 10.0]
    assert of(CenteredClipping(radius=5.0, iterations=1), *updates) == pytest.approx([1.0, 3.0])
    far = CenteredClipping(radius=1e9, iterations=1)
    assert of(far, *updates) == pytest.approx([1.0, 14 / 3])
    moved = torch.tensor(of(CenteredClipping(radius=0.5, iterations=1), *updates))
    assert float(moved.norm()) <= 0.5


def test_norm_bound_by_hand() -> None:
    # the median norm is 5
    updates = [0.0, 0.0], [3.0, 4.0], [0.0, 10.0]
    assert of(NormBound(), *updates) == pytest.approx([1.0, 3.0])
    assert of(NormBound(bound=1.0), *updates) == pytest.approx([0.2, 0.6])
    assert NormBound(bound=10.0)(torch.tensor(updates), torch.full((3,), 1 / 3)) is None


def test_clusters_are_combined_apart_and_buffers_by_their_median() -> None:
    layout = Layout(names=("weight", "seen"), shapes=((1,), (1,)), num_buffers=1)
    server = Server(Median(), layout=layout)
    models = torch.tensor([[0.0, 0.0], [10.0, 0.0], [5.0, 5.0]])
    params = torch.tensor([[1.0, 1.0], [2.0, 2.0], [99.0, 99.0], [12.0, 4.0]])
    label, means = torch.tensor([0, 0, 0, 1]), torch.full((3, 2), 7.0)
    after = server.replaced(models, params, means, label, None)
    assert after.tolist() == [[2.0, 2.0], [12.0, 4.0], [7.0, 7.0]]
    # who has no weight has no say
    weight = torch.tensor([1, 0, 1, 1])
    after = server.replaced(models, params, means, label, weight)
    assert after[0].tolist() == [50.0, 50.0]


@pytest.mark.thinned
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_that_averages_takes_them(name: str) -> None:
    fed, algorithm = federation(), configured(name)
    if not traits_of(algorithm).averages:
        return  # which is refused, see below
    rounds = rounds_of(fed, 6)

    def last(rule: Any) -> Any:
        return simulate(algorithm, rounds, aggregation=rule)[0][-1]

    plain = last(None)
    assert same(plain, last(TrimmedMean(trim=0)))  # to the bit
    assert not same(plain, last(NormBound(bound=1e-3)))


@pytest.mark.parametrize(
    ("rule", "key", "why"),
    [("trimmed_mean", "trim", "or nobody is left"), ("krum", "hostile", "more than half")],
)
def test_what_leaves_nobody_is_refused(rule: str, key: str, why: str) -> None:
    given = f"aggregation={rule}", f"aggregation.{key}=0.5"
    with pytest.raises(
        ConfigError, match=f"aggregation.{key}=0.5 is not allowed: below 0.5.*{why}"
    ):
        build(config_of("fedavg", *given))


def test_krum_says_what_it_needs() -> None:
    allowed = "aggregation.hostile=0.4 is not allowed: .* of the 4 in a round m = 1"
    with pytest.raises(ConfigError, match=allowed):
        Krum(hostile=0.4).check(4)
    Krum(hostile=0.2).check(4)
    Mean().check(1)


@pytest.mark.full
def test_a_job_says_once_that_its_rule_stands_back(tmp_path: Path) -> None:
    """Eight clients, all in one cluster: 1 / 0.1 are ten, and 1 / 0.2 are five."""
    for trim, counts in ((0.1, {1.0}), (0.2, {0.0})):
        given = "aggregation=trimmed_mean", f"aggregation.trim={trim}", "seeds=[0,1]"
        config, told = config_of("fedavg", *given, "participation=1", "rounds=2"), Told()
        folder = tmp_path / str(trim)
        run(build(config), RunFolder(folder, config), told)
        said = [line for line in told.warnings if "aggregation=TrimmedMean" in line]
        assert len(said) == (trim == 0.1)
        rows = csv.DictReader((folder / "rounds.csv").open())
        assert {float(row["value"]) for row in rows if row["metric"] == "median_instead"} == counts


def test_who_does_not_average_says_so() -> None:
    with pytest.raises(ConfigError, match=r"aggregation=Median is not .* mean, since Scaffold"):
        build(config_of("scaffold", "aggregation=median"))
    with pytest.raises(ConfigError, match=r"aggregation=Median is not .* mean, since Feroma"):
        build(config_of("feroma", "aggregation=median"))
    job = build(config_of("fedadam", "aggregation=median", "seeds=1"))
    assert job.aggregation == Median()

"""Whole numbers that a decimal share of a count is, against exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from fedclust.core.validation import drawn_test
from fedclust.helpers.rounding import rounded_down, rounded_up
from fedclust.partitions.cut import hold_out
from fedclust.partitions.majority_class import MajorityClass
from fedclust.solver import Solver
from fedclust.updates.aggregations import Krum, TrimmedMean
from fedclust.updates.privacy import ClientDP

SHARES, COUNTS = range(1, 100), range(201)


@pytest.mark.thinned
@pytest.mark.parametrize("kind", [int, np.array, torch.tensor])
@pytest.mark.parametrize(
    ("rounded", "exact"), [(rounded_down, math.floor), (rounded_up, math.ceil)]
)
def test_two_digits_of_every_count_are_exact(rounded: Any, exact: Any, kind: Any) -> None:
    """In binary 12 of them are rounded down wrongly, and 27 up."""
    for share in SHARES:
        given = COUNTS if kind is int else [kind(list(COUNTS))]
        found = [rounded(share / 100, count) for count in given]
        whole = found if kind is int else found[0].tolist()
        assert whole == [exact(Fraction(share, 100) * count) for count in COUNTS]


@pytest.mark.parametrize("digits", [3, 5, 8])
def test_shares_of_many_digits_and_counts_of_millions_are_exact(digits: int) -> None:
    """Also next to a whole number, where a share of one is itself or its complement."""
    rng, whole = np.random.default_rng(digits), 10**digits
    pairs = [(1, 1), (whole - 1, 1), (1, whole), (whole - 1, min(whole, 10**6))]
    for share in rng.integers(1, whole, 300).tolist():
        step = whole // math.gcd(share, whole)  # of which every multiple has a whole share
        pairs += [(share, int(rng.integers(1, 4_000_000))), (share, 4_000_000 // step * step)]
    for share, count in pairs:
        exact = Fraction(share, whole) * count
        assert rounded_down(share / whole, count) == math.floor(exact), (share, count)
        assert rounded_up(share / whole, count) == math.ceil(exact), (share, count)


def trimmed(trim: float, count: int) -> int:
    """How many of `count` updates are dropped at each end: the first is 1, the others 0, 2, 3."""
    rows = torch.arange(count).double().square().unsqueeze(1)
    mean = TrimmedMean(trim=trim)(rows, torch.full((count,), 1 / count).double())
    assert mean is not None
    means = [float(rows[cut : count - cut].mean()) for cut in range(count // 2)]
    return int(np.abs(np.array(means) - float(mean)).argmin())


def averaged(hostile: float, count: int) -> int:
    """How many of `count` updates that are as far apart are averaged by Multi-Krum."""
    rows = torch.eye(count).double()
    mean = Krum(hostile=hostile, chosen=None)(rows, rows.mean(1))
    assert mean is not None
    return int((mean > 0).sum())


PLACES: dict[str, tuple[Callable[[], int], int]] = {
    "test_share": (
        lambda: int(drawn_test(None, 100, 0.07, 0, torch.zeros(100).long()).sum()),
        7,
    ),
    "train_fraction": (
        lambda: int(
            hold_out(np.arange(90), np.array([90]), 0.7, np.random.default_rng(0))[0].count
        ),
        63,
    ),
    "used": (lambda: int(MajorityClass(num_clients=2, used=0.29).counts(100, 2).sum(1)[0]), 29),
    "majority": (
        lambda: int(MajorityClass(num_clients=2, used=1.0, majority=0.58).counts(50, 2)[0, 0]),
        29,
    ),
    "epochs": (
        lambda: int(Solver(lr=0.1, epochs=1.15, batch_size=1).all_steps(torch.tensor(100))),
        115,
    ),
    "trim": (lambda: trimmed(0.29, 100), 29),
    "hostile": (lambda: averaged(0.29, 100), 100 - 29 - 2),
}


@pytest.mark.parametrize("place", PLACES)
def test_whoever_takes_a_share_takes_the_exact_one(place: str) -> None:
    found, wanted = PLACES[place]
    assert found() == wanted


def test_members_that_a_share_allows_are_allowed() -> None:
    ClientDP(min_members=29)._check_members(1, 0.29 * 100)

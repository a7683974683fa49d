"""Which choice a method is, and which settings are tried."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fedclust.advise.arms import check_methods, choice_of, settings
from fedclust.config.tree import roots
from fedclust.helpers.errors import ConfigError
from fedclust.tuning.space import Dimension

RATE = Dimension("solver.lr", low=0.001, high=1.0, log=True)
GROUPS = Dimension("num_clusters", options=(2, 3, 4))


@pytest.mark.parametrize(
    ("method", "choice"),
    [
        ("local", "alone"),
        ("fedavg", "one"),
        ("finetune", "adapted"),
        ("ditto", "adapted"),
        ("ifca", "groups"),
    ],
)
def test_a_method_is_what_its_file_says(method: str, choice: str) -> None:
    assert choice_of(method, roots(None)) == choice


def test_a_method_that_knows_the_groups_is_no_choice() -> None:
    with pytest.raises(ConfigError, match="algorithm=oracle is not allowed"):
        choice_of("oracle", roots(None))


def test_every_question_needs_a_method() -> None:
    check_methods({"local": "alone", "fedavg": "one", "ifca": "groups"})
    with pytest.raises(ConfigError, match="a model for each group"):
        check_methods({"local": "alone", "fedavg": "one"})


def test_every_method_has_the_same_number_of_settings() -> None:
    with_groups = settings({"solver.lr": RATE, "num_clusters": GROUPS}, 6, 10)
    without = settings({"solver.lr": RATE}, 6, 10)
    assert len(with_groups) == len(without) == 6
    assert {one["num_clusters"] for one in with_groups} == {2, 3, 4}
    rates = [one["solver.lr"] for one in without]
    ratios = [b / a for a, b in pairwise(rates)]  # type: ignore[operator]
    assert ratios == pytest.approx([1000 ** (1 / 6)] * 5, rel=0.01)
    assert min(rates) == pytest.approx(0.001 * 1000 ** (1 / 12), rel=0.01)  # type: ignore[type-var]


def test_there_are_fewer_groups_than_clients() -> None:
    space = {"solver.lr": RATE, "num_clusters": GROUPS}
    assert {one["num_clusters"] for one in settings(space, 6, 4)} == {2, 3}
    assert {one["num_clusters"] for one in settings(space, 6, 3)} == {2}
    assert {one["num_clusters"] for one in settings(space, 6, 2)} == {2}
    many = {"num_clusters": Dimension("num_clusters", options=(6, 7))}
    assert settings(many, 6, 5) == [{"num_clusters": 4}]
    assert len(settings(space, 6, 4)) == 6

"""Clusters that do not wait for each other: hand-computed times, identities and bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_jobs import config_of
from planted import ALGORITHMS, configured, copied, federation, rounds_of, same, simulate
from run_folders import assert_pieces_make_the_whole
from test_timing import devices, numbers, seconds, timed

from fedclust.config.build import build
from fedclust.core.traits import traits_of
from fedclust.helpers.errors import ConfigError
from fedclust.runtime.contract import fields_of
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

UNEVEN = torch.tensor([48.0, 3.0, 17.0, 9.0, 30.0, 5.0, 48.0, 2.0, 11.0, 24.0, 6.0, 40.0])
ONE_SERVER = {"lcfl", "diffnorm", "gradcos", "gradcos_batch", "kmeans_models", "flhc"}
GROUPS = {"flexcfl", "flexcfl_rac", "flexcfl_rcc", "fedgroup", "oracle", "by_attribute"}
OTHERS = {"pacfl", "fedclust", "flux", "ocfl", "sattler_cfl", "cfl_gp", "fedgwc"}
DRIFTING = {"feddrift", "feddrift_eager", "local"}
AROUND = {"last_local"}  # LCFL
APART = sorted(ONE_SERVER | GROUPS | OTHERS | DRIFTING | AROUND)


def there(states: list[Any]) -> list[list[float]]:
    return [state.there.tolist() for state in states]


def of_cohorts(*cohorts: list[int], **changes: Any) -> list[Any]:
    rounds = rounds_of(federation(), len(cohorts))
    return [
        replace(rnd, cohort=torch.tensor(cohort), **changes)
        for rnd, cohort in zip(rounds, cohorts, strict=True)
    ]


@pytest.mark.full  # composes every method
def test_who_says_so() -> None:
    """Not those whose clients are sent all models, nor those whose clusters exchange something."""
    found = [name for name in ALGORITHMS if traits_of(configured(name)).apart]
    assert sorted(found) == APART
    assert traits_of(configured("feddrift", "algorithm.every=3")).apart == ""
    assert traits_of(configured("local")).apart == "clients"


def test_two_clusters_by_hand() -> None:
    """Of two groups, 0 and 3 are in one and 1 and 4 in the other; 0 and 4 take ten seconds."""
    own = devices(torch.tensor([4.8, 48, 48, 48, 4.8, *[48] * 7], dtype=torch.float64))
    rounds = of_cohorts([0, 1], [3, 4], [0], [1, 3])
    _, costs = simulate(timed("oracle", own), rounds)
    assert seconds(costs) == pytest.approx([10, 10, 10, 1])
    states, costs = simulate(timed("oracle", own, wait="cluster"), rounds)
    assert there(states) == [[10, 1, 0], [11, 11, 0], [21, 11, 0], [22, 12, 0]]
    assert seconds(costs) == pytest.approx([10, 1, 10, 1])
    assert states[-1].there.dtype == torch.float64


def test_every_client_alone_waits_for_nobody() -> None:
    own = devices(torch.tensor([4.8, 48, 24, *[48] * 9], dtype=torch.float64))
    rounds = of_cohorts([0, 1], [1, 2], [1, 2], [0, 2])
    method = replace(
        timed("local", own, wait="cluster"),
        base=configured("local", "algorithm.participants=cohort"),
    )
    states, costs = simulate(method, rounds)
    assert there(states[-1:])[0][:4] == [20, 3, 6, 0]
    assert [cost.notes["simulated_seconds"] for cost in costs[1:]] == pytest.approx([10, 0, 0, 10])
    # nobody waits for those that are late
    states, _ = simulate(replace(method, deadline=5.0), rounds)
    assert there(states[-1:])[0][:3] == [0, 3, 6]
    # one that has not arrived does not begin before the others
    late = [replace(rnd, present=torch.arange(12) != 5) for rnd in rounds]
    states, _ = simulate(method, late)
    assert float(states[-1].there[5]) == 20


def test_a_server_waits_until_the_deadline_in_every_cluster_that_trains() -> None:
    own = devices(torch.tensor([4.8, 48, 24, *[48] * 9], dtype=torch.float64))
    method = timed("oracle", own, wait="cluster", deadline=3.0)
    states, _ = simulate(method, of_cohorts([0, 1, 3], [1, 2], [0, 4, 5]))
    assert there(states) == [[3, 3, 0], [3, 4, 2], [3, 7, 5]]


@pytest.mark.full
@pytest.mark.parametrize("name", ["fedavg", "ifca", "fedbuff", "ifca_fedbuff"])
def test_other_methods_wait_as_before(name: str) -> None:
    rounds = rounds_of(federation(), 4, participation=0.5)
    states, costs = simulate(timed(name, devices(UNEVEN), wait="cluster"), rounds)
    _, others = simulate(timed(name, devices(UNEVEN)), rounds)
    assert seconds(costs) == seconds(others)
    assert all(len(state.there) == 1 for state in states)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=() if name in ("lcfl", "oracle", "sattler_cfl") else pytest.mark.full
        )
        for name in APART
    ],
)
def test_identities_and_bounds(name: str) -> None:
    fed = federation()
    # with equal devices, and participants in every cluster, nothing changes
    rounds = rounds_of(fed)
    own = devices(7.0, 100.0, 50.0)
    _, costs = simulate(timed(name, own, wait="cluster"), rounds)
    _, others = simulate(timed(name, own), rounds)
    assert seconds(costs) == pytest.approx(seconds(others))
    # otherwise nobody is later than where all wait, and no result is another one
    rounds, own = rounds_of(fed, participation=0.5), devices(UNEVEN, 100.0, 50.0)
    all_wait, _ = simulate(timed(name, own), rounds)
    states, costs = simulate(timed(name, own, wait="cluster"), rounds)
    last = [state.elapsed for state in states]
    assert last == [float(state.there.max()) for state in states]
    for one, other, end in zip(all_wait, states, last, strict=True):
        for key, value in fields_of(one).items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, getattr(other, key)), key
        assert end <= one.elapsed + 1e-9
    assert last == sorted(last)
    spent = sum(cost.notes.get("simulated_seconds", 0) for cost in costs)
    assert spent == pytest.approx(last[-1])
    rest, _ = simulate(timed(name, own, wait="cluster"), rounds[-2:], copied(states[-3]))
    assert same(rest[-1], states[-1])


def test_not_earlier_than_the_slowest_cluster() -> None:
    rounds = rounds_of(federation(), participation=0.5)
    states, _ = simulate(timed("oracle", devices(UNEVEN), wait="cluster"), rounds)
    for group in range(3):
        alone = 0.0
        for rnd in rounds:
            here = [i for i in rnd.cohort.tolist() if i % 3 == group]
            alone += max((48 / float(UNEVEN[i]) for i in here), default=0.0)
        assert float(states[-1].there[group]) == pytest.approx(alone)


def test_one_cluster_is_as_before() -> None:
    fed = federation()
    fed = replace(fed, group=torch.zeros_like(fed.group))
    rounds = rounds_of(fed, 4, participation=0.5)
    _, costs = simulate(timed("oracle", devices(UNEVEN), wait="cluster"), rounds)
    _, others = simulate(timed("oracle", devices(UNEVEN)), rounds)
    assert seconds(costs) == seconds(others)


def test_everybody_waits_where_more_is_asked() -> None:
    """After two rounds of warm-up the clusters train apart; a client that arrives in round 4 is
    sent all models.
    """
    method = replace(
        timed("lcfl", devices(UNEVEN), wait="cluster"),
        base=configured("lcfl", "algorithm.warmup.rounds=2"),
    )
    states, _ = simulate(method, rounds_of(federation(), 6, absent=[11], until=4))
    assert [len(state.there) for state in states] == [1, 1, 1, 3, 1, 3]
    assert len(set(there(states)[3])) == 3
    # and the slowest of all is done before the last round begins
    assert min(there(states)[5]) > max(there(states)[4])


def test_everybody_waits_where_data_change() -> None:
    rounds = of_cohorts([0, 1], [3, 4], [1])
    rounds[1] = replace(rounds[1], shifted=torch.arange(12) == 7)
    states, _ = simulate(timed("oracle", devices(UNEVEN), wait="cluster"), rounds)
    assert [len(state.there) for state in states] == [3, 1, 3]
    end = 16 + 48 / 9
    assert there(states)[1] == pytest.approx([end])
    assert there(states)[2] == pytest.approx([end, end + 16, end])


def test_groups_that_move_towards_each_other_wait() -> None:
    assert traits_of(configured("flexcfl_inter")).apart == ""
    assert traits_of(configured("flexcfl")).apart == "clusters"


@pytest.mark.full
def test_a_job_takes_less_time(tmp_path: Path) -> None:
    short = ("seeds=1", "rounds=6", "clock=devices", "clock.speed_spread=2")
    used = []
    for wait in ("all", "cluster"):
        config = config_of("oracle", *short, f"clock.wait={wait}")
        run(build(config), RunFolder(tmp_path / wait, config), Silent())
        used.append(sum(numbers(tmp_path / wait)))
    assert used[1] < used[0]
    assert numbers(tmp_path / "all", "accuracy") == numbers(tmp_path / "cluster", "accuracy")


def test_hours_are_those_of_the_last_cluster(tmp_path: Path) -> None:
    given = ("seeds=1", "rounds=40", "eval_every=2", "clock=devices", "clock.wait=cluster")
    config = config_of("oracle", *given, f"stop.hours={5 / 3600}")
    run(build(config), RunFolder(tmp_path, config), Silent())
    used = numbers(tmp_path)
    assert len(used) < 40
    assert sum(used) >= 5 > sum(used[:-2])


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"clock.wait=group is not allowed: "):
        build(config_of("oracle", "clock=devices", "clock.wait=group"))


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["lcfl", "local"])
def test_an_interrupted_run_ends_with_the_same_bits(algorithm: str, tmp_path: Path) -> None:
    config = config_of(algorithm, "clock=devices", "clock.speed_spread=1", "clock.wait=cluster")
    assert_pieces_make_the_whole(config, tmp_path)

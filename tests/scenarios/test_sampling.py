"""Cohorts of every scenario: in turn first, the same for everybody, and the same when replayed."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from scenario_toys import federation, numbers, play

from fedclust.core.verbs import Scenario
from fedclust.helpers.errors import ConfigError
from fedclust.scenarios.newcomers import Newcomers
from fedclust.scenarios.static import Static

CONF = Path(__file__).parents[2] / "conf" / "scenario"
SCENARIOS = sorted(file.stem for file in CONF.glob("*.yaml"))


def configured(name: str, **options: object) -> Scenario:
    of_toys = {"column": 1} if name == "periods" else {}
    node = OmegaConf.merge(OmegaConf.load(CONF / f"{name}.yaml"), of_toys, options)
    whole = OmegaConf.merge(
        OmegaConf.load(CONF.parent / "config.yaml"),
        {"participation": 0.3, "clients_per_round": None, "scenario": node},
    )
    scenario: Scenario = instantiate(whole.scenario)
    return scenario


@pytest.mark.parametrize("size", [1, 6, 7, 20])
def test_everyone_has_a_turn_before_anyone_is_drawn(size: int) -> None:
    rounds = play(Static(clients_per_round=size, selection="round_robin_first"), federation(), 60)
    turns = -(-20 // size)
    in_turn = [rnd.cohort.tolist() for rnd in rounds[:turns]]
    assert in_turn[0] == list(range(size))
    assert set().union(*in_turn) == set(range(20))
    assert all(len(cohort) == size for cohort in in_turn)
    assert sum(len(set(cohort)) for cohort in in_turn[:-1]) == size * (turns - 1), (
        "nobody has two turns"
    )
    later = play(Static(clients_per_round=size), federation(), 60)
    assert all(
        torch.equal(a.cohort, b.cohort) for a, b in zip(rounds[turns:], later[turns:], strict=True)
    )


def test_the_last_turn_begins_the_list_again() -> None:
    rounds = play(Static(clients_per_round=6, selection="round_robin_first"), federation(), 4)
    assert rounds[3].cohort.tolist() == [0, 1, 2, 3, 18, 19]


def test_cohorts_are_rounded() -> None:
    """Of ten clients; half of an odd number goes to the even neighbour, as Python rounds."""
    parts = (0.01, 0.16, 0.24, 0.37, 0.5, 0.96, 1.0)
    assert [Static(participation=p).cohort_size(10) for p in parts] == [1, 2, 2, 4, 5, 10, 10]
    assert len(play(Static(participation=0.19), federation(), 1)[0].cohort) == 4  # 3.8 of 20


def test_clients_without_data_have_no_turn() -> None:
    scenario = Static(clients_per_round=3, selection="round_robin_first")
    cohorts = [r.cohort.tolist() for r in play(scenario, federation(empty=(0, 4)), 2)]
    assert cohorts == [[1, 2, 3], [5, 6, 7]]


def test_newcomers_have_their_turn_when_they_arrive() -> None:
    scenario = Newcomers(
        fraction=0.3, arrive_at=[8], clients_per_round=4, selection="round_robin_first"
    )
    rounds = play(scenario, federation(), 10)
    late = (~rounds[0].present).nonzero().squeeze(1).tolist()
    assert len(late) == 6
    turns = set(rounds[8].cohort.tolist()) | set(rounds[9].cohort.tolist())
    assert set(late) <= turns


@pytest.mark.thinned
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("selection", ["random", "round_robin_first"])
def test_a_replay_is_equal_and_another_seed_is_not(name: str, selection: str) -> None:
    fed, scenario = federation(), configured(name, selection=selection)
    first = [numbers(r) for r in play(scenario, fed, 25)]
    resumed = list(islice(scenario.rounds(fed, 0), 17, 25))
    assert [numbers(r) for r in resumed] == first[17:]
    assert [numbers(r)[2:] for r in play(scenario, fed, 25, seed=1)] != [n[2:] for n in first]


@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_an_algorithm_does_meanwhile_changes_nothing(name: str) -> None:
    fed, scenario = federation(), configured(name)
    quiet = [numbers(r) for r in play(scenario, fed, 25)]
    busy = []
    for rnd in islice(scenario.rounds(fed, 0), 25):
        torch.manual_seed(rnd.t)
        torch.rand(rnd.t + 1)
        rnd.sample(3, rnd.cohort)
        rnd.stream("swap").numpy().random(5)
        busy.append(numbers(rnd))
    assert busy == quiet


@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_rounds_are_well_formed(name: str) -> None:
    fed = federation(empty=(3,))
    for t, rnd in enumerate(play(configured(name), fed, 60)):
        assert rnd.t == t
        assert rnd.fed.pool is fed.pool
        assert rnd.cohort.tolist() == sorted(set(rnd.cohort.tolist()))
        assert len(rnd.cohort) >= 1
        assert rnd.present[rnd.cohort].all()
        assert (rnd.fed.train.count[rnd.cohort] > 0).all()
        assert not rnd.dropped[rnd.cohort].any() or len(rnd.cohort) == 1
        assert rnd.work.dtype == torch.float32
        assert ((rnd.work > 0) & (rnd.work <= 1)).all()
        for mask in (rnd.present, rnd.shifted, rnd.dropped):
            assert mask.shape == (20,)
            assert mask.dtype == torch.bool
        for split in (rnd.fed.train, rnd.fed.test):
            assert split.index.dtype == torch.int32
            assert split.start.dtype == torch.int64
            assert int(split.start[-1]) == len(split.index)


def test_static_changes_nothing() -> None:
    fed = federation()
    for rnd in play(Static(), fed, 5):
        assert rnd.fed is fed
        assert rnd.present.all()
        assert not rnd.shifted.any()
        assert not rnd.dropped.any()
        assert (rnd.work == 1).all()


def test_an_unknown_selection_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"selection=robin .* one of random, round_robin_first"):
        Static(selection="robin")  # type: ignore[arg-type]

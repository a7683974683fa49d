"""Who is there: newcomers, drop-outs and stragglers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from scenario_toys import federation, play

from fedclust.helpers.errors import ConfigError
from fedclust.scenarios.newcomers import Newcomers
from fedclust.scenarios.static import Static
from fedclust.scenarios.unavailable import Unavailable


def test_a_run_that_ends_before_an_arrival_says_so() -> None:
    scenario = Newcomers(arrive_at=[3, 6])
    assert "the next would in round 7, and the run has 6" in scenario.remark(6)
    assert "the next would in round 4, and the run has 2" in scenario.remark(2)
    assert scenario.remark(7) == ""


def test_newcomers_arrive_in_equal_parts_and_stay() -> None:
    rounds = play(Newcomers(fraction=0.4, arrive_at=[2, 5], participation=0.5), federation(), 8)
    assert [int(r.present.sum()) for r in rounds] == [12, 12, 16, 16, 16, 20, 20, 20]
    for before, after in pairwise(rounds):
        assert (after.present | ~before.present).all()
    assert [len(r.cohort) for r in rounds] == [6, 6, 8, 8, 8, 10, 10, 10]
    assert not any(r.shifted.any() for r in rounds)


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 6])
def test_who_has_arrived_at_the_end_was_present_in_the_last_round(rounds: int) -> None:
    scenario, fed = Newcomers(fraction=0.4, arrive_at=[2, 5]), federation()
    arrived = scenario.arrived(fed, 3, rounds)
    assert torch.equal(arrived, play(scenario, fed, rounds, 3)[-1].present)
    assert Static().arrived(fed, 3, rounds) is None


def test_the_number_of_late_clients_is_rounded() -> None:
    """Of 20: 0.6, 3.4 and 3.6 clients; at least one."""
    late = [
        int((~play(Newcomers(fraction=part), federation(), 1)[0].present).sum())
        for part in (0.03, 0.17, 0.18)
    ]
    assert late == [1, 3, 4]


def test_absent_clients_are_never_sampled() -> None:
    for seed in range(5):
        for rnd in play(Newcomers(fraction=0.5, arrive_at=[30]), federation(), 30, seed):
            assert rnd.cohort.tolist() == rnd.present.nonzero().squeeze(1).tolist()


def test_who_comes_late_differs_between_seeds_and_owns_data() -> None:
    fed = federation(empty=(0, 7))
    late = [~play(Newcomers(fraction=0.5), fed, 1, seed)[0].present for seed in range(20)]
    assert all(int(mask.sum()) == 9 for mask in late)
    assert not any(mask[0] or mask[7] for mask in late)
    often = torch.stack(late).sum(0)
    assert (often[[i for i in range(20) if i not in (0, 7)]] > 0).all()


def test_somebody_is_late_and_somebody_is_not() -> None:
    assert int(play(Newcomers(fraction=0.001), federation(), 1)[0].present.sum()) == 19
    assert int(play(Newcomers(fraction=0.999), federation(), 1)[0].present.sum()) == 1


@pytest.mark.parametrize("rounds", [[], [0], [5, 5], [9, 3]])
def test_rounds_of_arrival_ascend_from_one(rounds: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"scenario.arrive_at=\["):
        Newcomers(arrive_at=rounds)


def test_more_arrivals_or_larger_cohorts_than_clients_are_refused_at_once() -> None:
    with pytest.raises(
        ConfigError, match=r"scenario.arrive_at=\[1, 2, 3\].*at most 2 rounds of arrival"
    ):
        Newcomers(arrive_at=[1, 2, 3]).rounds(federation(3), 0)
    with pytest.raises(ConfigError, match=r"clients_per_round=15.*10 clients"):
        Newcomers(fraction=0.5, clients_per_round=15).rounds(federation(), 0)


def test_drop_outs_are_those_missing_from_the_cohort() -> None:
    fed = federation(200)
    plain = play(Static(participation=0.5), fed, 40)
    rounds = play(Unavailable(participation=0.5, dropout=0.3), fed, 40)
    for whole, rnd in zip(plain, rounds, strict=True):
        assert set(rnd.cohort.tolist()) == set(whole.cohort[~rnd.dropped[whole.cohort]].tolist())
        assert rnd.present.all()
    dropped = torch.stack([r.dropped for r in rounds]).float()
    assert abs(float(dropped.mean()) - 0.3) < 5 * (0.21 / dropped.numel()) ** 0.5
    assert len(dropped.unique(dim=0)) == 40, "drawn anew in every round"


def test_methods_that_sample_for_themselves_meet_the_same_drop_outs() -> None:
    rnd = play(Unavailable(dropout=0.5), federation(200), 1)[0]
    everyone = torch.arange(200)
    assert torch.equal(rnd.sample(200, everyone), rnd.cohort)
    assert not rnd.dropped[rnd.sample(50, everyone)].any()
    assert set(rnd.sample(50, everyone).tolist()) <= set(rnd.sample(100, everyone).tolist())


def test_one_client_stays_where_all_would_drop_out() -> None:
    rounds = play(Unavailable(dropout=0.95, clients_per_round=2), federation(), 60)
    assert all(len(r.cohort) >= 1 for r in rounds)
    assert any(r.dropped[r.cohort].all() for r in rounds)


def test_stragglers_do_a_uniform_part_of_their_work() -> None:
    rounds = play(Unavailable(stragglers=0.4, min_work=0.2), federation(200), 40)
    work = torch.stack([r.work for r in rounds])
    part = work[work < 1]
    assert abs(len(part) / work.numel() - 0.4) < 5 * (0.24 / work.numel()) ** 0.5
    assert part.min() >= 0.2
    assert abs(float(part.mean()) - 0.6) < 5 * 0.8 / (12 * len(part)) ** 0.5
    assert (play(Unavailable(), federation(), 1)[0].work == 1).all()


def test_drop_outs_and_stragglers_are_independent() -> None:
    rounds = play(Unavailable(dropout=0.5, stragglers=0.5), federation(200), 40)
    late = torch.stack([r.work < 1 for r in rounds]).float()
    dropped = torch.stack([r.dropped for r in rounds]).float()
    both = float((late * dropped).mean())
    assert abs(both - 0.25) < 5 * (0.1875 / late.numel()) ** 0.5


@pytest.mark.parametrize(
    ("key", "value"), [("dropout", 1.0), ("dropout", -0.1), ("stragglers", 2.0), ("min_work", 0.0)]
)
def test_probabilities_are_checked(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"Unavailable.{key}={value}"):
        Unavailable(**{key: value})

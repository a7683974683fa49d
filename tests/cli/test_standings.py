"""The benchmark's standings from made-up results, whose answers are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedclust.benchmark import page
from fedclust.benchmark.answers import answers
from fedclust.benchmark.frozen import frozen
from fedclust.benchmark.results import TRACKS, Result
from fedclust.benchmark.standings import block, standings
from fedclust.report import fairness

SEEDS = (0, 1, 2)
CASES = {"a": "v1_natural/activities", "b": "v1_natural/flights"}
ROUNDS = np.array([1, 10, 20])


def result(method: str, case: str, score: float, *, cost: float = 1.0, **changed: object) -> Result:
    """One whose seeds are 0.1 points around a score, which it reaches in two steps."""
    client = np.arange(10)
    right = np.full(10, round(score))
    tested = fairness.TestedClients(client, client * 0, right, np.full(10, 100))
    given: dict[str, object] = {
        "title": case,
        "metric": "accuracy",
        "tuned": False,
        "told": None,
        "seeds": SEEDS,
        "score": score + np.array([-0.1, 0.0, 0.1]),
        "clients": dict.fromkeys(SEEDS, tested),
        "at": ROUNDS,
        "curve": np.array([0.0, score / 2, score]),
        "spent": {"bytes": cost * ROUNDS, "gradient_steps": ROUNDS * 1.0},
        "seconds": 1.0,
        "search": 4.8 if changed.get("tuned") else 0.0,
        "guess": 10.0,
        "redrawn": 0.0,
        "commit": "abc",
        "machine": "a machine",
    }
    return Result(method, case, **(given | changed))  # type: ignore[arg-type]


def of(scores: dict[str, Sequence[float]], **costs: float) -> list[Result]:
    """The results of methods in federations named a, b, …"""
    return [
        result(name, case, score, cost=costs.get(name, 1.0))
        for name, values in scores.items()
        for case, score in zip("abc", values, strict=False)
    ]


def test_nothing_stands_anywhere_without_a_method_to_compare() -> None:
    alone = of({"fedavg": [70], "local": [60], "oracle": [90]})
    assert standings(alone, ["a"]) is None
    assert standings([*alone, result("good", "a", 80)], ["a"]) is not None


def test_shares_ranks_and_costs() -> None:
    found = standings(
        of(
            {
                "oracle": [90, 80, 50],
                "fedavg": [70, 60, 50],
                "local": [60, 65, 40],
                "good": [85, 80, 51],
                "copy": [85.2, 80.2, 51.2],
            },
            good=2.0,
        ),
        "abc",
    )
    assert found is not None
    assert [one.case for one in found.helped] == ["a", "b"]
    by_name = {row.name: row for row in found.rows}
    assert set(by_name) == {"fedavg", "local", "good"}
    good = by_name["good"]
    assert good.family == ("good", "copy")
    assert good.shares == pytest.approx({"a": 75.0, "b": 100.0})
    assert good.median == pytest.approx(87.5)
    assert good.worst == pytest.approx(75.0)
    assert good.elsewhere == pytest.approx({"c": 1.0})
    assert (good.rank, good.first, good.last, good.wins) == (1.0, 1, 1, 3)
    # fedavg is second, third and second
    assert by_name["fedavg"].rank == pytest.approx(7 / 3)
    assert (by_name["fedavg"].first, by_name["local"].last) == (2, 3)
    assert found.cost("good", "bytes") == pytest.approx(2.0)
    # at half of its bytes it has half of its score
    at_equal = [(42.5 - 70) / 20, (40 - 60) / 20]
    assert found.at_equal("good", "bytes") == pytest.approx(100 * np.mean(at_equal))
    assert found.at_equal("good", "gradient_steps") == pytest.approx(87.5)
    assert found.until("good", "bytes", 0.9) == pytest.approx(2.0)
    assert np.isinf(found.until("fedavg", "bytes", 0.9))
    assert found.worst_tenth("good") == pytest.approx((15 + 20 + 1) / 3)
    # percent of the clients more than two points below local
    assert found.hurt("good") == 0.0
    assert found.hurt("fedavg") == pytest.approx(100 / 3)


def test_undecided_places_overlap() -> None:
    """Two methods that swap places from federation to federation share both."""
    found = standings(
        of({"fedavg": [50, 50, 50], "left": [60, 70, 65], "right": [70, 60, 66]}), "abc"
    )
    assert found is not None
    places = {row.name: (row.first, row.last) for row in found.rows}
    assert places["fedavg"] == (3, 3)
    assert places["right"] == (1, 2)
    assert places["left"] == (1, 2)


def test_what_has_not_run_everywhere_is_named() -> None:
    some = of({f"m{i}": [50 + i, 50 + i] for i in range(20)} | {"fedavg": [50, 50], "few": [60]})
    found = standings(some, "abc")
    assert found is not None
    assert [one.case for one in found.federations] == ["a", "b"]
    assert found.left_out == {"few": ("b",)}
    assert "few" not in found.methods
    assert standings([one for one in some if one.method != "fedavg"], "abc") is None


def test_a_method_without_a_federation_counts_in_the_others_but_is_in_no_ranking() -> None:
    many = {f"m{i}": [50, 50] for i in range(18)}
    some = of(many | {"fedavg": [70, 70], "local": [60, 75], "deep": [80], "oracle": [99, 99]})
    natural = block(frozen("v1_natural"), [replace(one, case=CASES[one.case]) for one in some])
    planted = block(frozen("v1"), [])
    data = " ".join(page.data(planted, natural).split())
    assert "in a federation, so not ranked: deep (b)." in data
    _, found = natural.first
    assert "deep" not in found.methods
    first, second = found.federations
    assert (first.alternative, first.better, len(first.others)) == ("fedavg", ["deep"], 19)
    assert (second.alternative, second.better, len(second.others)) == ("local", [], 18)


def test_methods_of_a_later_track_alone_are_named_beside_the_first_table() -> None:
    case = "v1/rotation"
    plain = [replace(one, case=case) for one in of({"fedavg": [70], "local": [60]})]
    both = [result("lcfl", case, 80, told=told) for told in (True, False)]
    block_of = block(frozen("v1"), [*plain, *both, result("ifca", case, 85, told=True)])
    text = " ".join(page.page(block_of, None, "x").split())
    assert "In “number told” alone: ifca." in text
    assert "| lcfl | 1.0 | 1 |" in text


def test_a_track_leads_once_it_has_half_of_the_federations_of_the_fullest() -> None:
    cases = ["v1/rotation", "v1/label_map", "v1/drift"]
    told = [result("ifca", case, 85, told=True) for case in cases]
    plain = [result("fedavg", case, 70) for case in cases]
    searched = [
        result(name, case, 90, told=None if name == "fedavg" else False, tuned=True)
        for case in cases[:2]
        for name in ("fedavg", "ifca")
    ]
    tuned, _, first = TRACKS
    for many, leading in ((0, first), (2, first), (4, tuned)):
        made = block(frozen("v1"), [*told, *plain, *searched[:many]])
        assert made.first[0] == leading
        # what is said of all kinds of shift comes from the track with most federations
        assert len(made.widest[1].federations) == (3 if leading == first else 2)
        text = " ".join(page.page(made, None, "x").split())
        assert ("in too few federations: tuned" in text) == (leading == first)
        assert ("A search costs 4.8 runs of its method" in text) == (leading == tuned)


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ({"told": True}, ""),
        ({"told": False}, " num_clusters=auto"),
        ({"told": None}, ""),
        ({"told": False, "tuned": True}, " tuned=outputs/benchmark/v1-tuning"),
        ({"told": None, "tuned": True}, " tuned=outputs/benchmark/v1-tuning"),
    ],
)
def test_the_first_answer_gives_the_command_of_its_track(
    given: dict[str, object], typed: str
) -> None:
    cases = ["v1/rotation", "v1/label_map"]
    best = [result("lcfl", case, 85, **given) for case in cases]
    other = [result("ifca", case, 80, **(given | {"told": bool(given["told"])})) for case in cases]
    plain = [result("fedavg", case, 70, **(given | {"told": None})) for case in cases]
    made = block(frozen("v1"), [*best, *other, *plain])
    assert f"benchmark/v1 algorithm=lcfl{typed}`" in answers(made, None)[0]


def test_a_job_plays_in_the_tracks_of_what_it_knew() -> None:
    tuned, found, told = TRACKS
    needs_none = result("fedavg", "a", 50.0)
    assert [needs_none.plays_in(track) for track in TRACKS] == [False, True, True]
    given = result("ifca", "a", 50.0, told=True)
    assert [given.plays_in(track) for track in TRACKS] == [False, False, True]
    searched = result("ifca", "a", 50.0, told=False, tuned=True)
    assert [searched.plays_in(track) for track in (tuned, found, told)] == [True, False, False]


def test_jobs_of_two_versions_or_machines_are_not_subtracted() -> None:
    one = result("fedavg", "a", 70)
    assert one.is_made_like(replace(one, case="b"))
    assert not one.is_made_like(replace(one, commit="def"))
    assert not one.is_made_like(replace(one, machine="another one"))

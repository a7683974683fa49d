"""What an advice says of clients and groups, of numbers whose intervals are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from fedclust.advise.crossed import Relation
from fedclust.advise.differences import Difference
from fedclust.advise.repetitions import Repetitions
from fedclust.advise.tables import sites_table
from fedclust.advise.verdict import Evidence, verdict
from fedclust.advise.words import Advice, sentences, shown, sites
from fedclust.report.statistics.paired import Paired, paired

CHOSEN = ("alone", "one", "groups")


def advice(
    gaps: list[list[float]], test: int, train: int, agreement: float = 1.0, count: int = 2
) -> Advice:
    """Clients [M, R] that lose so much accuracy by one model; alone all are at a half."""
    repetitions = len(gaps[0])
    rows = [
        {"choice": choice, "seed": seed, "client": client, "train_count": train}
        | {"test_count": test, "score": 0.5 - (gap if choice == "one" else 0.0)}
        for choice in CHOSEN
        for client, own in enumerate(gaps)
        for seed, gap in enumerate(own)
    ]
    scores = {choice: np.full(repetitions, 0.5) for choice in CHOSEN}
    scores["one"] = 0.5 - np.array(gaps).mean(0)
    known = Evidence(count, agreement, 0.01)
    groups = np.arange(len(gaps)) % 2 if known.agrees else np.zeros(len(gaps), dtype=np.int64)
    return Advice(
        verdict=verdict(scores, test / train, 0.01, known, 100),
        repetitions=Repetitions(
            metric="accuracy",
            better="higher",
            seeds=range(repetitions),
            chosen={},
            losses=dict.fromkeys(CHOSEN, np.zeros(repetitions)),
            scores=scores,
            labels=np.zeros((repetitions, len(gaps)), dtype=np.int64),
            clients=pd.DataFrame(rows),
            redrawn=test / train,
            rows=100,
        ),
        evidence=known,
        names=[f"s{client}" for client in range(len(gaps))],
        together=np.ones((len(gaps), len(gaps))),
        groups=groups,
        trained=Path(),
        margin=0.01,
    )


def test_equal_gains_of_three_test_rows_are_no_certainty() -> None:
    """Five splits with a third more right each: one row of three."""
    site = sites(advice([[1 / 3] * 5, [0.0] * 5], test=3, train=9))[0]
    assert site.gain is not None
    # the chosen of the two is `one`, 33 points worse; a row differs by 0 or -1
    error = np.sqrt(1 / 3 * 2 / 3 / 3 * (1 / 5 + 3 / 9))
    half = student.ppf(0.975, 4) * error
    assert site.gain.mean == pytest.approx(-1 / 3)
    assert site.gain.low == pytest.approx(-1 / 3 - half)
    assert site.gain.high == pytest.approx(-1 / 3 + half)
    assert site.says == "too few rows to tell"


def test_inputs_that_differ_by_chance_are_not_named() -> None:
    label = Difference("label", (0, 1), 0.4, float("nan"))
    age, dose = Difference("age", (0, 1), 0.5, 0.3), Difference("dose", (0, 1), 0.2, 0.3)
    known = advice([[0.0] * 5, [0.0] * 5], test=3, train=9)
    for inputs, named in (
        ((age, dose), "age 0.50 standard deviations."),
        ((dose,), "no more than"),
    ):
        said = " ".join(sentences(replace(known, differences=[label, *inputs])))
        assert f"labels by 0.40, inputs by {named}" in said
        assert "dose" not in said


def test_no_difference_at_all_still_has_an_interval() -> None:
    site = sites(advice([[0.0] * 10], test=20, train=80))[0]
    assert site.gain is not None
    error = np.sqrt(0.005 * 0.995 / 20 * (1 / 10 + 20 / 80))
    assert site.gain.high == pytest.approx(student.ppf(0.975, 9) * error)
    assert site.says == "cannot be told"


def test_an_interval_of_accuracy_ends_at_a_hundred_points() -> None:
    site = sites(advice([[0.9, -0.9, 0.9]], test=5, train=20))[0]
    assert site.gain is not None
    assert (site.gain.low, site.gain.high) == (-1.0, 1.0)


def test_clients_lose_by_a_correction_for_all_of_them() -> None:
    rng = np.random.default_rng(0)
    spread = rng.normal(scale=0.03, size=10)
    spread = 0.03 * (spread - spread.mean()) / spread.std(ddof=1)
    # so that the interval of one client by itself ends just below zero
    edge = 1.05 * student.ppf(0.975, 9) * 0.03 * np.sqrt(1 / 10 + 0.25)
    own = (spread + edge).tolist()
    alone = advice([own], test=1000, train=4000)
    assert [one.says for one in sites(alone)] == ["loses"]
    among = advice([own, *[spread.tolist()] * 9], test=1000, train=4000)
    assert [one.says for one in sites(among)][:2] == [
        "cannot be told of one among all",
        "cannot be told",
    ]
    sure = advice([[0.3 + 0.01 * one for one in spread], *[own] * 9], test=1000, train=4000)
    assert sites(sure)[0].says == "loses"
    assert "Holm's correction" in sites_table(among).notes[1]


def test_a_long_table_of_clients_is_folded() -> None:
    assert not sites_table(advice([[0.1, 0.2]] * 60, test=10, train=40)).folded
    assert sites_table(advice([[0.1, 0.2]] * 61, test=10, train=40)).folded


@pytest.mark.parametrize(
    ("agreement", "count", "says"),
    [
        (0.5, 2, "The groups that most repetitions agree on: s0 alone; s1 alone (adjusted"),
        (0.49, 2, "The repetitions agree on no groups: the adjusted Rand index between those of"),
        (1.0, 1, "The groups that most repetitions agree on: none, all clients together"),
    ],
)
def test_groups_are_named_where_repetitions_are_alike(
    agreement: float, count: int, says: str
) -> None:
    known = advice([[0.1] * 5, [0.1] * 5], 10, 40, agreement, count)
    assert sum(line.startswith(says) for line in sentences(known)) == 1


def test_a_bound_beside_zero_does_not_look_like_zero() -> None:
    assert shown("accuracy", paired(np.zeros(3)), 0.01) == "+0.0 [+0.0, +0.0] points"
    assert shown("accuracy", paired(np.array([-0.0004, 0.0004])), 0.01).startswith("+0.0 [-0.5")
    assert (
        shown("accuracy", Paired(3, 0.012, 0.0002, 0.0238, 0.04), 0.01)
        == "+1.20 [+0.02, +2.38] points"
    )
    assert shown("train_loss", paired(np.array([-1e8, 1e8])), 1e6).startswith(
        "+0 [-1,270,620,474, "
    )


def made(known: Evidence, **means: float) -> Advice:
    """An advice of two clients on choices of these scores, which hardly vary."""
    plain = advice([[0.1] * 5, [0.1] * 5], 10, 40)
    noise = 1e-4 * np.array([-1.0, 1.0, 0.0, 1.0, -1.0])
    scores = {choice: mean + place * noise for place, (choice, mean) in enumerate(means.items())}
    return replace(
        plain,
        verdict=verdict(scores, 0.25, 0.01, known, 100),
        evidence=known,
        repetitions=replace(plain.repetitions, scores=scores),
    )


def test_groups_that_are_doubted_are_no_runner_up() -> None:
    doubted = made(Evidence(2, 0.43, 0.01), alone=0.8, one=0.7, groups=0.9)
    head = sentences(doubted)[0]
    assert head.startswith(
        "Verdict: each client alone. It is better than every other choice without"
    )
    assert "over the runner-up, one model for all, by +10.0 [" in head
    assert any(
        "Groups have the best mean, but are not claimed" in one for one in sentences(doubted)
    )


def test_the_groups_of_the_job_in_use_are_told_where_they_are_others() -> None:
    sure = made(Evidence(2, 1.0, 0.01), alone=0.8, one=0.7, groups=0.9)
    same, other = (replace(sure, in_use=np.array(one)) for one in ([1, 0], [0, 0]))
    assert sentences(same)[0].startswith("Verdict: these groups, a model each: s0 alone; s1 alone.")
    assert sentences(other)[0].startswith(
        "Verdict: a model for each group of clients. It is better"
    )
    told = [one for one in sentences(other) if one.startswith("The job in use")]
    assert told == [
        "The job in use, whose models predict new rows, was trained once on all rows and has other "
        "groups: {s0, s1}."
    ]
    assert not [one for one in sentences(same) if one.startswith("The job in use")]


@pytest.mark.parametrize(
    ("low", "end"), [(0.01, "points."), (-0.01, "points, which may be chance.")]
)
def test_a_model_of_a_group_is_not_called_better_by_chance(low: float, end: str) -> None:
    lead = Paired(5, 0.05, low, 0.1 - low, 0.04)
    one = Relation(0, "accuracy", 0.9, 0.8, 0.85, lead)
    told = sentences(replace(advice([[0.1] * 5, [0.1] * 5], 10, 40), relations=[one]))
    (line,) = [one for one in told if one.startswith("On the test rows of s0 alone its own model")]
    assert "has 90.00 % in test accuracy, those of the other groups 80.00 %" in line
    assert line.endswith(end)

"""What is said of scores whose intervals are known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student

from fedclust.advise.verdict import CHOICES, Evidence, Needed, verdict

SURE = Evidence(count=2, agreement=1.0, p=0.025)
SPREAD = np.array([-1.0, 1.0] * 5)  # s² = 10 / 9 of ten repetitions
REDRAWN = 0.25


def scores(
    spread: float = 0.001, noisy: tuple[str, ...] = (), **means: float
) -> dict[str, NDArray[np.float64]]:
    """Ten scores by choice about means, those of `noisy` spread, the others all alike."""
    return {
        choice: mean + (spread * SPREAD if choice in noisy else np.zeros(10))
        for choice, mean in means.items()
    }


def half(spread: float, n: int = 10) -> float:
    """Half the interval of Nadeau and Bengio of a mean difference."""
    return float(student.ppf(0.975, n - 1) * spread * math.sqrt(10 / 9 * (1 / n + REDRAWN)))


@pytest.mark.parametrize("choice", list(CHOICES))
def test_a_choice_that_leads_all_others_is_shown(choice: str) -> None:
    given = scores(**{**dict.fromkeys(CHOICES, 0.7), choice: 0.8})
    made = verdict(given, REDRAWN, 0.01, SURE, 1000)
    assert (made.kind, made.choice, made.best, made.left) == ("shown", choice, choice, (choice,))
    assert [one.mean for one in made.gains.values()] == pytest.approx([0.1] * 3)
    assert made.needed is None
    assert made.doubts == ()


def test_the_interval_is_that_of_nadeau_and_bengio() -> None:
    given = scores(0.02, ("one",), alone=0.7, one=0.8)
    lead = verdict(given, REDRAWN, 0.01, SURE, 1000).gains["alone"]
    assert (lead.low, lead.high) == pytest.approx((0.1 - half(0.02), 0.1 + half(0.02)))


def test_a_lead_whose_interval_reaches_zero_is_not_shown() -> None:
    wide = 0.1 / half(1.0)  # of scores spread so much half the interval is the lead itself
    for factor, kind in ((1.01, "open"), (0.99, "shown")):
        given = scores(factor * wide, ("one",), alone=0.7, one=0.8)
        assert verdict(given, REDRAWN, 0.01, SURE, 1000).kind == kind


def test_a_lead_over_one_choice_alone_is_not_enough() -> None:
    given = scores(0.1, ("adapted",), alone=0.7, one=0.7, adapted=0.795, groups=0.8)
    made = verdict(given, REDRAWN, 0.01, SURE, 1000)
    assert (made.kind, made.choice, made.best) == ("open", "adapted", "groups")
    assert made.left == ("adapted", "groups")  # alone and one are shown to be worse


def test_the_simplest_is_enough_where_nothing_left_is_better_by_the_margin() -> None:
    given = scores(0.001, ("groups",), alone=0.6, one=0.7, adapted=0.701, groups=0.702)
    made = verdict(given, REDRAWN, 0.01, SURE, 1000)
    assert (made.kind, made.choice, made.best) == ("enough", "one", "groups")
    assert made.left == ("one", "adapted", "groups")
    assert made.gains["groups"].mean == pytest.approx(-0.002)


def test_a_lead_below_the_margin_is_not_shown_however_sure() -> None:
    given = scores(alone=0.7, one=0.709)
    made = verdict(given, REDRAWN, 0.01, SURE, 1000)
    assert (made.kind, made.choice) == ("enough", "alone")
    assert verdict(given, REDRAWN, 0.005, SURE, 1000).kind == "shown"


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (Evidence(count=1, agreement=1.0, p=0.025), "no two groups"),
        (Evidence(count=2, agreement=0.49, p=0.025), "0.49"),
        (Evidence(count=2, agreement=1.0, p=0.075), "p = 0.075"),
        (Evidence(count=2, agreement=1.0, p=math.nan), "no permutation test"),
    ],
)
def test_doubtful_groups_are_not_claimed(evidence: Evidence, why: str) -> None:
    given = scores(alone=0.6, one=0.7, adapted=0.65, groups=0.8)
    made = verdict(given, REDRAWN, 0.01, evidence, 1000)
    assert (made.kind, made.choice, made.best) == ("shown", "one", "groups")
    assert why in " ".join(made.doubts)
    assert len(made.doubts) == 1
    assert made.gains["groups"].mean == pytest.approx(-0.1)  # what is not claimed is still told
    assert verdict(given, REDRAWN, 0.01, SURE, 1000).choice == "groups"


def test_evidence_at_its_limits_is_no_doubt() -> None:
    assert Evidence(count=2, agreement=0.5, p=0.05).doubts() == ()


def test_doubts_are_told_where_groups_would_be_claimed_alone() -> None:
    given = scores(alone=0.6, one=0.8, adapted=0.65, groups=0.7)
    doubtful = Evidence(count=1, agreement=0.0, p=math.nan)
    assert verdict(given, REDRAWN, 0.01, doubtful, 1000).doubts == ()


def test_repetitions_that_would_decide_are_told() -> None:
    given = scores(1.05 * 0.1 / half(1.0), ("one",), alone=0.7, one=0.8)
    made = verdict(given, REDRAWN, 0.01, SURE, 1000)
    assert made.needed is not None
    number = made.needed.repetitions
    assert number is not None
    spread = given["one"].std(ddof=1)

    def width(n: int) -> float:
        return float(student.ppf(0.975, n - 1) * spread * math.sqrt(1 / n + REDRAWN))

    assert width(number) <= 0.1 < width(number - 1)


def test_rows_that_would_decide_are_told_where_repetitions_do_not() -> None:
    given = scores(3 * 0.1 / half(1.0), ("one",), alone=0.7, one=0.8)
    made = verdict(given, REDRAWN, 0.01, SURE, 1000)
    assert made.needed == Needed(rows=pytest.approx(8000))  # a third of the width: nine times


def test_what_would_decide_decides_between_all_that_are_left() -> None:
    """Alone drops out after a few repetitions; of the two then left, `one` is the simplest, and it
    is enough when the other's lead of -0.05 ± 0.195 is below the margin.
    """
    few, many = (factor * 0.1 / half(1.0) for factor in (1.05, 3))
    given = scores(few, ("one",), alone=0.7, one=0.8)
    assert verdict(given, REDRAWN, 0.01, SURE, 1000).needed != Needed(rows=pytest.approx(8000))
    given["adapted"] = 0.75 + many * SPREAD
    made = verdict(given, REDRAWN, 0.01, SURE, 1000)
    assert made.left == ("alone", "one", "adapted")
    assert made.needed == Needed(rows=pytest.approx(1000 * ((0.195 / 0.06) ** 2 - 1)))


def test_what_is_left_loses_to_nothing_else() -> None:
    """Alone is not told from the best, but loses to `one`, which no more noise hides."""
    given = scores(alone=0.7, one=0.75)
    wide = 3 * 0.1 / half(1.0)
    given["adapted"] = 0.78 + wide * SPREAD
    made = verdict(given, REDRAWN, 0.01, SURE, 1000)
    assert (made.kind, made.best, made.left) == ("open", "adapted", ("one", "adapted"))
    assert made.choice == "one"


def test_a_hopeless_comparison_is_told_without_a_number() -> None:
    given = scores(20 * 0.1 / half(1.0), ("one",), alone=0.7, one=0.8)
    assert verdict(given, REDRAWN, 0.01, SURE, 1000).needed == Needed(rows=math.inf)


def test_choices_that_were_not_made_are_not_told_of() -> None:
    made = verdict(scores(alone=0.7, groups=0.8), REDRAWN, 0.01, SURE, 1000)
    assert made.choice == "groups"
    assert list(made.gains) == ["alone"]

"""Federations drawn anew: one without groups, of which none is claimed, and one with groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scripts.docs.adviser import KINDS, PAGE, RESULTS, advised, null, planted, table

NEW = 1_000_000  # no federation of docs/adviser.csv has a seed from here on


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iid", "noise"])
def test_no_groups_are_claimed_where_there_are_none(kind: str, tmp_path: Path) -> None:
    made = advised(kind, 60, NEW, tmp_path)
    assert made["verdict"] == "open" or made["choice"] != "groups"


@pytest.mark.slow
def test_planted_groups_are_claimed(tmp_path: Path) -> None:
    made = advised("opposite", 50, NEW, tmp_path)
    assert (made["verdict"], made["choice"], made["ari"]) == ("shown", "groups", 1.0)
    assert float(str(made["low"])) > 0


@pytest.mark.full
@pytest.mark.parametrize("kind", list(KINDS))
def test_drawn_tables_are_those_of_their_seed(kind: str) -> None:
    one, again, other = (table(kind, 40, seed) for seed in (3, 3, 4))
    assert one.equals(again)
    assert not one.equals(other)
    assert one["site"].nunique() == KINDS[kind].clients
    assert set(one["ill"]) == {0, 1}
    sizes = one["site"].value_counts()
    assert sizes.min() >= 10
    assert kind in ("unequal", "sizes") or set(sizes) == {40}


def test_relations_of_planted_groups_are_orthogonal_and_inputs_lie_elsewhere() -> None:
    drawn = table("relation", 4000, 0)
    first, second = (
        np.array([part[f"x{i}"].corr(part["ill"]) for i in range(5)])
        for part in (drawn[drawn["site"] == "site 0"], drawn[drawn["site"] == "site 1"])
    )
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert abs(cosine) < 0.1
    # a fifth of the rows of a mixed client follow the other group's opposite relation
    pure, mixed = (
        table(kind, 4000, 0).query("site == 'site 0'").corr(numeric_only=True)["ill"].iloc[:20]
        for kind in ("opposite", "mixed")
    )
    assert np.polyfit(pure, mixed, 1)[0] == pytest.approx(0.6, abs=0.1)
    moved = table("inputs", 4000, 0).groupby("site")[[f"x{i}" for i in range(5)]].mean()
    assert np.linalg.norm(moved.loc["site 0"] - moved.loc["site 2"]) < 0.2
    assert np.linalg.norm(moved.loc["site 0"] - moved.loc["site 1"]) > 0.5


def test_the_tables_of_the_page_are_those_of_the_kept_lines() -> None:
    text, kept = PAGE.read_text(encoding="utf-8"), pd.read_csv(RESULTS)
    for name, made in (("null", null(kept)), ("planted", planted(kept))):
        assert f"<!-- {name} -->\n{made}\n<!-- end of {name} -->" in text
    # an error of a kind that the page says it has none of
    for kind, told in (("iid", null), ("inputs", planted)):
        at = kept.index[kept["kind"] == kind][0]
        wrong = kept.copy()
        wrong.loc[at, ["verdict", "choice", "given_away"]] = ["shown", "groups", 0.02]
        assert ("1 of 34" if kind == "iid" else "1 wrong") in told(wrong)
        assert told(wrong) != told(kept)

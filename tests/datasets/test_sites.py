"""What is said of clients that code, measure or name differently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedclust.core.task import Targets
from fedclust.datasets.csv import Csv
from fedclust.datasets.series import Series

SITES = ("Nord", "Ost", "Sued", "West")
ROWS = 400
RNG = np.random.default_rng(0)
SITE = np.array(SITES)[np.arange(ROWS) % 4]
EAST = np.isin(SITE, ("Ost", "West"))
ILL = RNG.integers(0, 2, ROWS)
GLUCOSE = RNG.normal(100, 15, ROWS).round(1)
PLAIN = pd.DataFrame({"age": RNG.integers(20, 80, ROWS), "gluc": GLUCOSE, "y": ILL, "site": SITE})
CODES = {"Nord": ("no", "yes"), "Ost": ("0", "1"), "Sued": ("N", "Y"), "West": ("0", "1")}
SEX = RNG.integers(0, 2, ROWS)
LOAD = RNG.gamma(4, 1, ROWS)


def remarks(
    table: pd.DataFrame, folder: Path, targets: Targets = "classes", **options: Any
) -> list[str]:
    table.to_csv(folder / "t.csv", index=False)
    options = {"label": "y", "client": "site"} | options
    found = Csv(path=str(folder / "t.csv"), **options).load(targets).remarks
    return [line.partition("t.csv: ")[2] for line in found]


@pytest.mark.parametrize(
    ("changed", "options", "says"),
    [
        (
            {"y": [CODES[site][ill] for site, ill in zip(SITE, ILL, strict=True)]},
            {},
            "the label has no code that is at all of them: no, yes at Nord; N, Y at Sued; 0, 1",
        ),
        ({"y": ILL + EAST}, {}, "the label counts from 1 to 2 at Ost, West and from 0 to 1 at Nor"),
        (
            {"gluc": np.where(EAST, GLUCOSE, GLUCOSE / 18)},
            {},
            f"column gluc, an input, is {GLUCOSE[~EAST].min() / 18:.4g} to ",
        ),
        (
            {"sex": SEX + EAST},
            {},
            "column sex, an input, counts from 1 to 2 at Ost, West and from 0 to 1 at Nord, Sued: ",
        ),
        (
            {"sex": np.where(EAST, np.array(["f", "m"])[SEX], np.array(["woman", "man"])[SEX])},
            {"categories": "onehot"},
            "column sex, an input, has no code that is at all of them: ",
        ),
        (
            {"gluc": np.where(SITE == "Ost", np.nan, GLUCOSE)},
            {"fill": "median"},
            "no value of column gluc at Ost: what dataset.fill puts there is the others'; ",
        ),
        (
            {"gluc": np.where(SITE == "Ost", np.nan, GLUCOSE)},
            {"fill": "indicator"},
            "no value of column gluc at Ost: the input that says where gaps are says which client",
        ),
    ],
)
def test_clients_that_differ_are_named(
    changed: dict[str, Any], options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    (remark,) = remarks(PLAIN.assign(**changed), tmp_path, **options)
    assert remark.startswith(says)
    assert "\n" not in remark


def test_units_are_told_with_their_ratio_unless_clients_are_scaled_apart(tmp_path: Path) -> None:
    table = PLAIN.assign(gluc=np.where(EAST, GLUCOSE, GLUCOSE / 18))
    (remark,) = remarks(table, tmp_path)
    middle = {site: np.median(GLUCOSE[site == SITE]) for site in SITES}
    times = 18 * (middle["Ost"] + middle["West"]) / (middle["Nord"] + middle["Sued"])
    assert f"at Nord, Sued and {GLUCOSE[EAST].min():.4g} to {GLUCOSE[EAST].max():.4g}" in remark
    assert f"about {times:.3g} times apart: " in remark
    assert 17 < times < 19
    assert not remarks(table, tmp_path, normalise="client")


def test_a_target_in_another_unit_is_told(tmp_path: Path) -> None:
    table = PLAIN.assign(load=np.where(SITE == "West", 1000 * LOAD, LOAD))
    (remark,) = remarks(table, tmp_path, "numbers", label="load")
    assert remark.startswith("target load is ")
    assert " at West and " in remark
    night = np.arange(200) % 3 > 0  # nothing is used then
    curves = {"kilo": LOAD[:200] * night, "watt": 1000 * LOAD[200:] * night}
    for name, curve in curves.items():
        (tmp_path / "curves").mkdir(exist_ok=True)
        pd.DataFrame({"value": curve}).to_csv(tmp_path / "curves" / f"{name}.csv", index=False)
    told = Series(path=str(tmp_path / "curves"), length=4, horizon=2, stride=2).load().remarks
    assert [line for line in told if "column value is " in line and " times apart: " in line]


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({}, {}),
        ({"far": np.arange(ROWS) % 4 * 1000 + RNG.integers(1, 9, ROWS)}, {}),  # each site its own
        ({"few": np.where(EAST, GLUCOSE, GLUCOSE / 1.3)}, {}),  # ranges meet
        ({"wide": np.where(EAST, 1000 + 0.001 * GLUCOSE, GLUCOSE)}, {}),  # another spread
        ({"below": np.where(EAST, GLUCOSE, -GLUCOSE)}, {}),
        ({"children": RNG.integers(0, 6, ROWS)}, {}),
        ({"rare": np.where(SITE == "Ost", np.arange(ROWS) > 12, 1 + SEX)}, {}),  # three rows of 0
        ({"ward": [f"{site} {i % 3}" for i, site in enumerate(SITE)]}, {"categories": "onehot"}),
        ({"gluc": np.where(np.arange(ROWS) % 5, GLUCOSE, np.nan)}, {"fill": "median"}),
    ],
    ids=lambda one: "/".join(one) or "plain",
)
def test_clients_that_are_alike_or_apart_for_other_reasons_are_not(
    changed: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    said = remarks(PLAIN.assign(**changed), tmp_path, **options)
    if "ward" in changed:  # nobody can tell wards of a hospital from a coding of its own
        (remark,) = said
        assert "has no code that is at all of them" in remark
    else:
        assert not said

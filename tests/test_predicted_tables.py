"""A table in which every row names its client, known to the job or new."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedclust
from fedclust.helpers.errors import ConfigError, DataError

SITES = ("Bonn", "Graz", "Kiel", "Linz")
COMMON = (
    *("dataset=csv", "dataset.path=own.csv", "dataset.client=site", "dataset.group=land"),
    *("dataset.test_share=0.2", "partition=natural", "model=linear", "rounds=3", "eval_every=3"),
    *("solver.lr=0.5", "solver.batch_size=4", "engine=loop", "device=cpu", "progress=false"),
)


def table(rows: int = 160) -> pd.DataFrame:
    """Four sites in two lands; what makes ill in one protects in the other, where x2 is larger."""
    rng, which = np.random.default_rng(0), np.arange(rows) % 4
    x = rng.normal(size=(rows, 2))
    sign = np.where(which % 2, -1, 1)
    made = pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1] + 3 * (which % 2)})
    made["site"], made["land"] = (
        [SITES[one] for one in which],
        [("D", "A")[one % 2] for one in which],
    )
    made["ill"] = np.where(sign * x[:, 0] > 0, "yes", "no")
    made["days"] = 100 + 10 * sign * x[:, 0]
    return made


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table().to_csv("own.csv", index=False)


def job(*more: str, algorithm: str = "oracle") -> fedclust.Result:
    """A finished job on the table; the oracle has a model for each land."""
    return fedclust.run(f"algorithm={algorithm}", *COMMON, *more)


ILL = ("dataset.label=ill", "dataset.exclude=[days]")


@pytest.mark.full
def test_every_row_gets_what_its_client_says_in_the_order_of_the_table() -> None:
    result = job(*ILL)
    rows = table().drop(columns=["ill", "days", "land"]).sample(frac=1, random_state=1)
    made = result.predicted(rows)
    assert made.frame.index.equals(rows.index)
    assert list(made.frame.columns) == [
        "client",
        "model",
        "by",
        "sure",
        "predicted",
        "p_no",
        "p_yes",
    ]
    for site in SITES:
        own = (rows["site"] == site).to_numpy()
        alone = result.predict(rows[own], site)
        np.testing.assert_array_equal(made.frame[own][["p_no", "p_yes"]], alone[["no", "yes"]])
        likely = np.where(alone["yes"] > alone["no"], "yes", "no")
        assert (made.frame[own]["predicted"] == likely).all()
    assert {one.model for one in made.placed} == {"Bonn + Kiel", "Graz + Linz"}
    assert {(one.by, one.sure) for one in made.placed} == {("own", 1.0)}
    assert made.rightly is None
    rows.to_csv("new.csv", index=False)
    written = result.predicted("new.csv").frame
    np.testing.assert_allclose(written["p_yes"], made.frame["p_yes"], atol=1e-12)


@pytest.mark.full
def test_a_new_client_gets_the_model_that_fits_its_labels_and_else_its_inputs() -> None:
    result = job(*ILL)
    new = table().assign(site=lambda one: "new " + one["land"])
    made = result.predicted(new)
    assert {one.client: (one.model, one.by) for one in made.placed} == {
        "new D": ("Bonn + Kiel", "labels"),
        "new A": ("Graz + Linz", "labels"),
    }
    assert all(one.sure == 1.0 and one.labelled == 80 for one in made.placed)
    # a few labels are enough, and rows without one are predicted too
    few = new.assign(ill=new["ill"].where(new.index < 16))
    assert [one.labelled for one in result.predicted(few).placed] == [8, 8]
    assert len(result.predicted(few).frame) == len(new)
    # by inputs, which differ between the lands
    unlabelled = result.predicted(new.drop(columns="ill"))
    assert {one.client: (one.model, one.by) for one in unlabelled.placed} == {
        "new D": ("Bonn + Kiel", "inputs"),
        "new A": ("Graz + Linz", "inputs"),
    }
    assert unlabelled.rightly == (4, 4)
    named = result.predicted(new.drop(columns=["ill", "site"]), client="Linz")
    assert {one.client for one in named.placed} == {"Linz"}


@pytest.mark.full
def test_one_model_needs_no_choice() -> None:
    made = job(*ILL, algorithm="fedavg").predicted(table().assign(site="anywhere"))
    (placed,) = made.placed
    assert (placed.by, placed.model) == ("only", "Bonn + Graz + Kiel + Linz")


@pytest.mark.full
def test_numbers_are_in_the_unit_of_the_file() -> None:
    result = job("dataset.label=days", "dataset.exclude=[ill]", "task=regression", "solver.lr=0.1")
    new = table().assign(site=lambda one: "new " + one["land"])
    made = result.predicted(new)
    assert list(made.frame.columns) == ["client", "model", "by", "sure", "predicted"]
    assert [one.model for one in made.placed] == ["Bonn + Kiel", "Graz + Linz"]
    assert float((made.frame["predicted"] - new["days"]).abs().mean()) < 5


@pytest.mark.full
def test_what_cannot_be_predicted_is_said_in_a_line() -> None:
    result, whole = job(*ILL), table()
    for changed, said in (
        (whole.drop(columns="site"), "no column site, which names the client"),
        (whole.drop(columns="x2"), "no column x2"),
        (whole.assign(site=whole["site"].where(whole.index != 7)), "column site, row 8"),
        (whole.assign(ill="maybe", site="new"), "maybe in column ill"),
        (whole[:0], "no rows"),
        (whole.assign(x1=whole["x1"].astype(object).where(whole.index != 9, "odd")), "row 10"),
    ):
        with pytest.raises(DataError, match=said):
            result.predicted(changed)
    with pytest.raises(ConfigError, match="client"):
        result.predicted(whole, client="")
    # whose model is known needs no labels, whatever they are
    assert len(result.predicted(whole.assign(ill="maybe")).frame) == len(whole)


@pytest.mark.full
def test_series_are_continued_by_the_model_that_fits_their_past(tmp_path: Path) -> None:
    """Two kinds of days that say opposite things of the next hours."""

    def write(folder: str, names: dict[str, int], hours: int) -> None:
        (tmp_path / folder).mkdir()
        for name, sign in names.items():
            rng = np.random.default_rng(len(name))
            values = 5 + sign * (np.arange(hours) % 12 < 6) * 3 + 0.1 * rng.normal(size=hours)
            table = pd.DataFrame({"kw": values, "kind": f"kind {sign}"})
            table.to_csv(tmp_path / folder / f"{name}.csv", index=False)

    write("curves", {"a": 1, "bb": -1, "ccc": 1, "dddd": -1}, 240)
    result = fedclust.run(
        *("algorithm=oracle", "dataset=series", "dataset.path=curves", "dataset.value=kw"),
        *("dataset.group=kind", "dataset.length=4", "dataset.horizon=2", "dataset.stride=1"),
        *("model=linear", "rounds=6", "eval_every=6", "solver.lr=0.05", "solver.epochs=3"),
        *("device=cpu", "progress=false"),
    )
    write("later", {"a": 1, "new": -1}, 60)
    made = result.predicted("later")
    assert list(made.frame.columns) == ["client", "model", "by", "sure", "step", "predicted"]
    assert made.frame["step"].tolist() == [1, 2, 1, 2]
    assert {one.client: (one.model, one.by) for one in made.placed} == {
        "a": ("a + ccc", "own"),
        "new": ("bb + dddd", "labels"),
    }
    # what the client's model says of the last four hours, which begin another half of a day
    last = pd.read_csv(tmp_path / "later" / "a.csv")["kw"].to_numpy()[None, None, None, -4:]
    alone = result.predict(last.astype(np.float32), "a")
    np.testing.assert_allclose(made.frame["predicted"][:2], alone.to_numpy()[0], rtol=1e-6)
    write("short", {"a": 1}, 3)
    with pytest.raises(DataError, match="the series of a has 3 steps: 4 are needed"):
        result.predicted("short")
    with pytest.raises(ConfigError, match="a folder of files, as the job had it"):
        result.predicted(tmp_path / "later" / "a.csv")


@pytest.mark.full
def test_a_new_client_is_scaled_by_its_own_rows() -> None:
    """The same people in another unit: the model of all says the same of them."""
    unit = {"Bonn": (1.0, 0.0), "Graz": (1.8, 32.0), "Kiel": (1.0, 0.0), "Linz": (1.8, 32.0)}
    rows = table().drop(columns=["days", "land"])
    rows["ill"] = np.where(rows["x1"] > 0, "yes", "no")
    for site, (times, more) in unit.items():
        own = rows["site"] == site
        rows.loc[own, "x1"] = rows.loc[own, "x1"] * times + more
        rows.loc[own, "x2"] = rows.loc[own, "x2"] * times + more
    rows.to_csv("own.csv", index=False)
    given = [one for one in COMMON if "group" not in one]
    how = ("dataset.label=ill", "dataset.normalise=client", "dataset.fill=median")
    result = fedclust.run("algorithm=fedavg", *given, *how)
    bonn = rows[rows["site"] == "Bonn"].assign(site="Rom")
    other = bonn.assign(x1=bonn["x1"] * 1.8 + 32, x2=bonn["x2"] * 1.8 + 32)
    said = [result.predicted(one).frame["p_yes"].to_numpy() for one in (bonn, other)]
    np.testing.assert_allclose(said[0], said[1], atol=1e-5)
    own = bonn[["x1", "x2"]]
    scaled = (own - own.mean()) / own.std(ddof=0)
    about = json.loads((result.folder / "inputs" / "seed=0.json").read_text())
    known = about["of_clients"][0]  # of Bonn's training rows
    like = scaled * known["deviation"] + known["mean"]
    alone = result.predict(bonn.assign(x1=like["x1"], x2=like["x2"]), "Bonn")
    np.testing.assert_allclose(said[0], alone["yes"], atol=1e-5)
    gaps = bonn.assign(x1=bonn["x1"].where(np.arange(len(bonn)) != 0))
    assert result.predicted(gaps).frame["p_yes"].between(0, 1).all()
    with pytest.raises(DataError, match="one row of Rom, which the job does not know: with"):
        result.predicted(bonn[:1])


@pytest.mark.full
def test_whole_numbers_beside_gaps_are_known_in_a_file_too() -> None:
    """pandas writes 1.0 for a client, or a class, 1 as soon as the column has a gap."""
    rows = table().drop(columns=["days", "land"])
    rows["site"] = [SITES.index(one) + 1 for one in rows["site"]]
    rows["ill"] = np.where(rows["ill"] == "yes", 1, 0)
    rows.to_csv("own.csv", index=False)
    given = [one for one in COMMON if "group" not in one]
    result = fedclust.run("algorithm=local", *given, "dataset.label=ill")
    rows.assign(site=rows["site"].astype(float)).to_csv("float.csv", index=False)
    assert {one.by for one in result.predicted("float.csv").placed} == {"own"}
    new = rows[:40].assign(site=9)
    new["ill"] = new["ill"].where(np.arange(40) < 20)
    new.to_csv("some.csv", index=False)
    (placed,) = result.predicted("some.csv").placed
    assert (placed.by, placed.labelled) == ("labels", 20)

"""`fedclust advise` from a table to a verdict: what is looked at, chosen, told and refused."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli.conftest import Cli

from fedclust.commands.advise import searches_of
from fedclust.launch.typed import Typed

pytestmark = pytest.mark.full

SITES = ("Ulm", "Bonn", "Kiel", "Jena")
SMALL = (
    *("dataset.path=own.csv", "dataset.label=ill", "dataset.client=site", "progress=false"),
    *("rounds=3", "eval_every=3", "algorithm=local,fedavg,ifca", "num_clusters=2,3"),
)
RUN = ("advise", *SMALL, "seeds=3", "settings=4", "permutations=5", "solver.lr=0.1,0.5")


def table(rows: int = 40) -> pd.DataFrame:
    """Four sites; what makes ill in Ulm and Kiel protects in Bonn and Jena."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4 * rows, 2))
    sign = np.where(np.arange(4 * rows) % 2, -1, 1)
    ill = np.where(sign * x[:, 0] > 0, "yes", "no")
    site = np.array(SITES)[np.arange(4 * rows) % 4]
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "ill": ill, "site": site})


def metrics(folder: Path) -> set[str]:
    """What the jobs in a folder have recorded."""
    files = folder.rglob("rounds.csv")
    return {one for file in files for one in pd.read_csv(file)["metric"]}


@pytest.mark.full
def test_planted_groups_are_found_and_every_row_is_tested_once(
    fedclust: Cli, tmp_path: Path
) -> None:
    table().to_csv("own.csv", index=False)
    done = fedclust.done(*RUN)
    folder = tmp_path / "outputs" / "advise"
    said = json.loads((folder / "advice" / "verdict.json").read_text())
    assert done.out.startswith("Verdict: ")
    assert (folder / "advice" / "index.html").is_file()

    # a search sees no test row, and what is tested has no validation rows
    assert "accuracy" not in metrics(folder / "search")
    assert "validation_loss" in metrics(folder / "search")
    assert "accuracy" in metrics(folder / "tests")
    assert not any(one.startswith("validation") for one in metrics(folder / "tests"))
    owned = pd.read_parquet(folder / "search" / "local" / "01" / "partition" / "seed=0.parquet")
    by_split = owned.groupby("split", observed=True)["row"].agg(set)
    tested = next((folder / "tests").rglob("partition/seed=0.parquet"))
    again = pd.read_parquet(tested).groupby("split", observed=True)["row"].agg(set)
    assert again["test"] == by_split["test"]
    assert again["train"] == by_split["train"] | by_split["validation"]

    # in every repetition the setting with the least validation loss is the one that is tested
    losses = {}
    for file in (folder / "search" / "ifca").rglob("rounds.csv"):
        rounds = pd.read_csv(file)
        mine = rounds[(rounds["metric"] == "validation_loss") & (rounds["round"] == 2)]
        losses[file.parent.name] = mine.set_index("seed")["value"]
    best = pd.DataFrame(losses).sort_index(axis=1).idxmin(axis=1)
    for seed, place in best.items():
        rounds = pd.read_csv(folder / "tests" / "ifca" / place / "rounds.csv")
        mine = rounds[(rounds["metric"] == "accuracy") & (rounds["round"] == 2)]
        assert mine.set_index("seed")["value"][seed] == said["scores"]["groups"][int(seed)]
    assert set(said["groups"]) == set(SITES)
    assert sorted(said["scores"]) == ["alone", "groups", "one"]

    # the choice is trained on all rows, tests nothing, and predicts rows of sites known and new
    whole = pd.read_parquet(folder / said["trained"] / "partition" / "seed=0.parquet")
    train = whole[whole["split"] == "train"]
    assert set(train["row"]) == by_split["train"] | by_split["validation"] | by_split["test"]
    assert "accuracy" not in metrics(folder / said["trained"])
    table(3).replace({"site": {"Ulm": "Trier"}}).to_csv("new.csv", index=False)
    frame = pd.read_csv(StringIO(fedclust.done("predict", "outputs/advise", "new.csv").out))
    assert len(frame) == 12
    assert dict(zip(frame["client"], frame["by"], strict=True))["Bonn"] == "own"
    assert dict(zip(frame["client"], frame["by"], strict=True))["Trier"] in ("labels", "only")

    # the models of one group are wrong on the other's rows
    relation = pd.read_csv(folder / "advice" / "relation.csv")
    assert (relation["lead mean"] > 20).all()
    assert {f"calibration {one}" for one in said["scores"]} < set(
        pd.read_csv(folder / "advice" / "clients.csv").columns
    )

    # the same command reads what is there
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("rounds.csv")}
    assert fedclust.done(*RUN).out == done.out
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("rounds.csv")} == before
    report = fedclust.done("report", "outputs/advise")
    assert report.out == "outputs/advise/advice/index.html is what `fedclust advise` has found\n"
    assert not (folder / "report").exists()


def test_a_first_look_takes_fewer_repetitions(tmp_path: Path) -> None:
    from fedclust.commands.advise import _own_keys

    own, typed = _own_keys(Typed(("quick=true", "rounds=3")))
    assert (own["settings"], own["permutations"]) == (4, 19)
    assert typed.texts == ("experiment=advise", "rounds=3", "seeds=5")
    own, typed = _own_keys(Typed(("experiment=natural/hapt", "margin=0.5", "seeds=7")))
    assert (own["settings"], own["permutations"], own["margin"]) == (6, 39, 0.5)
    assert typed.texts == ("experiment=natural/hapt", "seeds=7")


def test_each_method_is_searched_by_what_it_reads() -> None:
    texts = (*SMALL, "experiment=advise")
    found = dict(searches_of(Typed(texts, many=False), lambda *_: None))
    assert set(found["one"].space) == {"solver.lr"}
    assert set(found["groups"].space) == {"solver.lr", "num_clusters"}
    resolved = found["groups"].resolved()
    assert (resolved["validation"], resolved["eval_every"]) == (0.2, 3)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["algorithm=local,fedavg"], "none is for a model for each group of clients"),
        (["algorithm=oracle,fedavg,ifca,local"], "algorithm=oracle is not allowed"),
        (["settings=1"], "settings=1 is not allowed: a whole number in [2, 1000]"),
        (["permutations=-1"], "permutations=-1 is not allowed"),
        (["margin=0"], "margin=0 is not allowed: a number above 0"),
        (["quick=yes"], "quick=yes is not allowed: true or false"),
        (["metric=3"], "metric=3 is not allowed"),
        (["metric=mae"], "metric=mae is not allowed"),
        (["num_clusters=9"], "num_clusters=9 is not allowed: at most 4 clients"),
        (["dataset.label=site"], "dataset.label=site is not allowed: another column than"),
        (["dataset.path="], "dataset.path='' is not allowed: a CSV or parquet file"),
        (["algorithm.mu=1,2"], "algorithm.mu"),
        (["--fast"], "fedclust advise has no flag --fast"),
        (["dataset.data_seed=0"], "tested on the same rows"),
        (
            ["dataset.client=a1", "dataset.features=[a,b]"],
            "all rows are of one client, and advice compares two or more: dataset.client=…",
        ),
        (
            ["dataset.label=a1", "dataset.features=[a,b]"],
            "have one label, so there is nothing to learn",
        ),
    ],
)
def test_mistakes_are_told_in_a_line(
    fedclust: Cli, tmp_path: Path, given: list[str], says: str
) -> None:
    table(10).assign(a1=1).to_csv("own.csv", index=False)
    own = [one.partition("=")[0] for one in given]
    kept = [one for one in SMALL if one.partition("=")[0] not in own]
    fedclust.refused("advise", *kept, "seeds=2", *given, says=says)


def test_a_client_of_one_row_is_told_in_a_line(fedclust: Cli, tmp_path: Path) -> None:
    lone = pd.DataFrame({"a": [0.1], "b": [0.2], "ill": ["no"], "site": ["Trier"]})
    pd.concat([table(10), lone]).to_csv("own.csv", index=False)
    fedclust.refused("advise", *SMALL, "seeds=2", says="client Trier")

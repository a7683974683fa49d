"""Trained models applied to raw rows: what `predict` says is what the job said of the same rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from configs import names, with_algorithm

import fedclust
from fedclust.config.build import build
from fedclust.helpers.errors import ConfigError, DataError, RunFolderError
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run
from fedclust.runtime.trained import Trained

NETWORKS = """
import torch
from torch import nn


def normed(in_shape, num_classes):
    return nn.Sequential(
        nn.Linear(in_shape[0], 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, num_classes)
    )


def plain(in_shape, num_classes):
    return nn.Sequential(
        nn.Linear(in_shape[0], 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, num_classes)
    )


class Looked(nn.Module):
    def __init__(self, features, num_classes):
        super().__init__()
        self.wards, self.units = nn.Embedding(3, 4), nn.Embedding(4, 2)
        self.last = nn.Linear(features + 4, num_classes)

    def forward(self, x):
        ids = x[:, 3:5].long()
        parts = [self.wards(ids[:, 0]), self.units(ids[:, 1]), x[:, :3], x[:, 5:]]
        return self.last(torch.cat(parts, 1))


def looked(in_shape, num_classes):
    return Looked(in_shape[0], num_classes)
"""
MODELS: Mapping[str, Mapping[str, Any]] = {
    "linear": {},
    "normed": {"model": {"_target_": "networks.normed"}},
    "frozen": {"model": {"_target_": "networks.plain"}, "frozen": ["0"]},
    "lora": {"model": {"_target_": "networks.plain"}, "lora": {"rank": 2}},
}
DEEP = ("fedper", "fedrep", "hcfl", "lcfed")  # share a part of the layers
ROWS = 96
SITES = ("Bonn", "Graz", "Kiel", "Linz", "Ulm", "Wien")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(tmp_path / "mine")
    monkeypatch.delitem(sys.modules, "networks", raising=False)


def patients() -> pd.DataFrame:
    """Rows of four sites: large and small numbers, words, gaps, and a class."""
    rng, rows = np.random.default_rng(0), np.arange(ROWS)
    age = rng.normal(60, 9, ROWS).round(1)
    table = pd.DataFrame({"age": age, "year": 2001 + rows % 20, "dose": 1e-3 * rng.random(ROWS)})
    table["site"] = [SITES[row % 6] for row in rows]
    table["land"] = [("D", "A")[row % 2] for row in rows]
    table["ward"] = [("a", "b", "c", "c")[row // 6 % 4] for row in rows]
    table["height"] = np.where(rows % 7 == 3, np.nan, 1.5 + 0.3 * rng.random(ROWS))
    table["ill"] = np.where(age + 6 * (rows % 2) > 62, "yes", "no")
    table["days"] = 100 + 30 * age + 20 * rng.random(ROWS)
    return table


TABLE = (
    *("dataset=csv", "dataset.path=own.csv", "dataset.label=ill", "dataset.client=site"),
    *("dataset.group=land", "dataset.exclude=[days]", "dataset.test_share=0"),
    *("dataset.fill=median", "dataset.categories=onehot"),
    *("partition=natural", "partition.train_fraction=0.7", "rounds=2", "solver.batch_size=4"),
    *("engine=loop", "predictions=true", "device=cpu", "progress=false"),
)


def check_same(said: pd.DataFrame, table: pd.DataFrame, one: Trained) -> None:
    """The job's outputs are what is said of the raw rows."""
    outputs = [name for name in said.columns if name.startswith("output")]
    assert len(said) > 10
    for client, rows in said.groupby("client"):
        found, _ = one.predict(table.iloc[rows["row"]].drop(columns=["ill", "days"]), int(client))
        np.testing.assert_allclose(found.numpy(), rows[outputs].to_numpy(), rtol=1e-6, atol=1e-6)


def trained(config: dict[str, Any]) -> tuple[pd.DataFrame, Trained]:
    """The predictions that a job keeps, and what it has trained."""
    folder, mine = RunFolder(Path("out"), config), Path.cwd() / "mine"
    run(build(config, mine), folder, Silent())
    said = pd.read_parquet(folder.path / "predictions" / "seed=0.parquet")
    return said, Trained(folder.path, config, 0, mine)


# each method with one network, and with the others where there is time
PAIRS = [
    pytest.param(name, model, marks=[] if (turn + place) % len(MODELS) == 0 else pytest.mark.slow)
    for turn, name in enumerate(names("algorithm"))
    for place, model in enumerate(MODELS)
    if (name, model) != ("jgl", "normed")  # which sends gradients, and they move no statistics
]


@pytest.mark.full
@pytest.mark.parametrize(("algorithm", "model"), PAIRS)
def test_raw_rows_give_the_predictions_of_the_job(algorithm: str, model: str) -> None:
    table = patients()
    table.to_csv("own.csv", index=False)
    shallow = "model=mlp" if algorithm in DEEP else "model=linear"
    config = with_algorithm(algorithm, *TABLE, shallow) | MODELS[model]
    said, one = trained(config)
    check_same(said, table, one)


@pytest.mark.full
@pytest.mark.parametrize("normalise", ["mean_std", "client"])
def test_a_network_looks_up_the_codes_of_a_table(normalise: str) -> None:
    table = patients()
    table.insert(6, "unit", np.array([10.0, 20, 35, np.nan])[np.arange(ROWS) // 5 % 4])
    table.loc[0, "unit"] = 70  # words and codes, of which the last is rare
    table.to_csv("own.csv", index=False)
    coded = ("dataset.categories={ward: ids, unit: ids}", f"dataset.normalise={normalise}")
    config = with_algorithm("ifca", *TABLE, *coded) | {"model": {"_target_": "networks.looked"}}
    said, one = trained(config)
    check_same(said, table, one)
    about = json.loads(Path("out/inputs/seed=0.json").read_text())
    assert about["features"][3:5] == ["ward", "unit"]
    words = {one["name"]: one["words"] for one in about["columns"] if one["kind"] == "ids"}
    assert words == {"ward": ["a", "b", "c"], "unit": ["10", "20", "35", "70"]}
    assert about["fill"][3] == 2
    assert about["fill"][4] in (0, 1, 2)  # one of them, and no mean


@pytest.mark.full
@pytest.mark.parametrize("norm", ["local", "fedbn", "recalibrate"])
def test_statistics_that_stay_with_clients_are_applied(norm: str) -> None:
    table = patients()
    table.to_csv("own.csv", index=False)
    config = with_algorithm("ifca", *TABLE, f"norm={norm}") | MODELS["normed"]
    said, one = trained(config)
    check_same(said, table, one)


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        ("dataset.normalise=client",),
        ("dataset.normalise=none", "dataset.categories=ordinal", "dataset.fill=indicator"),
        ("task=regression", "dataset.label=days", "dataset.exclude=[ill]", "algorithm=fedem"),
    ],
    ids=["client", "ordinal", "regression"],
)
def test_a_table_is_read_from_python_as_the_job_read_it(options: tuple[str, ...]) -> None:
    table = patients()
    table["year"] += 1e9  # which float32 does not tell apart
    table.to_csv("own.csv", index=False)
    result = fedclust.run(*TABLE, "model=mlp", "algorithm=ifca", "seeds=[0,2]", *options)
    said = result.predictions.query("seed == 2")
    outputs = [name for name in said.columns if name.startswith("output")]
    for client, rows in said.groupby("client"):
        new = table.iloc[rows["row"]].drop(columns=["ill", "days"])[::-1]  # in another order
        found = result.predict(new, SITES[int(client)], seed=2)
        assert list(found.columns) == (["days"] if "task=regression" in options else ["no", "yes"])
        assert list(found.index) == list(new.index)
        expected = rows[outputs].to_numpy()[::-1]
        np.testing.assert_allclose(found.to_numpy(), expected, rtol=2e-6, atol=1e-6)
    new.to_csv("new.csv", index=False)
    from_file = result.predict("new.csv", int(client), seed=2)
    np.testing.assert_allclose(from_file.to_numpy(), found.to_numpy(), rtol=1e-6)
    about = json.loads((result.folder / "inputs" / "seed=2.json").read_text())
    assert about["clients"] == list(SITES)
    assert [one["name"] for one in about["columns"]] == ["age", "year", "dose", "ward", "height"]


@pytest.mark.full
def test_what_the_job_did_not_know_is_one_line() -> None:
    table = patients()
    table.to_csv("own.csv", index=False)
    result = fedclust.run(*TABLE, "model=linear", "algorithm=fedavg")
    new = table.head(3)
    with pytest.raises(DataError, match=r"no column ward: the job's inputs are age, year, dose"):
        result.predict(new.drop(columns="ward"), 0)
    with pytest.raises(DataError, match=r"has z in column ward, row 2: the job knows a, b, c"):
        result.predict(new.assign(ward=["a", "z", "b"]), 0)
    with pytest.raises(DataError, match=r"has old in column age, row 3: numbers are needed"):
        result.predict(new.assign(age=[1, 2, "old"]), 0)
    for given in (new.to_numpy(), new.to_numpy().tolist(), new.to_dict("list"), new["age"], None):
        kind = f"examples of type {type(given).__name__}: the job's are rows of a table: give a "
        with pytest.raises(DataError) as caught:
            result.predict(given, 0)
        assert str(caught.value).startswith(f"{kind}pandas DataFrame with the columns age, year,")
    with pytest.raises(DataError, match=r"the table has several columns named age: give each a na"):
        result.predict(pd.concat([new, new[["age"]] + 1], axis=1), 0)
    marked = new.astype({"age": object}).assign(ward=["?", "b", "NA"])
    marked.loc[1, "age"] = "?"
    marked.to_csv("marked.csv", index=False)
    same = result.predict(
        new.assign(age=new["age"].where(new.index != 1), ward=[None, "b", None]), 0
    )
    for one in (marked, pd.read_csv("marked.csv"), "marked.csv"):
        np.testing.assert_allclose(result.predict(one, 0), same, rtol=1e-12)
    with pytest.raises(DataError, match="the table has no rows"):
        result.predict(new.head(0), 0)
    Path("empty.csv").touch()
    with pytest.raises(DataError, match=r"predict: cannot read empty\.csv"):
        result.predict("empty.csv", 0)
    with pytest.raises(DataError, match=r"predict: outputs is a folder"):
        result.predict("outputs", 0)
    with pytest.raises(ConfigError, match=r"client=6 is not allowed: 0 to 5"):
        result.predict(new, 6)
    with pytest.raises(ConfigError, match=r"client=Rom is not allowed: a number or one of Bonn"):
        result.model("Rom")
    with pytest.raises(ConfigError, match=r"seed=4 is not allowed: one of 0"):
        result.model(0, seed=4)
    gap = result.predict(new.assign(age=np.nan), 0)
    fill = json.loads((result.folder / "inputs" / "seed=0.json").read_text())["fill"][0]
    np.testing.assert_array_equal(gap, result.predict(new.assign(age=fill), 0))
    for file in result.folder.glob("checkpoints/round=*/seed=0.pt"):
        file.unlink()
    with pytest.raises(RunFolderError, match=r"is not there: the job is not finished"):
        result.predict(new, 0)


@pytest.mark.full
@pytest.mark.parametrize("options", [(), ("dataset.normalise=per_image", "dataset.crop=6")])
def test_pictures_are_seen_as_the_job_saw_them(options: tuple[str, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    np.savez("own.npz", x_train=x[:45], y_train=y[:45], x_test=x[45:], y_test=y[45:])
    result = fedclust.run(
        *("dataset=npz", "dataset.path=own.npz", "partition=iid", "partition.num_clients=3"),
        *("model=linear", "algorithm=local", "rounds=1", "engine=loop", "predictions=true"),
        *("progress=false", "device=cpu", *options),
    )
    said = result.predictions
    for client, rows in said.groupby("client"):
        found = result.predict(x[rows["row"]], int(client))
        np.testing.assert_allclose(found, rows.filter(like="output_"), rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match=r"examples of type float64: the job's are uint8"):
        result.predict(x / 255, 0)
    with pytest.raises(DataError, match=r"shape \(1, 7, 8\): the job's have shape \(1, 8, 8\)"):
        result.predict(x[:, 1:], 0)


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["fedavg", "ifca", "local"])
@pytest.mark.parametrize("model", ["linear", "normed"])
def test_the_recipe_of_the_page_counts_what_the_job_counted(
    root: Path, algorithm: str, model: str
) -> None:
    patients().to_csv("own.csv", index=False)
    config = with_algorithm(algorithm, *TABLE, "model=linear") | MODELS[model]
    config["choices"] = {"algorithm": algorithm}
    folder = RunFolder(Path("out"), config)
    run(build(config, Path("mine")), folder, Silent())
    page = (root / "docs" / "how-to" / "outside.md").read_text()
    recipe = page.split("```python\n")[1].split("```")[0]
    for shown, own in (
        ("outputs/quickstart/ifca", "out"),
        ("client=7", 'client=4, config_dir="mine"'),
        ("of_client(7)", "of_client(4)"),
        ("build(config)", 'build(config, Path("mine"))'),
    ):
        assert shown in recipe
        recipe = recipe.replace(shown, own)
    found: dict[str, Any] = {}
    exec(recipe, found)
    last = fedclust.load("out").clients.query("round == 1 and client == 4")
    assert int(found["right"]) == int(last["correct"].iloc[0])
    assert Path("client7.pth").is_file()

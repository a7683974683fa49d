"""A table of one's own through a whole run: what it is called, and what is told of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedclust


@pytest.mark.full
def test_names_and_warnings_of_a_table_reach_log_files_report_and_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = np.arange(90)
    table = pd.DataFrame({"age": rng.normal(50, 9, 90), "sick": np.where(rows % 2, "yes", "no")})
    table["hospital"] = [("Ulm", "Bonn", "Kiel")[row % 3] for row in rows]
    table["land"] = table["hospital"].map({"Ulm": "south", "Bonn": "west", "Kiel": "west"})
    table.to_csv("own.csv")  # with its index
    result = fedclust.run(
        "dataset=csv",
        "dataset.path=own.csv",
        "dataset.label=sick",
        "dataset.client=hospital",
        "dataset.group=land",
        "algorithm=fedavg",
        "model=mlp",
        "rounds=1",
        "seeds=[0,1]",
        "predictions=true",
    )
    shown = capsys.readouterr()
    log = " ".join((shown.out + shown.err).split())
    told = "1 input (age) · 2 classes (no, yes) · 3 clients (Bonn, Kiel, Ulm) · 2 true groups"
    assert told in log
    warning = "own.csv: column Unnamed: 0 numbers the rows and is no input"
    assert log.count(warning) == 1
    (names,) = result.names.values()
    assert names["groups"] == ["south", "west"]
    assert result.clients["name"].tolist() == ["Bonn", "Kiel", "Ulm"] * 2
    for seed, said in result.predictions.groupby("seed"):  # each has a copy of the rows
        owned = pd.read_parquet(next(tmp_path.rglob(f"partition/seed={seed}.parquet")))
        assert set(said["row"]) == set(owned.loc[owned["split"] == "test", "row"])
    federation = json.loads(next(tmp_path.rglob("federation.json")).read_text())
    assert federation["seeds"]["1"]["names"]["features"] == ["age"]
    assert result.table("classes").columns[1:3] == ("no", "yes")
    assert [row[0].text for row in result.table("classes").rows] == ["south", "west"]
    assert warning in result._repr_html_()
    assert any("3 clients (Bonn, Kiel, Ulm)" in n for n in result.table("federation").notes)

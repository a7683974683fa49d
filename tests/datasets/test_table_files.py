"""Files of a table: a folder of hospitals, encodings, rows without an outcome, what is no file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedclust.algorithms.by_attribute import read as read_attributes
from fedclust.config.objects import Objects
from fedclust.core.federation import build, read_table
from fedclust.core.types import Dataset
from fedclust.datasets.csv import Csv
from fedclust.datasets.leaf import Leaf
from fedclust.datasets.npz import Npz
from fedclust.datasets.series import Series
from fedclust.helpers.errors import DataError, UserError
from fedclust.partitions.natural import Natural

SIZES = {"Nord": 6, "Ost": 8, "West": 10}
ROWS = sum(SIZES.values())
TABLE = pd.DataFrame(
    {
        "x": np.arange(ROWS) / 4,
        "label": np.arange(ROWS) % 2,
        "site": [name for name, size in SIZES.items() for _ in range(size)],
    }
)
HOW: dict[str, Any] = {"normalise": "none", "test_share": 0, "features": ["x"]}


def rows(dataset: Dataset) -> dict[str, list[float]]:
    """The only feature of every client's rows."""
    assert dataset.owner is not None
    x = dataset.x_train.flatten()
    return {
        name: x[dataset.owner == client].tolist()
        for client, name in enumerate(dataset.names.clients)
    }


EXPECTED = {name: part["x"].tolist() for name, part in TABLE.groupby("site")}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_of_a_folder_are_the_clients(kind: str, tmp_path: Path) -> None:
    (tmp_path / "read me.txt").touch()
    (tmp_path / ".hidden.csv").touch()
    for name, part in TABLE.groupby("site"):
        file, plain = tmp_path / f"{name}.{kind}", part.drop(columns="site")
        plain.to_csv(file, index=False) if kind == "csv" else plain.to_parquet(file)
    dataset = Csv(path=str(tmp_path), **HOW).load()
    assert rows(dataset) == EXPECTED
    (remark,) = dataset.remarks
    assert remark.endswith("passed over what is no .csv or .parquet file: read me.txt")
    assert build(dataset, Natural(train_fraction=0.5), 0).train.count.tolist() == [3, 4, 5]
    pd.DataFrame({"x": [1], "y": [0]}).to_csv(tmp_path / "Sued.csv", index=False)
    says = "give those of one kind" if kind == "parquet" else r"Sued.csv has no column label, which"
    with pytest.raises(DataError, match=says):
        Csv(path=str(tmp_path), **HOW).load()


def test_a_folder_may_name_clients_by_a_column_or_by_its_folders(tmp_path: Path) -> None:
    TABLE.to_parquet(tmp_path / "hive", partition_cols=["site"])
    assert rows(Csv(path=str(tmp_path / "hive"), client="site", **HOW).load()) == EXPECTED
    (tmp_path / "years").mkdir()
    for year in range(2):
        TABLE[year::2].to_csv(tmp_path / "years" / f"{2020 + year}.csv", index=False)
    found = rows(Csv(path=str(tmp_path / "years"), client="site", **HOW).load())
    assert {name: sorted(values) for name, values in found.items()} == EXPECTED


def test_columns_whose_names_are_numbers(tmp_path: Path) -> None:
    values = np.column_stack([np.arange(ROWS), np.arange(ROWS) % 3, np.arange(ROWS) % 2])
    pd.DataFrame(values).to_csv(tmp_path / "t.csv", index=False)
    node = {"_target_": "fedclust.datasets.csv.Csv", "path": str(tmp_path / "t.csv"), "label": 2}
    node |= {"features": [0], "client": 1, "normalise": "none", "test_share": 0}
    dataset = Objects().make(node, "dataset").load()
    assert dataset.names.features == ("0",)
    assert dataset.y_train.tolist() == [row % 2 for row in range(ROWS)]
    assert rows(dataset) == {str(k): [*map(float, range(k, ROWS, 3))] for k in range(3)}
    series = Series(path=str(tmp_path / "t.csv"), value=0, client=1, length=2, horizon=1, stride=1)  # type: ignore[arg-type]
    assert series.load().names.clients == ("0", "1", "2")


@pytest.mark.parametrize("gap", ["", "NA"])
def test_rows_without_an_outcome_are_left_out_if_asked(gap: str, tmp_path: Path) -> None:
    out = [2, 7, 8]
    label = [gap if row in out else "yes" if row % 2 else "no" for row in range(ROWS)]
    TABLE.assign(label=label).to_csv(tmp_path / "t.csv", index=False)
    given: dict[str, Any] = {"path": str(tmp_path / "t.csv"), "client": "site", **HOW}
    if not gap:
        with pytest.raises(
            DataError, match=r"column label, row 3 and 2 more: .* dataset.unlabelled="
        ):
            Csv(**given).load()
    dataset = Csv(**given, unlabelled="drop").load()
    kept = TABLE.drop(index=out)
    assert dataset.x_train.flatten().tolist() == kept["x"].tolist()
    assert dataset.y_train.tolist() == kept["label"].tolist()
    assert dataset.remarks[0].endswith(f"3 rows of {ROWS} without a value in label are left out")


@pytest.mark.full
def test_numbers_to_predict_may_lack_and_hugging_face_drops_the_same(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    stay = np.where(np.arange(ROWS) % 5 == 0, np.nan, np.arange(ROWS) + 0.5)
    table = TABLE.assign(stay=stay)
    table.to_csv(tmp_path / "t.csv", index=False)
    parts = {"train": table[:16], "test": table[16:]}
    made = {k: datasets.Dataset.from_pandas(v, preserve_index=False) for k, v in parts.items()}
    datasets.DatasetDict(made).save_to_disk(str(tmp_path / "hf"))
    how = {"label": "stay", "features": ["x"], "unlabelled": "drop", "normalise": "none"}
    node = {"_target_": "fedclust.datasets.hf.HuggingFace", "path": str(tmp_path / "hf"), **how}
    found = Objects().make(node, "dataset").load("numbers")
    whole = Csv(path=str(tmp_path / "t.csv"), client="site", test_share=0, **how).load("numbers")  # type: ignore[arg-type]
    known = [row for row in range(ROWS) if row % 5]
    assert whole.y_train.flatten().tolist() == [row + 0.5 for row in known]
    assert found.y_train.flatten().tolist() == [row + 0.5 for row in known if row < 16]
    assert found.x_test.flatten().tolist() == [row / 4 for row in known if row >= 16]


def test_empty_rows_are_left_out_and_one_of_totals_is_named(tmp_path: Path) -> None:
    text = TABLE.to_csv(index=False)
    (tmp_path / "t.csv").write_text(text + ",,\n,,\n")
    given: dict[str, Any] = {"path": str(tmp_path / "t.csv"), "client": "site", **HOW}
    dataset = Csv(**given).load()
    assert rows(dataset) == EXPECTED
    assert dataset.remarks[0].endswith("t.csv: 2 empty rows left out")
    (tmp_path / "t.csv").write_text(text + "69,12,\n")
    with pytest.raises(DataError, match=r"column site, row 25: .* row, which may be one of tot"):
        Csv(**given).load()


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig", "cp1252"])
def test_encodings_and_the_first_line_of_excel(encoding: str, tmp_path: Path) -> None:
    table = TABLE.assign(site=TABLE["site"].str.replace("Ost", "Köln"))
    text = "sep=;\n" + table.to_csv(index=False, sep=";")
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    given: dict[str, Any] = {"path": str(tmp_path / "t.csv"), "client": "site", **HOW}
    for separator in (",", ";"):
        dataset = Csv(**given, encoding=encoding, separator=separator).load()
        assert dataset.names.clients == ("Köln", "Nord", "West")
        assert len(dataset.x_train) == ROWS
    if encoding != "utf-8-sig":
        hint = "utf-16" if encoding == "utf-16" else "latin-1"
        with pytest.raises(DataError, match=f"no text in UTF-8 .*: dataset.encoding={hint} reads"):
            Csv(**given).load()
    with pytest.raises(UserError, match=r"encoding=klingon is not allowed: one that Python"):
        Csv(**given, encoding="klingon")


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("%d.%m.%Y %H:%M", {}),
        ("%m/%d/%Y %I:%M %p", {}),
        ("%d/%m/%Y %H:%M", {"time_format": "%d/%m/%Y %H:%M"}),
        ("%y%m%d-%H%M", {"time_format": "%y%m%d-%H%M"}),
    ],
)
def test_forms_of_dates(form: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Hours of 11 and 12 January, which is no month."""
    hours = pd.date_range("2026-01-11 05:00", periods=40, freq="h").strftime(form)
    order = np.random.default_rng(0).permutation(40)
    table = pd.DataFrame({"hour": hours, "value": np.arange(40.0)}).iloc[order]
    table.to_csv(tmp_path / "a.csv", index=False)
    how: dict[str, Any] = {"length": 4, "horizon": 2, "stride": 1, "normalise": "none"}
    dataset = Series(path=str(tmp_path), time="hour", **options, **how).load()
    assert torch.equal(dataset.y_train[:, 1] - dataset.y_train[:, 0], torch.ones(25))
    with pytest.raises(DataError, match=r"is no time in %Y: 'dataset.time_format=.* says a"):
        Series(path=str(tmp_path), time="hour", time_format="%Y", **how).load()


def leaf_folder(path: Path) -> Path:
    (path.parent / "train").mkdir()
    return path.rename(path.parent / "train" / "pipe.json").parent.parent


@pytest.mark.parametrize(
    "reads",
    [
        lambda pipe: Csv(path=str(pipe)).load(),
        lambda pipe: Csv(path=str(pipe.parent)).load(),
        lambda pipe: Series(path=str(pipe.parent)).load(),
        lambda pipe: Npz(path=str(pipe)).load(),
        lambda pipe: Leaf(path=str(leaf_folder(pipe))).load(),
        lambda pipe: read_table(pipe),
        lambda pipe: read_attributes(pipe, None),  # type: ignore[arg-type]
    ],
    ids=["csv", "folder", "series", "npz", "leaf", "partition", "by_attribute"],
)
def test_pipes_are_not_read(reads: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="is a pipe or a device: save what it gives as a file"):
        reads(tmp_path / "pipe.csv")


@pytest.mark.parametrize("odd", [["train"], {"a": 1}, None, "later"], ids=str)
def test_a_partition_whose_split_is_no_word_is_one_line(odd: object, tmp_path: Path) -> None:
    table = pd.DataFrame({"split": [odd, odd], "client": [0, 1], "row": [0, 1]})
    table.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"p.parquet has split=.*: only train, test and validation"):
        read_table(tmp_path / "p.parquet")

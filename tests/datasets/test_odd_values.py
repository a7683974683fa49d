"""Odd values of every option of a user's own data: they are one line, or the data are read."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from fedclust.config.objects import Objects
from fedclust.config.tree import CONF
from fedclust.core.types import Dataset
from fedclust.datasets.columns import NamedColumns, Owners
from fedclust.datasets.inputs import Tabular, read_inputs
from fedclust.helpers.errors import DataError, UserError

ODD = (None, -1, 0, 0.5, 1e300, float("inf"), float("nan"), 10**30, "abc", "", "a\nb", "x", True)
ODD_LISTS: tuple[Any, ...] = ([], ["x"], [1], [None], ["x", "x"], {"a": 1})


@cache
def series(_: Path) -> tuple[list[np.ndarray], torch.Tensor, torch.Tensor, torch.Tensor]:
    """Three series in the place of seglearn's."""
    ones = torch.arange(3)
    return [np.zeros((500, 6))] * 3, ones, ones // 2, ones % 2


def node(name: str, folder: Path) -> dict[str, Any]:
    """The options of conf/, on a table of four columns where a file is needed."""
    found: dict[str, Any] = yaml.safe_load((CONF / "dataset" / f"{name}.yaml").read_text())
    found.pop("defaults", None)
    table = {"x": [1, 2, 3, 4], "label": [0, 1, 0, 1], "who": list("aabb"), "land": list("ccdd")}
    given: dict[str, Any] = {"client": "who", "group": "land"}
    if name == "csv":
        given["path"] = str(folder / "t.csv")
        pd.DataFrame(table).to_csv(given["path"], index=False)
    elif name == "hf":
        import datasets  # environments of other tests lack it

        given |= {"path": str(folder / "t"), "download": False, "test": None}
        datasets.Dataset.from_dict(table).save_to_disk(given["path"])
    elif name == "series":
        given = {"path": str(folder / "t.csv"), "client": "who", "group": "land", "value": "x"}
        given |= {"length": 1, "horizon": 1, "stride": 1, "test_share": 0.4}
        table = {"x": [*range(10)], "who": list("aaaaabbbbb"), "land": list("cccccddddd")}
        pd.DataFrame(table).to_csv(given["path"], index=False)
    elif name == "leaf":
        given = {"path": str(folder)}
        (folder / "train").mkdir()
        users = {"users": ["a"], "num_samples": [2]}
        data = {"user_data": {"a": {"x": [[0.5], [1.0]], "y": [0, 1]}}}
        (folder / "train" / "t.json").write_text(json.dumps(users | data))
    return found if name in ("watch", "load") else found | given


@pytest.mark.full
@pytest.mark.parametrize("name", ["csv", "hf", "leaf", "load", "series", "watch"])
def test_an_odd_value_is_one_line_or_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedclust.datasets.watch._series", series)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    given = node(name, tmp_path)
    read, told = 0, []
    for key in set(given) - {"_target_", "download"}:
        for value in (*ODD, *ODD_LISTS)[:: 2 if name == "hf" else 1]:
            try:
                found = Objects().make(given | {key: value}, "dataset").load()
            except UserError as error:
                told.append(str(error).replace("a\nb", ""))
            else:
                read += 1
                assert isinstance(found, Dataset), f"{key}={value!r}"
                assert bool(torch.isfinite(found.x_train * found.scale + found.shift).all())
    assert [line for line in told if "\n" in line] == []
    assert len(told) > 3 * read > 0


def test_a_time_is_no_number() -> None:
    when = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]")
    table = NamedColumns(what="t", names=["when"], read=lambda _: when, size=2)
    wanted = Tabular(path="", label=[])
    with pytest.raises(DataError, match=r"has dates in column when \(2020-01-01.* in row 1\)"):
        read_inputs(table, wanted, torch.arange(2), Owners())

"""Runs, reports and searches of other tasks, from a file to a table."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from toy_tasks import TASKS, dataset_for

import fedclust
from fedclust.helpers.errors import UserError
from fedclust.papers.reports import make_report

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "tasks.md"
SMALL = {"rounds": 3, "seeds": 2, "progress": False, "threads": 1, "validation": 0.2}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, task in (("numbers", "mse"), ("flags", "multilabel"), ("classes", "smoothed")):
        data = dataset_for(TASKS[task])
        y = {"y_train": data.y_train.numpy(), "y_test": data.y_test.numpy()}
        np.savez(f"{name}.npz", x_train=data.x_train.numpy(), x_test=data.x_test.numpy(), **y)
    return tmp_path


def done(file: str, *overrides: str, **keys: Any) -> fedclust.Result:
    return fedclust.run(
        "dataset=npz",
        f"dataset.path={file}.npz",
        "partition=iid",
        "partition.num_clients=4",
        "model=linear",
        "solver.lr=0.2",
        *overrides,
        SMALL,
        **keys,
    )


@pytest.mark.full
@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    ("task", "file", "own", "better"),
    [("regression", "numbers", "mae", "lower"), ("multilabel", "flags", "macro_f1", "higher")],
)
def test_a_run_and_its_report(here: Path, task: str, file: str, own: str, better: str) -> None:
    for algorithm in ("fedavg", "local"):
        target = f"report={{metric: {own}, target: {{arm: local, share: 0.5}}}}"
        result = done(file, f"task={task}", f"algorithm={algorithm}", target, name="x")
        assert {own, f"{own}_client_mean", f"validation_{own}"} <= set(result.rounds)
        assert "accuracy" not in result.rounds
        last = result.rounds[result.rounds["round"] == 2]
        # the headline of a client stands beside what the test added up
        rows = result.clients[result.clients["round"] == 2]
        assert rows.groupby("seed")[own].mean().tolist() == pytest.approx(
            last[f"{own}_client_mean"].tolist()
        )
        meanings = json.loads((result.folder / "metrics.json").read_text())
        assert meanings[own]["better"] == better
    make_report(here / "outputs" / "x")
    table = pd.read_csv(here / "outputs" / "x" / "report" / "table.csv")
    assert len(table) >= 2
    # half of a score, or twice an error, is reached from the first three rounds on
    assert pd.read_csv(here / "outputs" / "x" / "report" / "target.csv")["reached"].tolist() == [
        2,
        2,
    ]
    assert not (here / "outputs" / "x" / "report" / "classes.csv").exists()
    page = next((here / "outputs" / "x" / "report").glob("report.html")).read_text()
    assert meanings[own]["title"] in page
    assert "No inputs: a constant guess" in page
    assert "Test accuracy" not in page


@pytest.mark.full
def test_a_task_of_ones_own(here: Path) -> None:
    written = re.findall(r"^```\w+\n(# (mine/\S+)\n.*?)^```$", PAGE.read_text(), re.M | re.S)
    for block, name in written:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(block)
    try:
        found = done("numbers", "task=root", "algorithm=fedavg", config_dir="mine", name="own")
        assert (found.rounds["root_error"] >= found.rounds["mae"]).all()
    finally:
        sys.modules.pop("root", None)


@pytest.mark.full
def test_labels_that_are_numbers_say_which_task_reads_them(here: Path) -> None:
    for file, task in (("numbers", "regression"), ("flags", "multilabel")):
        with pytest.raises(UserError, match=f"task={task}"):
            done(file, "algorithm=fedavg", name="wrong")
    with pytest.raises(UserError, match="0 or 1"):
        done("numbers", "task=multilabel", "algorithm=fedavg", name="wrong")
    with pytest.raises(UserError, match=r"dirichlet|DirichletLabels \(partition\)"):
        done("numbers", "task=regression", "partition=dirichlet", name="wrong")
    assert not (here / "outputs" / "wrong").exists() or not list(
        (here / "outputs" / "wrong").rglob("rounds.csv")
    )


@pytest.mark.full
@pytest.mark.parametrize("key", ["objective=accuracy", "report={metric: accuracy_client_mean}"])
def test_a_score_of_another_task_is_refused_before_round_0(here: Path, key: str) -> None:
    with pytest.raises(UserError, match=r"a score of this task, such as mae, r2"):
        done("numbers", "task=regression", "algorithm=fedavg", key, name="wrong")
    assert not list((here / "outputs").rglob("rounds.csv"))

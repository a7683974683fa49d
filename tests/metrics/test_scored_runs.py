"""Scores and predictions of whole runs: where they stand, and that nothing else changes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from configs import composed
from refusals import refused
from sklearn import metrics

import fedclust
from fedclust.config.build import build
from fedclust.core.types import Predictions
from fedclust.helpers.errors import ConfigError, DataError, Interrupted, RunFolderError
from fedclust.papers.reports import make_report
from fedclust.report.runs import Run
from fedclust.runtime.client_table import write_predictions
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

TINY: dict[str, Any] = {
    "partition": "class_subsets",
    "partition.num_clients": 8,
    "partition.examples_per_client": 24,
    "model": "linear",
    "algorithm": "ifca",
    "rounds": 3,
    "progress": False,
    "device": "cpu",
}
OWN = """
from fedclust.core.task import Score


class Cost:
    about = Score("cost", "mean distance of the classes", "Cost", "lower", "")
    targets = ("classes",)

    def __call__(self, targets, predictions, client):
        return float(abs(predictions.argmax(1) - targets).mean())
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_predictions_of_any_size_are_read_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    row = torch.arange(50_000)
    outputs = torch.rand(len(row), 2, generator=torch.Generator().manual_seed(0)).double()
    said = Predictions(client=row % 7, row=row, targets=row % 2, predictions=outputs)
    write_predictions(tmp_path / "predictions" / "seed=0.parquet", 0, said)
    found = Run(tmp_path, {}, {}, {}).predictions()
    assert found["row"].tolist() == row.tolist()
    np.testing.assert_array_equal(found[["output_0", "output_1"]], outputs)
    os.mkfifo(tmp_path / "predictions" / "seed=1.parquet")
    with pytest.raises(DataError, match=r"seed=1.parquet cannot be read .*is a pipe"):
        Run(tmp_path, {}, {}, {}).predictions()


@pytest.mark.full
def test_scores_are_those_of_the_predictions_that_are_kept() -> None:
    plain = fedclust.run(TINY)
    result = fedclust.run(
        TINY, scores=["f1_macro", "auroc", "confusion"], score_every=2, predictions=True
    )
    assert result.folder != plain.folder
    said = result.predictions
    assert list(said.columns) == [
        *("arm", "seed", "client", "row", "target"),
        *(f"output_{c}" for c in range(10)),
    ]
    outputs = said[[f"output_{c}" for c in range(10)]].to_numpy()
    np.testing.assert_allclose(outputs.sum(1), 1)
    right = outputs.argmax(1) == said["target"]
    assert right.mean() == pytest.approx(result.summary.loc["ifca", "accuracy"]["last"])
    last = result.clients[result.clients["round"] == 2].set_index("client")
    assert right.groupby(said["client"]).sum().tolist() == last["correct"].tolist()
    scores = result.scores
    assert set(scores["round"]) == {1, 2}
    assert set(scores["over"]) == {"pooled", "client_mean", "worst_decile"}
    end = scores[(scores["round"] == 2) & (scores["score"] == "auroc")].set_index("over")
    assert last["auroc"].mean() == pytest.approx(end.loc["client_mean", "value"])
    assert last["auroc"].min() == pytest.approx(end.loc["worst_decile", "value"])
    assert result.clients.query("round == 0")["auroc"].isna().all()
    count = np.load(result.folder / "arrays/seed=0/score_confusion.npy")
    assert count.sum() == len(said)
    assert np.trace(count) == right.sum()
    assert "f1_macro" in result.table("scores").markdown()
    # all else is as without
    same = [name for name in plain.rounds.columns if name not in ("seconds", "arm")]
    pd.testing.assert_frame_equal(plain.rounds[same], result.rounds[same])
    assert plain.scores.empty
    assert plain.predictions.empty
    assert not (plain.folder / "predictions").exists()
    before, after = (one.folder / "config.yaml" for one in (plain, result))
    assert before.read_text().splitlines()[-1] == after.read_text().splitlines()[-1]  # the hash


@pytest.mark.full
def test_a_guess_without_inputs_has_the_scores_that_are_asked_for() -> None:
    result = fedclust.run(TINY, scores=["auroc", "log_loss"], predictions=True, rounds=1)
    about = json.loads((result.folder / "federation.json").read_text())["seeds"]["0"]
    said = result.predictions
    owners = pd.read_parquet(result.folder / "partition/seed=0.parquet")
    train = owners[owners["split"] == "train"]
    (fed,) = build(composed("dataset=digits", "partition=iid")).federations.values()
    guess = np.zeros((len(said), 10))  # the rates of every client's classes in training
    targets = fed.pool.y[torch.tensor(train["row"].to_numpy())].numpy()
    for client in said["client"].unique():
        own = targets[(train["client"] == client).to_numpy()]
        guess[said["client"] == client] = np.bincount(own, minlength=10) / len(own)
    found = about["trivial"]
    pooled = metrics.roc_auc_score(said["target"], guess, multi_class="ovr")
    assert found["auroc"] == pytest.approx(pooled)
    assert found["auroc"] > 0.6  # whose client it is tells much of the class
    assert found["auroc_over_clients"] == pytest.approx(0.5)  # within a client it tells nothing
    assert found["log_loss"] == pytest.approx(
        metrics.log_loss(said["target"], guess, labels=range(10))
    )
    table = result.table("scores")
    assert table.rows[-1][0].text == "no inputs"
    assert table.rows[-1][1].text == f"{pooled:.4f}"
    assert result.table().records[0]["no_inputs"] == pytest.approx(100 * found["accuracy"])


@pytest.mark.full
def test_a_guess_without_inputs_is_of_the_clients_whose_predictions_are_kept() -> None:
    """By hand, with hostile clients that learn other labels and newcomers that never arrive."""
    result = fedclust.run(
        {**TINY, "attack": "label_flip", "attack.share": 0.4, "scenario": "newcomers"},
        {"scenario.arrive_at": [3], "scenario.fraction": 0.25},
        scores=["brier"],
        predictions=True,
    )
    found = json.loads((result.folder / "federation.json").read_text())["seeds"]["0"]["trivial"]
    said = result.predictions
    owners = pd.read_parquet(result.folder / "partition/seed=0.parquet")
    train = owners[owners["split"] == "train"]
    (fed,) = build(composed("dataset=digits", "partition=iid")).federations.values()
    targets = fed.pool.y[torch.tensor(train["row"].to_numpy())].numpy()
    assert 0 < said["client"].nunique() < 5  # three of eight are hostile, and two away
    guess = np.zeros((len(said), 10))
    for client in said["client"].unique():
        own = targets[(train["client"] == client).to_numpy()]
        guess[said["client"] == client] = np.bincount(own, minlength=10) / len(own)
    truth = said["target"].to_numpy()
    assert found["accuracy"] == pytest.approx((guess.argmax(1) == truth).mean())
    brier = np.square(guess - np.eye(10)[truth]).sum(1).mean()
    assert found["brier"] == pytest.approx(brier)


@pytest.mark.full
def test_asked_for_afterwards_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedclust.launch.typed.names_folder", lambda _: False)
    fedclust.run(TINY, rounds=1)
    with pytest.raises(RunFolderError, match=r"computed without scores=\[auroc\]"):
        fedclust.run(TINY, rounds=1, scores=["auroc"])
    with pytest.raises(RunFolderError, match="computed without predictions=true"):
        fedclust.run(TINY, rounds=1, predictions=True)


@pytest.mark.full
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"scores": ["mae"]}, "scores=mae is not allowed: a score of classes, .*: f1_macro"),
        ({"scores": ["auroc2"]}, "scores=auroc2 is not allowed: did you mean auroc"),
        ({"scores": ["auroc", "auroc"]}, "scores=auroc is not allowed: every score once"),
        ({"score_every": 2}, "score_every=2 is not allowed: null where"),
        ({"scores": ["auroc"], "score_every": 3, "eval_every": 2}, "a multiple of eval_every=2"),
        (
            {"scores": "auroc"},
            "scores=auroc is not allowed: a list, as in",
        ),
        ({"scores": None}, "scores=None is not allowed: a list"),
    ],
)
def test_a_mistake_is_one_line_before_the_first_round(keys: dict[str, Any], words: str) -> None:
    with refused(ConfigError, words):
        fedclust.run(TINY, **keys)
    assert not list(Path("outputs").rglob("rounds.csv"))


@pytest.mark.full
def test_a_score_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "costs.py").write_text(OWN)
    result = fedclust.run(
        TINY,
        "scores=[{_target_: costs.Cost}]",
        rounds=1,
        predictions=True,
        config_dir=tmp_path / "mine",
    )
    said = result.predictions
    outputs = said[[f"output_{c}" for c in range(10)]].to_numpy()
    cost = np.abs(outputs.argmax(1) - said["target"]).mean()
    assert result.summary.loc["ifca", "cost"]["last"] == pytest.approx(cost)
    assert set(result.scores["score"]) == {"cost"}


@pytest.mark.full
def test_an_objective_may_be_a_score_of_validation_examples() -> None:
    result = fedclust.run(TINY, rounds=2, validation=0.25, objective="validation_auroc")
    assert result.rounds["validation_auroc"].notna().tolist() == [False, True]


class Ending(Silent):
    """Ends the job when round 2 is complete."""

    def round(self, t: int, values: Mapping[str, float]) -> None:
        if t == 2:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.full
def test_a_run_that_continues_ends_with_the_same_bytes(tmp_path: Path) -> None:
    given = [f"{key}={value}" for key, value in TINY.items()]
    asked = ["scores=[auroc,brier]", "score_every=2", "predictions=true", "rounds=5", "seeds=2"]
    config = composed(*given, *asked)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(build(config), RunFolder(whole, config), Silent())
    with pytest.raises(Interrupted):
        run(build(config), RunFolder(cut, config), Ending())
    assert not (cut / "predictions").exists()
    run(build(config), RunFolder(cut, config), Silent())
    kept = [*whole.rglob("score_*.npy"), *whole.rglob("predictions/*"), whole / "clients.parquet"]
    assert len(kept) == 2 * 2 + 2 + 1
    for file in kept:
        assert file.read_bytes() == (cut / file.relative_to(whole)).read_bytes(), file
    rows = [
        [line for line in (one / "rounds.csv").read_text().splitlines() if ",seconds," not in line]
        for one in (whole, cut)
    ]
    assert rows[0] == rows[1]
    (cut / "predictions/seed=1.parquet").write_bytes(b"damaged")
    folder = RunFolder(cut, config)
    assert folder.is_done()
    assert any("seed=1.parquet is damaged" in line for line in folder.remarks)


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_scores_of_other_tasks(tmp_path: Path, task: str) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(120, 4)).astype(np.float32)
    y = x[:, :2] + 0.1 * draw.normal(size=(120, 2))
    y = (y > 0).astype(np.uint8) if task == "multilabel" else 1000 + 50 * y
    np.savez("mine.npz", x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])
    scores = {"multilabel": ["f1_macro", "auroc", "brier"], "regression": ["mae", "rmse", "r2"]}
    result = fedclust.run(
        {"dataset": "npz", "dataset.path": str(tmp_path / "mine.npz"), "partition": "iid"},
        {"partition.num_clients": 4, "model": "linear", "algorithm": "fedavg", "progress": False},
        {"rounds": 4, "task": task, "scores": scores[task], "predictions": True, "device": "cpu"},
    )
    said, last = result.predictions, result.summary["last"]["fedavg"]
    target, output = (said[[f"{part}_0", f"{part}_1"]].to_numpy() for part in ("target", "output"))
    if task == "multilabel":
        assert last["auroc"] == pytest.approx(metrics.roc_auc_score(target, output))
        assert last["f1_macro"] == pytest.approx(last["macro_f1"])  # the headline, which stays
        assert "Macro F1" in result.table().markdown().splitlines()[0]
        assert (output >= 0).all()
        assert (output <= 1).all()
    else:
        assert target.mean() == pytest.approx(1000, abs=20)  # in the unit of the file
        assert last["mae"] == pytest.approx(np.abs(target - output).mean())
        assert last["rmse"] == pytest.approx(metrics.root_mean_squared_error(target, output))
        assert last["r2"] == pytest.approx(metrics.r2_score(target, output))
        assert last["rmse_worst_decile"] >= last["rmse_over_clients"]
    page = make_report(result.folder).parent
    drawn = {file.stem for file in (page / "figures").glob("scores_*.png")}
    shown = {"multilabel": {"scores_roc", "scores_calibration"}, "regression": {"scores_residuals"}}
    assert drawn == shown[task]

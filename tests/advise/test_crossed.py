"""Models on the test rows of others, and how far they are too sure: of jobs on tables that are
known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from configs import with_algorithm

from fedclust.advise.crossed import calibration, relations
from fedclust.config.build import build
from fedclust.core.types import Federation
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run
from fedclust.runtime.trained import Trained

TABLE = (
    *("dataset=csv", "dataset.path=own.csv", "dataset.client=site", "dataset.group=land"),
    *("partition=natural", "dataset.exclude=[days]", "dataset.label=ill", "model=linear"),
    *("rounds=3", "eval_every=3", "seeds=[0,1,2]", "solver.lr=0.5", "solver.batch_size=4"),
    *("engine=loop", "device=cpu", "progress=false"),
)
GROUPS = np.array([0, 1, 0, 1])


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(turned: bool, rows: int = 200) -> None:
    """Four sites in two lands; turned: what makes ill in one protects in the other."""
    rng, which = np.random.default_rng(0), np.arange(rows) % 4
    x = rng.normal(size=(rows, 2)) + (0 if turned else 2) * (which % 2)[:, None]
    sign = np.where(turned & (which % 2 == 1), -1, 1)
    table = pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "site": which, "land": which % 2})
    table["ill"] = np.where(sign * (x[:, 0] - x[:, 1]) > 0, "yes", "no")
    table["days"] = 20 + 10 * sign * x[:, 0]
    table.to_csv("own.csv", index=False)


def job(algorithm: str, *more: str) -> list[tuple[Trained, Federation]]:
    """A finished job, as what the functions take of every seed."""
    config: dict[str, Any] = with_algorithm(algorithm, *TABLE, *more)
    made = build(config)
    run(made, RunFolder(Path(algorithm), config), Silent())
    seeds = config["seeds"]
    return [(Trained(Path(algorithm), config, s, None), made.federations[s]) for s in seeds]


@pytest.mark.full
def test_the_model_of_an_opposite_group_is_wrong_where_the_own_one_is_right() -> None:
    write(turned=True)
    repetitions = job("oracle")
    found = relations(repetitions, GROUPS, 0.25)
    tested = pd.read_parquet("oracle/clients.parquet")
    tested = tested[tested["round"] == 2]
    for one in found:
        own = tested[GROUPS[tested["client"].to_numpy()] == one.group].groupby("seed")
        recorded = (own["correct"].sum() / own["test_count"].sum()).to_numpy()
        assert one.own == pytest.approx(recorded.mean())  # what the job itself has measured
        assert one.metric == "accuracy"
        assert one.own > 0.85
        assert one.others < 0.15
        assert one.lead.mean == pytest.approx(one.own - one.corrected)
        assert one.lead.low > 0.5
    assert [one.group for one in found] == [0, 1]


@pytest.mark.full
def test_one_relation_needs_no_second_model() -> None:
    write(turned=False)
    for one in relations(job("oracle"), GROUPS, 0.25):
        assert abs(one.lead.mean) < 0.1
    same = relations(job("fedavg"), GROUPS, 0.25)[0]
    assert same.own == same.others
    assert relations([], np.zeros(4, dtype=np.int64), 0.25) == []


@pytest.mark.full
def test_shares_of_labels_are_corrected() -> None:
    """Inputs given the label are alike: the models of the others need other shares alone."""
    rng, which = np.random.default_rng(0), np.arange(800) % 4
    ill = rng.random(800) < np.where(which % 2, 0.9, 0.1)
    x = rng.normal(size=(800, 2)) + np.where(ill, 0.6, -0.6)[:, None]
    table = pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "site": which, "land": which % 2})
    table.assign(ill=ill, days=0).to_csv("own.csv", index=False)
    for one in relations(job("oracle", "solver.lr=0.1"), GROUPS, 0.25):
        assert one.own > one.others + 0.15
        assert abs(one.own - one.corrected) < 0.03
        assert one.lead.mean == pytest.approx(one.own - one.corrected)


@pytest.mark.full
def test_calibration_is_sureness_less_what_is_right() -> None:
    write(turned=True)
    repetitions = job("fedavg")
    found, total, count = calibration(repetitions), np.zeros(4), np.zeros(4)
    for trained, fed in repetitions:
        for client in range(4):
            rows = fed.test.of_client(client)
            said = trained.network(client)(fed.pool.inputs(rows)).detach().double().softmax(1)
            right = (said.argmax(1) == fed.pool.y[rows]).double()
            total[client] += float((said.max(1).values - right).sum())
            count[client] += len(rows)
    assert found == pytest.approx(total / count)


@pytest.mark.full
def test_calibration_of_numbers_is_the_mean_error_in_the_unit_of_the_file() -> None:
    write(turned=False)
    more = ("task=regression", "dataset.label=days", "dataset.exclude=[ill]", "seeds=[0]")
    ((trained, fed),) = job("fedavg", *more)
    rows = fed.test.of_client(2)
    table = pd.read_csv("own.csv")
    own = table[table["site"] == 2]
    said, _ = trained.predict(own, 2)
    error = torch.as_tensor(said[:, 0].numpy() - own["days"].to_numpy())
    truth = fed.pool.task.in_unit(fed.pool.y[rows].double())[:, 0]
    tested = [int(np.flatnonzero(np.isclose(own["days"], one))[0]) for one in truth.tolist()]
    assert calibration([(trained, fed)])[2] == pytest.approx(float(error[tested].mean()), abs=1e-3)

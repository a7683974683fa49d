"""What trains where nobody types a solver, and what is said where training still diverges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from configs import chosen, composed

from fedclust.config.build import build
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

ROWS = 120


def words() -> dict[str, Any]:
    """Two columns of the same words, some of them rare: collinear once they are one-hot."""
    rng = np.random.default_rng(0)
    kind = np.where(np.arange(ROWS) % 29 == 0, "rare", rng.choice(["a", "b", "c"], ROWS))
    worth = pd.Series(kind).map({"a": 1.0, "b": 2.0, "c": 4.0, "rare": 30.0})
    return {"kind": kind, "again": kind + "2", "y": worth + rng.normal(0, 0.3, ROWS)}


def scales() -> dict[str, Any]:
    """Sizes over three orders of magnitude, as of towns or genes, each twice."""
    rng = np.random.default_rng(1)
    size = np.exp(rng.normal(0, 1.5, (ROWS, 4)))
    x = {f"x{i}": column for i, column in enumerate(size.T)}
    both = {f"{name}b": column * 1000 + 1 for name, column in x.items()}
    return {**x, **both, "y": np.log(size).sum(1)}


def nine() -> dict[str, Any]:
    """Nine inputs that say nearly the same, as a diamond's sizes do."""
    rng = np.random.default_rng(2)
    true = rng.normal(0, 1, ROWS)
    x = {f"x{i}": true + rng.normal(0, 0.05, ROWS) for i in range(9)}
    return {**x, "y": 100 * true + rng.normal(0, 5, ROWS)}


TABLES = {"words": words, "scales": scales, "nine": nine}


def result(
    folder: Path, table: str, *more: str
) -> tuple[pd.DataFrame, dict[str, float], list[str]]:
    """The numbers of all rounds, those of a guess without inputs, and the warnings of a job."""
    site = [f"s{i % 4}" for i in range(ROWS)]
    pd.DataFrame({**TABLES[table](), "site": site}).to_csv(folder / "t.csv", index=False)
    config = composed(
        *("dataset=csv", f"dataset.path={folder / 't.csv'}", "dataset.label=y"),
        *("dataset.client=site", "dataset.categories=onehot", "task=regression", "model=linear"),
        *("algorithm=fedavg", "rounds=8", *more),
    )
    said: list[str] = []

    class Heard(Silent):
        def warn(self, message: str) -> None:
            said.append(message)

    run(build(config), RunFolder(folder / "job", config), Heard())
    rounds = pd.read_csv(folder / "job" / "rounds.csv")
    found = json.loads((folder / "job" / "federation.json").read_text())
    return rounds, found["seeds"]["0"]["trivial"], said


@pytest.mark.full
@pytest.mark.parametrize("table", TABLES)
def test_a_regression_on_a_table_as_it_comes_learns_at_the_defaults(
    table: str, tmp_path: Path
) -> None:
    rounds, guess, said = result(tmp_path, table)
    mae = rounds[rounds["metric"] == "mae"]["value"]
    assert mae.iloc[-1] < 0.8 * guess["mae"]
    assert mae.max() < 2 * guess["mae"]
    assert not [line for line in said if "diverges" in line]


@pytest.mark.full
def test_a_loss_that_leaves_every_bound_is_told_once_in_its_round(tmp_path: Path) -> None:
    rounds, _, said = result(tmp_path, "scales", "solver=sgd")
    loss = rounds[rounds["metric"] == "test_loss"].set_index("round")["value"]
    first = int(loss.index[loss > 1000][0])
    (line,) = said
    assert line.startswith(f"seed 0, round {first}: the test loss is {loss[first]:.3g}, and that ")
    assert line.endswith(": training diverges; a smaller solver.lr, or solver=adam, may help")
    # of one guess for all: the mean of standardised targets, so about 1 but for the few test rows
    assert float(line.split("inputs ")[1].split(":")[0]) == pytest.approx(1, abs=0.5)
    assert loss.iloc[-1] > 1000 * loss[first]


@pytest.mark.full
@pytest.mark.parametrize(
    ("overrides", "solver", "lr"),
    [
        (["task=regression"], "Adam", 0.01),
        (["dataset=csv", "task=regression"], "Adam", 0.01),
        (["dataset=series", "task=regression"], "Solver", 0.1),
        (["dataset=csv", "task=regression", "solver=sgd"], "Solver", 0.1),
        (["task=regression", "solver=adam"], "Adam", 0.001),
        (["experiment=natural/load"], "Solver", 0.1),
        (["dataset=csv"], "Solver", 0.1),
        (["task=multilabel"], "Solver", 0.1),
    ],
)
def test_regressions_choose_a_solver_unless_another_is_asked_for(
    overrides: list[str], solver: str, lr: float
) -> None:
    node = chosen(*overrides).solver
    assert (node._target_, node.lr) == (f"fedclust.solver.{solver}", lr)

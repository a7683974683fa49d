"""A method that leaves clients out does not win by it: neither a search nor an advice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from cli.conftest import Cli

pytestmark = pytest.mark.full

OWN = ("dataset.path=own.csv", "dataset.label=ill", "dataset.client=site", "progress=false")


@pytest.fixture(autouse=True)
def skipping(tmp_path: Path) -> None:
    """Six sites, the last three of which have labels of chance, and a method that can skip them."""
    rng = np.random.default_rng(0)
    x, site = rng.normal(size=(360, 2)), np.arange(360) % 6
    ill = np.where(site < 3, x[:, 0] > 0, rng.random(360) < 0.5)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "ill": ill.astype(int), "site": site})
    frame.to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "mine" / "algorithm").mkdir(parents=True)
    (tmp_path / "mine" / "algorithm" / "skip.yaml").write_text(
        "_target_: skip_method.Skip\nsolver: ${solver}\nskip: true\nabout: {kind: one model}\n"
    )
    (tmp_path / "mine" / "skip_method.py").write_text(
        "from dataclasses import dataclass, replace\n"
        "import torch\n"
        "from fedclust.algorithms.fedavg import FedAvg\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Skip(FedAvg):\n"
        "    skip: bool\n"
        "    def serve(self, state, clients, rnd):\n"
        "        served = super().serve(state, clients, rnd)\n"
        "        hard = torch.arange(len(served.label)) > 2\n"
        "        return replace(served, label=torch.where(hard & self.skip, -1, served.label))\n"
    )


def test_a_search_takes_the_trial_that_serves_all(fedclust: Cli, tmp_path: Path) -> None:
    own = ("experiment=advise", *OWN, "rounds=3", "eval_every=3")
    done = fedclust.done(
        *("tune", "--config-dir", "mine", *own, "algorithm=skip", "algorithm.skip=true,false"),
        *("solver.lr=0.5", "trials=2", "name=t"),
    )
    assert "50 % of the clients have a model" in done.out + done.err
    (best,) = tmp_path.rglob("best.yaml")
    assert yaml.safe_load(best.read_text())["values"] == {"algorithm.skip": False}
    trials = pd.read_csv(best.with_name("trials.csv"))
    skipped = trials[trials["served"] < 1]
    assert skipped["served"].tolist() == [0.5]
    assert float(skipped["value"].iloc[0]) > float(trials["value"].min())
    (table,) = tmp_path.rglob("tuning.md")
    assert "gave clients no model" in table.read_text()
    assert "of 50 % of the clients" in table.read_text()


def test_an_advice_compares_no_method_that_leaves_clients_out(fedclust: Cli) -> None:
    fedclust.refused(
        *("advise", "--config-dir", "mine", *OWN, "rounds=3", "eval_every=3", "seeds=3"),
        *("algorithm=skip,local,ifca", "settings=2", "permutations=0"),
        says="its method gives some clients no model (label −1) that other choices serve",
    )

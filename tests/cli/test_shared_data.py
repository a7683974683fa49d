"""Jobs that differ in their methods alone have their data made once, and the numbers they would
have by themselves.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from cli.conftest import Cli

from fedclust.config import data
from fedclust.core.types import Split
from fedclust.runtime import shared_data
from fedclust.runtime.shared_data import _DECIDES, SharedData
from tests.configs import composed

SMALL = ("progress=false", "rounds=1", "seeds=2", "threads=1")
CLIENTS = "partition.num_clients"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one whenever data are loaded."""
    load, seen = data.load_dataset, list[Any]()

    def counted(*arguments: Any) -> Any:
        seen.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(data, "load_dataset", counted)
    return seen


@pytest.mark.full
def test_jobs_of_a_sweep_that_differ_in_methods_share_their_data(
    fedclust: Cli, tmp_path: Path, loaded: list[Any]
) -> None:
    fedclust.done("run", "-m", f"{CLIENTS}=8,12", "algorithm=fedavg,ifca", "name=both", *SMALL)
    assert len(loaded) == 2  # of 8 clients, and of 12
    done = fedclust("run", f"{CLIENTS}=12", "algorithm=ifca", "name=alone", *SMALL)
    assert (done.status, len(loaded)) == (0, 3)
    both, alone = (
        next(tmp_path.glob(f"outputs/{name}/ifca*{CLIENTS}=12*")) for name in ("both", "alone")
    )
    tables = [pd.read_csv(folder / "rounds.csv") for folder in (both, alone)]
    one, other = (table[table.metric != "seconds"].reset_index(drop=True) for table in tables)
    pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert (both / "federation.json").read_text() == (alone / "federation.json").read_text()


@pytest.mark.full
def test_searches_for_several_methods_share_their_data(fedclust: Cli, loaded: list[Any]) -> None:
    done = fedclust("tune", "algorithm=fedavg,fedprox", f"{CLIENTS}=8", "trials=1", *SMALL[:2])
    assert (done.status, len(loaded)) == (0, 1)


@pytest.mark.full
def test_everything_that_decides_the_data_is_compared() -> None:
    read = set[str]()

    class Reads(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            read.add(key)
            return super().__getitem__(key)

        def get(self, key: str, default: Any = None) -> Any:
            read.add(key)
            return super().get(key, default)

    data.data_of(Reads(composed()))
    asked = {"solver", "cluster_metric", "cluster_method"}  # parts that others may refer to
    assert {"dataset", "partition", "seeds", "validation", "weights", "task"} <= read
    # the device moves the data, an attack changes them: `data_of` leaves both out; of the model the
    # file of weights is compared
    assert read - asked - {"model"} <= set(_DECIDES) - {"device", "attack"}


def test_other_data_let_go_of_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data.npz"
    file.write_bytes(b"one")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "resnet18-f37072fd.pth").touch()
    config: dict[str, Any] = {"dataset": {"path": str(file)}, "seeds": [0], "device": "cpu"}
    monkeypatch.setattr(shared_data, "_bytes", lambda _: shared_data._MOST + 1)
    shared = SharedData()
    assert shared.of(config) is None
    federations: dict[int, Any] = {0: object()}
    shared.keep(federations)
    assert shared.of({**config, "rounds": 3, "algorithm": "another"}) is federations
    assert pickle.loads(pickle.dumps(shared)).of(config) is None
    os.utime(file, (1, 1))
    assert shared.of(config) is None
    for key in ("seeds", "device", "partition", "attack"):
        shared.of(config)
        shared.keep(federations)
        assert shared.of(config) is federations
        assert shared.of({**config, key: "another"}) is None
        assert shared.of(config) is None
    model = {"_target_": "fedclust.models.named.torchvision", "name": "resnet18"}
    shared.keep(federations)
    assert shared.of({**config, "model": model}) is federations
    assert shared.of({**config, "model": {**model, "weights": "DEFAULT"}}) is None


def test_small_data_of_earlier_jobs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    federations: list[dict[int, Any]] = [{0: object()}, {1: object()}, {2: object()}]
    monkeypatch.setattr(shared_data, "_bytes", lambda _: shared_data._MOST // 2)
    shared = SharedData()
    configs: list[dict[str, Any]] = [{"seeds": [seed]} for seed in range(3)]
    for config, one in zip(configs, federations, strict=True):
        assert shared.of(config) is None
        shared.keep(one)
    assert shared.of(configs[0]) is federations[0]  # now the one asked for last
    assert shared.of({"seeds": [3]}) is None  # and what is too much has gone, the oldest first
    assert shared.of(configs[1]) is None
    assert [shared.of(configs[place]) for place in (2, 0)] == [federations[2], federations[0]]


def test_bytes_of_data_are_those_of_examples_and_tables() -> None:
    pool = SimpleNamespace(x=torch.zeros(10, 3), y=torch.zeros(10, dtype=torch.int64))
    split = Split.of([torch.arange(4), torch.arange(6)])
    fed: Any = SimpleNamespace(pool=pool, splits={"train": split, "test": split})
    assert shared_data._bytes({0: fed, 1: fed}) == 10 * 3 * 4 + 10 * 8 + 4 * 10 * 4

"""Job folders written by the real recorder, with made-up results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from fedclust.core.types import Cost, Evaluation, Federation, Pool, Round, Served, Split
from fedclust.runtime.recorder import Recorder
from fedclust.trackers.none import NoTracker

NUM_PARAMS = 1000
TESTED = 50  # test examples per client


def federation(group: Tensor) -> Federation:
    pool = Pool(
        x=torch.zeros(4, 1),
        y=torch.zeros(4, dtype=torch.int64),
        scale=torch.ones(1),
        shift=torch.zeros(1),
        num_classes=2,
    )
    train = Split.of([torch.zeros(3, dtype=torch.int64) for _ in group])
    return Federation(pool=pool, train=train, test=train, group=group)


def evaluation(label: Tensor, accuracy: Tensor | float, models: int) -> Evaluation:
    """Every served client gets round(accuracy * TESTED) of its TESTED examples right."""
    count = torch.where(label >= 0, TESTED, 0)
    correct = (torch.as_tensor(accuracy) * count).round().to(torch.int64)
    served = Served(models=torch.zeros(models, 2), label=label)
    return Evaluation(
        served=served, loss_sum=0.5 * count.double(), sums=correct[:, None].double(), count=count
    )


def round_of(fed: Federation, seed: int, t: int) -> Round:
    everybody = torch.arange(fed.num_clients)
    yes = everybody >= 0
    return Round(
        t=t,
        seed=seed,
        fed=fed,
        cohort=everybody,
        present=yes,
        shifted=~yes,
        work=yes.float(),
        dropped=~yes,
    )


def labels(name: str, group: Tensor, seed: int, t: int) -> Tensor:
    """How the made-up algorithms cluster: lcfl exactly from round 3; ifca merges two groups but in
    seed 2.
    """
    if name == "lcfl":
        return (group + 1) % 4 if t >= 3 else torch.zeros_like(group)
    if name == "ifca":
        settled = group if seed == 2 else torch.where(group == 3, 0, group)
        noisy = torch.from_numpy(np.random.default_rng(7 * seed + t).integers(0, 4, len(group)))
        return (
            torch.where(torch.arange(len(group)) % (t + 2) == 0, noisy, settled)
            if t < 8
            else settled
        )
    return torch.arange(len(group)) if name == "local" else torch.zeros_like(group)


def accuracy(name: str, seed: int, t: int) -> float:
    top, speed = {
        "lcfl": (0.98, 4.0),
        "ifca": (0.96, 3.0),
        "fedavg": (0.93, 4.0),
        "local": (0.86, 1.5),
    }[name]
    base = (
        0.98 - 0.6 * np.exp(-(t + 1) / 4.0)
        if name == "lcfl"
        else top - 0.6 * np.exp(-(t + 1) / speed)
    )
    if name == "lcfl" and t < 3:
        base = accuracy("fedavg", seed, t) - 0.01 * seed
    return float(base + 0.01 * seed)


def write_job(
    folder: Path,
    name: str,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    rounds: int = 12,
    clients: int = 40,
    overrides: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    loss: float = 1.0,
) -> Path:
    group = torch.arange(clients) * 4 // clients
    fed = federation(group)
    recorder = Recorder(folder, seeds, NUM_PARAMS, NoTracker())
    recorder.start()
    for t in range(rounds):
        for seed in seeds:
            arrays = {}
            if name == "lcfl" and t == 3:
                noise = torch.rand(clients, clients, generator=torch.Generator().manual_seed(seed))
                distance = (group[:, None] != group[None]) * 1.0 + 0.3 * (noise + noise.T)
                arrays = {"distance": distance.fill_diagonal_(0)}
            down = clients * (4 if name == "ifca" else 1) if name != "local" else 0
            recorder.cost(
                seed,
                t,
                Cost(
                    models_down=down,
                    models_up=clients if name != "local" else 0,
                    gradient_steps=clients * 10,
                    train_loss=loss / (t + 1 + 0.1 * seed),
                    arrays=arrays,
                ),
            )
            recorder.seconds(seed, t, 0.25)
            label = labels(name, group, seed, t)
            models = clients if name == "local" else 1 if name == "fedavg" else 4
            recorder.evaluate(
                round_of(fed, seed, t), evaluation(label, accuracy(name, seed, t), models)
            )
    recorder.finish()
    full = {
        "name": "demo",
        "seeds": list(seeds),
        "rounds": rounds,
        "choices": {
            "algorithm": name,
            "dataset": "mnist",
            "partition": "rotated",
            "model": "cnn_femnist_tiny",
        },
        "overrides": [f"algorithm={name}", *overrides],
        "scale": {"name": "paper"},
        "algorithm": {"num_clusters": 4, "lr": 0.02 if name != "ifca" else 0.03},
    } | dict(config or {})
    written = OmegaConf.merge(OmegaConf.from_dotlist(list(overrides)), full)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(written))
    done = {
        "state": "done",
        "round": rounds,
        "rounds": rounds,
        "seeds": {str(s): "ok" for s in seeds},
    }
    (folder / "status.json").write_text(json.dumps(done | dict(status or {})))
    return folder


REPORT = {
    "title": "LCFL, Table II",
    "published": "LCFL/Table II",
    "metric": "accuracy",
    "rounds": [5, 10],
    "score": "last",
    "order": ["lcfl", "ifca", "fedavg", "local"],
    "claims": [
        {
            "kind": "equal_until",
            "left": "lcfl",
            "right": "fedavg",
            "metric": "accuracy",
            "round": 3,
        },
        {"kind": "overtakes", "left": "lcfl", "right": "ifca", "between": [4, 10]},
        {"kind": "order_at_end", "best_to_worst": ["lcfl", "ifca", "fedavg", "local"]},
        {"kind": "reaches", "arm": "lcfl", "value": 0.95, "round": 9},
        {"kind": "at_least", "arm": "lcfl", "metric": "purity", "value": 1.0},
        {"kind": "at_least", "arm": "ifca", "metric": "purity", "value": 1.0},
    ],
}


@pytest.fixture(autouse=True)
def _no_figures(no_figures: None) -> None:
    """Those that are looked at are made by `draw` itself, or in tests with the mark `figures`."""


@pytest.fixture
def job() -> Callable[..., Path]:
    """`write_job`, which tests of other folders cannot import."""
    return write_job


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    """`write_job`, for fixtures that live longer than a test."""
    return write_job


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four finished jobs as an experiment leaves them; tests get copies."""
    folder = tmp_path_factory.mktemp("sweep")
    for name in ("fedavg", "ifca", "lcfl", "local"):
        write_job(folder / f"algorithm={name}", name, config={"report": REPORT})
    return folder


@pytest.fixture
def sweep(tmp_path: Path, written: Path) -> Path:
    """Four finished jobs, and a report yet to be made."""
    return Path(shutil.copytree(written, tmp_path / "demo"))


def write_plain(
    folder: Path,
    curves: Mapping[str, Sequence[Sequence[float]]],
    *,
    choices: Mapping[str, str],
    overrides: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> Path:
    """A finished job with just these curves, values [rounds][seeds] by metric; NaN is left out."""
    folder.mkdir(parents=True)
    lines = ["seed,round,metric,value"]
    for metric, grid in curves.items():
        for t, row in enumerate(grid):
            lines += [
                f"{seed},{t},{metric},{value}" for seed, value in enumerate(row) if value == value
            ]
    (folder / "rounds.csv").write_text("\n".join(lines) + "\n")
    given = [f"algorithm={choices['algorithm']}", *overrides]
    full = {
        "name": "demo",
        "choices": dict(choices),
        "overrides": given,
        "scale": {"name": "paper"},
        **(config or {}),
    }
    written = OmegaConf.merge(OmegaConf.from_dotlist(list(overrides)), full)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(written))
    (folder / "status.json").write_text(json.dumps({"state": "done", **(status or {})}))
    return folder


@pytest.fixture
def plain() -> Callable[..., Path]:
    """`write_plain`, as a fixture since tests cannot import from here."""
    return write_plain

"""Job folders with made-up results, and what tests read of their reports."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from rich.console import Console
from torch import Tensor
from toys import blank, evaluation_of, federation_of, round_of

from fedclust.core.types import Cost, Evaluation, Federation
from fedclust.papers.reports import all_contents, contents
from fedclust.report.table import Table
from fedclust.report.terminal import print_summary
from fedclust.report.write import Contents
from fedclust.runtime.recorder import Recorder
from fedclust.trackers.none import NoTracker

NUM_PARAMS = 1000
TESTED = 50  # test examples per client


def federation(group: Tensor) -> Federation:
    return federation_of(blank(), [[0, 0, 0]] * len(group), group=group)


def evaluation(label: Tensor, accuracy: Tensor | float, models: int) -> Evaluation:
    """Every served client gets round(accuracy * TESTED) of its TESTED examples right."""
    count = torch.where(label >= 0, TESTED, 0)
    correct = (torch.as_tensor(accuracy) * count).round()
    return evaluation_of(label, correct, count, 0.5 * count.double(), models)


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


def job(
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
    """A job folder as the real recorder writes it; lcfl, ifca, fedavg or local."""
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
                round_of(fed, t, seed), evaluation(label, accuracy(name, seed, t), models)
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


def plain(
    folder: Path,
    curves: Mapping[str, Sequence[Sequence[float]]] | Sequence[Sequence[float]],
    method: str = "",
    *,
    case: str = "",
    choices: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    state: str = "done",
    status: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """A job folder with just these curves.

    Args:
        folder: where to; it must not exist.
        curves: values [rounds][seeds] by metric, or those of accuracy alone; NaN is left out.
        method: the algorithm; none: the folder's name.
        case: chosen on the command line, without the folder `x` that it lies in.
        choices: of other groups.
        overrides: what else was typed.
        state: of the job.
        status: what else `status.json` says.
        config: nodes of the config.
    """
    folder.mkdir(parents=True)
    by_metric = curves if isinstance(curves, Mapping) else {"accuracy": curves}
    lines = ["seed,round,metric,value"]
    for metric, grid in by_metric.items():
        for t, row in enumerate(grid):
            lines += [
                f"{seed},{t},{metric},{value}" for seed, value in enumerate(row) if value == value
            ]
    (folder / "rounds.csv").write_text("\n".join(lines) + "\n")
    cases = {"case": f"x/{case}"} if case else {}
    chosen = {"algorithm": method or folder.name, **cases, **(choices or {})}
    typed = [f"{key}={value}" for key, value in cases.items()] + list(overrides)
    full = {
        "name": "demo",
        "choices": chosen,
        "overrides": [f"algorithm={chosen['algorithm']}", *typed],
        "scale": {"name": "paper"},
        **config,
    }
    written = OmegaConf.merge(OmegaConf.from_dotlist(typed), full)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(written))
    (folder / "status.json").write_text(json.dumps({"state": state, **(status or {})}))
    return folder


def scored(folder: Path, methods: Mapping[str, Sequence[float]], case: str = "") -> Contents:
    """The report on one more job of every method, with these scores of its seeds at the end."""
    for name, scores in methods.items():
        plain(folder / f"{name}{case}", [[0.1] * len(scores), list(scores)], name, case=case)
    return contents(folder)


def found(report: Contents, name: str) -> Table:
    """The table of this name."""
    (table,) = [one for one in report.tables if one.name == name]
    return table


def texts(table: Table) -> list[list[str]]:
    """What the cells of a table show."""
    return [[cell.text for cell in row] for row in table.rows]


def printed(folder: Path, **options: Any) -> str:
    """What a terminal shows of the report on a folder."""
    file = io.StringIO()
    print_summary(all_contents(folder), Console(file=file, **{"width": 140, **options}))
    return file.getvalue()

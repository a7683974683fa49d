"""Trackers: what they pass on, and what a user is told where one is not installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from fedclust.errors import ConfigError
from fedclust.trackers.mlflow import MLflowTracker
from fedclust.trackers.none import NoTracker
from fedclust.trackers.tensorboard import TensorBoardTracker
from fedclust.trackers.wandb import WandbTracker

MAKERS = {
    "tensorboard": lambda: TensorBoardTracker("unused"),
    "mlflow": lambda: MLflowTracker("experiment", "run"),
    "wandb": lambda: WandbTracker("project", "run", "unused"),
}
MODULES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


@pytest.mark.parametrize("extra", MAKERS)
def test_a_missing_extra_is_one_line_with_the_command(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, MODULES[extra], None)
    with pytest.raises(ConfigError, match=rf"pip install 'fedclust\[{extra}\]'") as caught:
        MAKERS[extra]()
    assert "\n" not in str(caught.value)


def test_tensorboard_gets_a_folder_per_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[Any] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def add_scalar(self, metric: str, value: float, round: int) -> None:  # noqa: A002
            points.append((self.folder, metric, value, round))

        def close(self) -> None:
            points.append((self.folder, "closed"))

    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer)
    )
    tracker = TensorBoardTracker("events")
    tracker.log(0, 5, {"accuracy": 0.5, "purity": 1.0})
    tracker.log(3, 5, {"accuracy": 0.6})
    tracker.close()
    zero, three = str(Path("events") / "seed=0"), str(Path("events") / "seed=3")
    assert points[:3] == [
        (zero, "accuracy", 0.5, 5),
        (zero, "purity", 1.0, 5),
        (three, "accuracy", 0.6, 5),
    ]
    assert points[3:] == [(zero, "closed"), (three, "closed")]


def test_mlflow_gets_one_batch_per_seed_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Client:
        def __init__(self, tracking_uri: str | None) -> None:
            calls.append(("uri", tracking_uri))

        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            return f"id of {name}"

        def create_run(self, identity: str, run_name: str) -> SimpleNamespace:
            return SimpleNamespace(info=SimpleNamespace(run_id=f"{identity}, {run_name}"))

        def log_batch(self, run: str, metrics: list[Any]) -> None:
            calls.append((run, metrics))

        def set_terminated(self, run: str) -> None:
            calls.append((run, "terminated"))

    mlflow = SimpleNamespace(
        MlflowClient=Client,
        entities=SimpleNamespace(Metric=lambda *a: a),
        exceptions=SimpleNamespace(MlflowException=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    tracker = MLflowTracker("lcfl", "ifca", uri="sqlite:///x.db")
    tracker.log(1, 7, {"accuracy": 0.5})
    tracker.close()
    run = "id of lcfl, ifca"
    assert calls == [
        ("uri", "sqlite:///x.db"),
        (run, [("seed_1/accuracy", 0.5, 0, 7)]),
        (run, "terminated"),
    ]


def test_a_store_that_mlflow_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def client(tracking_uri: str | None) -> None:
        raise RuntimeError("no such\nstore")

    exceptions = SimpleNamespace(MlflowException=RuntimeError)
    monkeypatch.setitem(
        sys.modules, "mlflow", SimpleNamespace(MlflowClient=client, exceptions=exceptions)
    )
    with pytest.raises(ConfigError, match=r"tracker\.uri=x://y is not allowed: .*no such store"):
        MLflowTracker("experiment", "run", uri="x://y")


def test_wandb_gets_the_round_with_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    run = SimpleNamespace(
        define_metric=lambda *a, **k: calls.append((a, k)),
        log=calls.append,
        finish=lambda: calls.append("finished"),
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **k: run))
    tracker = WandbTracker("fedclust", "lcfl", "outputs")
    tracker.log(0, 2, {"accuracy": 0.5})
    tracker.close()
    assert calls[1:] == [{"round": 2, "seed=0/accuracy": 0.5}, "finished"]


@pytest.mark.parametrize("name", ["none", "tensorboard", "mlflow", "wandb"])
def test_every_config_names_a_tracker_and_all_its_options(name: str, root: Path) -> None:
    config = OmegaConf.load(root / "conf" / "tracker" / f"{name}.yaml")
    given = OmegaConf.to_container(config, resolve=False)
    assert isinstance(given, dict)
    target = {c.__name__: c for c in (NoTracker, TensorBoardTracker, MLflowTracker, WandbTracker)}[
        str(given["_target_"]).rpartition(".")[2]
    ]
    options = (
        set(target.__init__.__code__.co_varnames[1 : target.__init__.__code__.co_argcount])
        if name != "none"
        else set()
    )
    assert set(given) - {"_target_"} == options
    assert (root / "conf" / "tracker" / f"{name}.yaml").read_text().startswith("# ")


def test_no_tracker_is_built_from_its_config(root: Path) -> None:
    tracker = instantiate(OmegaConf.load(root / "conf" / "tracker" / "none.yaml"))
    tracker.log(0, 0, {"accuracy": 1.0})
    tracker.close()
    assert isinstance(tracker, NoTracker)

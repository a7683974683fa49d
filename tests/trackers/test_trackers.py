"""Trackers: what they pass on, and what a user is told where one is not installed."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from configs import names
from hydra.utils import get_object, instantiate
from matplotlib.image import imsave
from omegaconf import OmegaConf

from fedclust.config.parts import PARTS
from fedclust.config.tree import CONF
from fedclust.core.tracker import About, in_a_line, refusing_in_a_line
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.trackers import curves
from fedclust.trackers.mlflow import MLflowTracker
from fedclust.trackers.none import NoTracker
from fedclust.trackers.tensorboard import TensorBoardTracker
from fedclust.trackers.wandb import WandbTracker

MAKERS = {
    "tensorboard": lambda: TensorBoardTracker("unused"),
    "mlflow": lambda: MLflowTracker("experiment", "run"),
    "wandb": lambda: WandbTracker("project", "unused"),
}
MODULES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


@pytest.mark.parametrize("extra", MAKERS)
def test_a_missing_extra_is_one_line_with_the_command(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, MODULES[extra], None)
    with pytest.raises(ConfigError, match=rf"pip install .*{extra}\]'") as caught:
        MAKERS[extra]()
    assert "\n" not in str(caught.value)


CONFIG = {
    "name": "mine",
    "seeds": [0, 3],
    "algorithm": {"_target_": "x.LCFL", "warmup": {"_target_": "x.Warm", "rounds": 5}, "k": None},
    "solver": {"_target_": "x.SGD", "lr": 0.1},
    "choices": {
        "algorithm": "lcfl",
        "warmup@algorithm.warmup": "local",
        "solver": "sgd",
        "experiment": None,
        "scaled/case": "None/paper",
    },
    "tracker": {"_target_": "x"},
    "tags": {"note": 1},
    "hash": "0",
}
PARAMETERS = {
    "algorithm": "lcfl",
    "algorithm.warmup": "local",
    "solver": "sgd",
    "name": "mine",
    "seeds": "[0, 3]",
    "algorithm.warmup.rounds": 5,
    "algorithm.k": "null",
    "solver.lr": 0.1,
}
ROUND = {0: {"accuracy": 0.25, "purity": 1.0}, 3: {"accuracy": 0.75}}
CURVES = {
    "accuracy": 0.5,
    "purity": 1.0,
    "seed=0/accuracy": 0.25,
    "seed=0/purity": 1.0,
    "seed=3/accuracy": 0.75,
}


@pytest.fixture
def about(tmp_path: Path) -> About:
    folder = tmp_path / "lcfl,solver.lr=0.1"
    folder.mkdir()
    return About(folder=folder, config=CONFIG, first=0)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """The folder of a report with a table and a figure."""
    (tmp_path / "report" / "figures").mkdir(parents=True)
    (tmp_path / "report" / "table.md").write_text("| a |")
    imsave(tmp_path / "report" / "figures" / "accuracy.png", np.zeros((2, 3, 3)))
    return tmp_path / "report"


def test_parameters_are_choices_and_values_by_dotted_key(about: About) -> None:
    assert about.parameters == PARAMETERS
    assert about.tags == {"note": "1"}


def test_a_round_has_the_mean_beside_each_seed() -> None:
    assert curves(ROUND) == CURVES


def test_only_a_job_that_is_continued_goes_on_in_the_same_run(about: About) -> None:
    assert about.run(lambda: "first") == ("first", False)
    assert about.run(lambda: "second") == ("second", False)
    assert replace(about, first=4).run(lambda: "third") == ("second", True)


def test_tensorboard_gets_a_folder_per_seed_and_one_for_the_mean(
    monkeypatch: pytest.MonkeyPatch, about: About, report: Path
) -> None:
    points: list[Any] = []

    def writer(folder: str) -> SimpleNamespace:
        def noted(*given: Any, **named: Any) -> None:
            seen = [one.shape if isinstance(one, np.ndarray) else one for one in given]
            points.append((Path(folder).name, *seen, *named.values()))

        verbs = ("add_scalar", "add_hparams", "add_text", "add_image")
        return SimpleNamespace(**dict.fromkeys(verbs, noted), close=lambda: noted("closed"))

    module = SimpleNamespace(SummaryWriter=writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tracker = TensorBoardTracker("events")
    tracker.begin(about)
    tracker.log(5, ROUND)
    tracker.end({"last/accuracy": 0.5}, lambda: report)
    tracker.close()
    assert points[:5] == [
        ("mean", "accuracy", 0.5, 5),
        ("mean", "purity", 1.0, 5),
        ("seed=0", "accuracy", 0.25, 5),
        ("seed=0", "purity", 1.0, 5),
        ("seed=3", "accuracy", 0.75, 5),
    ]
    assert points[5:8] == [
        ("mean", {**PARAMETERS, "tags.note": "1"}, {"last/accuracy": 0.5}, "."),
        ("mean", "report/table", "| a |"),
        ("mean", "report/accuracy", (2, 3, 4), "HWC"),
    ]
    assert points[8:] == [("mean", "closed"), ("seed=0", "closed"), ("seed=3", "closed")]


class MLflow:
    """What a tracker calls of MLflow; remembers the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Any] = []
        module = SimpleNamespace(
            MlflowClient=self._client,
            entities=SimpleNamespace(Metric=lambda *a: a, Param=lambda *a: a),
            exceptions=SimpleNamespace(MlflowException=RuntimeError),
        )
        monkeypatch.setitem(sys.modules, "mlflow", module)
        monkeypatch.setattr("fedclust.trackers.mlflow.time.time", lambda: 12.0)

    def _client(self, tracking_uri: str | None) -> MLflow:
        self.calls.append(("uri", tracking_uri))
        return self

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return f"id of {name}"

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        self.calls.append((run, *metrics, *params))

    def _noted(self, *given: Any, **named: Any) -> SimpleNamespace:
        self.calls.append((*given, *named.values()))
        return SimpleNamespace(info=SimpleNamespace(run_id="R"))

    create_run = log_artifacts = update_run = set_terminated = _noted


def test_mlflow_gets_parameters_rounds_summary_and_report(
    monkeypatch: pytest.MonkeyPatch, about: About, report: Path
) -> None:
    calls = MLflow(monkeypatch).calls
    tracker = MLflowTracker("lcfl", uri="sqlite:///x.db")
    tracker.begin(about)
    tracker.log(7, ROUND)
    tracker.end({"last/accuracy": 0.5}, lambda: report)
    tracker.close()
    tags = {"note": "1", "fedclust.folder": str(about.folder)}
    assert calls == [
        ("uri", "sqlite:///x.db"),
        ("id of lcfl", "lcfl,solver.lr=0.1", tags),
        ("R", *((name, str(value)) for name, value in PARAMETERS.items())),
        ("R", *((name.replace("=", "_"), value, 12_000, 7) for name, value in CURVES.items())),
        ("R", ("last/accuracy", 0.5, 12_000, 0)),
        ("R", str(report), "report"),
        ("R", "FINISHED"),
    ]


def test_mlflow_cuts_what_is_too_much_for_one_request(
    monkeypatch: pytest.MonkeyPatch, about: About
) -> None:
    calls = MLflow(monkeypatch).calls
    tracker = MLflowTracker("lcfl", "run")
    tracker.begin(replace(about, config={f"key{i}": i for i in range(101)}))
    tracker.log(0, {seed: {"accuracy": 1.0} for seed in range(1000)})
    assert [len(call) - 1 for call in calls[2:]] == [100, 1, 1000, 1]


def test_mlflow_goes_on_with_a_run_and_marks_one_that_ends_early(
    monkeypatch: pytest.MonkeyPatch, about: About
) -> None:
    calls = MLflow(monkeypatch).calls
    MLflowTracker("lcfl").close()  # a job that was refused
    assert calls == []
    MLflowTracker("lcfl").begin(about)
    calls.clear()
    tracker = MLflowTracker("lcfl")
    tracker.begin(replace(about, first=3))
    tracker.close()
    assert calls == [("uri", None), ("R", "RUNNING"), ("R", "FAILED")]


def test_a_store_that_mlflow_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, about: About
) -> None:
    def client(tracking_uri: str | None) -> None:
        raise RuntimeError("no such\nstore")

    exceptions = SimpleNamespace(MlflowException=RuntimeError)
    monkeypatch.setitem(
        sys.modules, "mlflow", SimpleNamespace(MlflowClient=client, exceptions=exceptions)
    )
    with pytest.raises(ConfigError, match=r"tracker\.uri=x://y is not allowed: .*no such store"):
        MLflowTracker("experiment", "run", uri="x://y").begin(about)


def test_wandb_gets_config_group_rounds_summary_and_report(
    monkeypatch: pytest.MonkeyPatch, about: About, report: Path
) -> None:
    calls: list[Any] = []
    given: dict[str, Any] = {}
    summary: dict[str, float] = {}
    run = SimpleNamespace(
        id="W",
        summary=summary,
        define_metric=lambda *a, **k: calls.append((a, k)),
        log=calls.append,
        log_artifact=calls.append,
        finish=lambda exit_code: calls.append(exit_code),
    )
    module = SimpleNamespace(
        init=lambda **k: given.update(k) or run,
        Artifact=lambda name, type: SimpleNamespace(add_dir=lambda folder: calls.append(folder)),  # noqa: A006
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    tracker = WandbTracker("fedclust", "outputs", group="mine")
    tracker.begin(about)
    tracker.log(2, ROUND)
    tracker.end({"last/accuracy": 0.5}, lambda: report)
    tracker.close()
    assert (given["project"], given["group"], given["name"]) == (
        "fedclust",
        "mine",
        "lcfl,solver.lr=0.1",
    )
    assert given["tags"] == ["note=1"]
    assert given["config"]["solver"]["lr"] == 0.1
    assert given["config"]["choices"]["algorithm"] == "lcfl"
    assert (given["id"], given["resume"]) == (about.run(lambda: "")[0] or given["id"], "allow")
    assert calls[1] == {"round": 2} | CURVES
    assert summary == {"last/accuracy": 0.5}
    assert calls[2] == str(report)
    assert calls[-1] == 0
    early = WandbTracker("fedclust", "outputs")
    early.begin(about)
    early.close()
    assert calls[-1] == 1


def test_notes_that_are_no_tags_of_wandb_are_its_notes(
    monkeypatch: pytest.MonkeyPatch, about: About
) -> None:
    given: dict[str, Any] = {}
    run = SimpleNamespace(define_metric=lambda *_, **__: None)
    module = SimpleNamespace(init=lambda **k: given.update(k) or run)
    monkeypatch.setitem(sys.modules, "wandb", module)
    tags = {"idea": "a" * 60, "whole": "b" * 58, "long": "c" * 70}  # with its name 65, 64, 75
    WandbTracker("p", "f").begin(replace(about, config={**about.config, "tags": tags}))
    assert given["tags"] == ["whole=" + "b" * 58]
    assert given["notes"] == "idea=" + "a" * 60 + "\nlong=" + "c" * 70
    WandbTracker("p", "f").begin(about)
    assert given["notes"] is None


def test_what_a_trackers_library_refuses_is_one_line() -> None:
    want = r"tracker=wandb does not take the job \(OSError: no / in a project\)"
    with pytest.raises(ConfigError, match=want), refusing_in_a_line("wandb"):
        raise OSError("no / in\na project")
    with pytest.raises(DataError, match="ours"), refusing_in_a_line("wandb"):
        raise DataError("ours")


def test_a_tracker_that_fails_later_is_one_line_too(about: About) -> None:
    def refused(*_: object) -> None:
        raise OSError("no\nconnection")

    one = in_a_line(SimpleNamespace(begin=refused, log=refused, close=refused), "mlflow")
    want = r"^tracker=mlflow does not take the job \(OSError: no connection\): change its keys"
    for call in (lambda: one.begin(about), lambda: one.log(0, ROUND), one.close):
        with pytest.raises(ConfigError, match=want):
            call()


@pytest.mark.parametrize("name", names("tracker"))
def test_every_config_names_a_tracker_and_all_its_options(name: str) -> None:
    file = CONF / "tracker" / f"{name}.yaml"
    node = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    assert isinstance(node, dict)
    made: Any = get_object(str(node.pop("_target_")))
    assert set(node) == set(inspect.signature(made).parameters)
    assert [
        verb for verb in PARTS["tracker"].verbs if not callable(getattr(made, verb, None))
    ] == []
    assert file.read_text().startswith("# ")


def test_no_tracker_is_built_from_its_config(root: Path) -> None:
    tracker = instantiate(OmegaConf.load(root / "conf" / "tracker" / "none.yaml"))
    tracker.log(0, {0: {"accuracy": 1.0}})
    tracker.close()
    assert isinstance(tracker, NoTracker)

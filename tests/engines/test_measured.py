"""Fast paths of a GPU are on where they were measured; the GPU is only a name here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedclust.engines import choose, describe
from fedclust.engines.fused import gpu
from fedclust.engines.fused.cuda import measured
from fedclust.helpers.errors import ConfigError

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of verdicts in an empty cache folder, beside a card called one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(measured.VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "one")
    monkeypatch.setattr(measured, "_verdicts", measured._verdicts.__wrapped__)
    monkeypatch.setattr(measured._verdicts, "cache_clear", lambda: None, raising=False)
    return tmp_path / "fedclust" / "gpu.json"


def test_a_path_is_on_where_it_was_measured(card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not measured.wanted(CUDA)
    assert not gpu.graphs(CUDA)
    assert not gpu.runs_on(CUDA)
    measured.keep(CUDA, {"graphs": "right and faster", "gather": "right and slower"})
    measured.keep(CUDA, {"softmax": "right and faster", "span": "right and faster"})
    assert list(measured.wanted(CUDA)) == ["graphs", "softmax"]
    assert gpu.graphs(CUDA)
    assert not measured.wanted(CPU)
    measured.keep(CUDA, {"graphs": "wrong"})
    assert list(measured.wanted(CUDA)) == ["softmax"]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "another")
    assert not measured.wanted(CUDA)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "one")
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert not measured.wanted(CUDA)
    assert card.is_file()


def test_what_computed_a_job_names_the_paths_that_are_on(
    card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a job would go on with other kernels, which a later verdict put on, without a word."""
    monkeypatch.setattr(choose.compiled, "available", lambda: True)  # nothing is compiled here
    assert describe("fused", CUDA)["kernels"] is None
    measured.keep(CUDA, {"graphs": "right and faster", "gather": "right and slower"})
    assert describe("fused", CUDA)["kernels"] == "graphs"
    monkeypatch.setenv(measured.VARIABLE, "all")
    assert describe("fused", CPU)["kernels"] is None
    assert card.is_file()


def test_damaged_verdicts_leave_all_paths_off(card: Path, caplog: pytest.LogCaptureFixture) -> None:
    measured.keep(CUDA, {"graphs": "right and slower"})
    card.write_text(card.read_text().replace("slower", "faster"))
    assert not measured.wanted(CUDA)
    assert "damaged; make check-gpu writes it anew" in caplog.text
    measured.keep(CUDA, {"graphs": "right and faster"})
    assert list(measured.wanted(CUDA)) == ["graphs"]


def test_a_path_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(measured.VARIABLE, "graphs,sofmax")
    with pytest.raises(ConfigError, match=r"KERNELS.*graphs,sofmax.*graphs,gather,softmax"):
        measured.wanted(CPU)


@pytest.mark.parametrize(
    ("given", "on"),
    [("none", []), ("all", ["graphs", "gather", "softmax"]), ("gather", ["gather"])],
)
def test_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: str, on: list[str]
) -> None:
    monkeypatch.setenv("FEDCLUST_KERNELS", given)
    assert list(measured.wanted(CUDA)) == on


@pytest.mark.full
def test_training_on_a_cpu_imports_nothing_that_is_for_gpus() -> None:
    code = """
import sys
from engine_toys import SOLVERS, ragged_shards, starts, toy_pool
import fedclust
from fedclust.core.calls import TrainCall
from fedclust.engines import describe, make_engine
from fedclust.models.mlp import mlp
import torch
for hidden in ([], [5]):
    engine = make_engine("auto", mlp((1, 4, 4), 10, hidden=hidden), toy_pool((1, 4, 4)))
    shards, solver = ragged_shards((3, 7)), SOLVERS["sgd"]
    engine.answer(TrainCall(starts(engine, 2), torch.arange(2), shards, solver, solver.lr))
describe("fused", torch.device("cpu"))
print([name for name in sys.modules if name.startswith(("triton", "fedclust.engines.fused.cuda"))])
"""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines()[-1] == "[]"

"""The command for a GPU: its verdicts, and that all of it runs on a pretended one."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pretend_cuda import CUDA, Graph, pretend_cuda

import benchmarks.check_gpu.__main__ as command
from benchmarks.check_gpu import algorithms, engines, worker, workloads
from benchmarks.check_gpu.agree import apart
from benchmarks.check_gpu.paths import without
from benchmarks.check_gpu.projection import projected
from benchmarks.check_gpu.report import NO_GPU, Report
from benchmarks.workloads import Training, Workload
from fedclust.core.calls import LocalResult, Sums
from fedclust.engines.fused import gpu, layers, plan
from fedclust.engines.fused.cuda import graphs, measured
from fedclust.models.cnn import cnn
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model

CPU = torch.device("cpu")


def told(check: Callable[..., None], name: str, device: torch.device) -> list[dict[str, Any]]:
    """The rows of one check."""
    rows: list[dict[str, Any]] = []
    check(name, device, rows.append)
    return rows


def workload(name: str, ratio: float, *, right: bool = True, other: bool = True) -> list[Any]:
    """What is told of a workload that takes CUDA graphs, `ratio` times as fast with them."""
    about = {"kind": "workloads", "name": name}
    return [
        {**about, "way": "all", "apart": 2e-5, "right": right, "peak_mib": 70.0},
        {**about, "way": "all", "paths": ["graphs"]},
        {**about, "way": "without graphs", "apart": 1e-5, "right": other},
        {**about, "way": "all", "rate": 100.0 * ratio, "unit": "steps"},
        {**about, "way": "without graphs", "rate": 100.0, "unit": "steps"},
    ]


def verdicts(*workloads: list[Any], on_gpu: bool = True) -> dict[str, str]:
    rows = [row for rows in workloads for row in rows]
    return {path: verdict for path, _, _, verdict in Report(rows, on_gpu=on_gpu).verdicts()}


def test_a_path_is_judged_by_numbers_and_times() -> None:
    faster, slower = workload("W2", 3.0), workload("W4", 0.5)
    assert verdicts(faster)["graphs"] == "right and faster"
    assert verdicts(faster)["softmax"] == "not taken"
    assert verdicts(faster, slower)["graphs"] == "right and faster"  # 1.22 in the mean
    assert verdicts(workload("W2", 1.01))["graphs"] == "right and slower"
    assert verdicts(slower)["graphs"] == "right and slower"
    assert verdicts(faster, workload("W4", 9.0, right=False))["graphs"] == "wrong"
    # wrong without it too: another mistake, which is told by itself
    both = workload("W4", 9.0, right=False, other=False)
    assert verdicts(faster, both)["graphs"] == "right and faster"
    assert Report(both, on_gpu=True).wrong()
    assert set(verdicts(faster, on_gpu=False).values()) == {NO_GPU}


def test_a_kernel_that_cannot_be_used_is_wrong() -> None:
    refused = {"kind": "kernel", "name": "softmax", "way": "softmax", "right": False}
    assert verdicts([refused])["softmax"] == "wrong"


def test_what_is_not_faster_stays_off() -> None:
    text = Report(workload("W2", 0.9), on_gpu=True).text()
    assert "right and slower | stays off on this card" in text
    assert "on from now on" not in text
    assert "on from now on" in Report(workload("W2", 1.9), on_gpu=True).text()


def test_everything_that_went_wrong_is_told() -> None:
    rows = [
        {"kind": "algorithms", "name": "lcfl", "way": "fused", "apart": 0.4, "right": False}
        | {"labels": "other labels in round 6"},
        {"kind": "engines", "name": "mlp", "state": "failed", "error": "CUDA error"},
        {"kind": "engines", "name": "cnn", "state": "missing", "error": "needs hydra"},
        {"kind": "engines", "name": "linear", "state": "no time"},
    ]
    report = Report(rows, on_gpu=True)
    assert len(report.wrong()) == 2
    text = report.text()
    for said in ("other labels in round 6", "CUDA error", "not checked: needs hydra", "no time"):
        assert said in text


def test_all_rounds_from_the_first() -> None:
    assert projected({1: 9.0}) is None
    # 1 as it was, 2 as it was, and 58 like the second
    assert projected({1: 9.0, 2: 2.0}) == pytest.approx(11 + 58 * 2)
    # a clustering in the third counts once
    assert projected({1: 9.0, 2: 2.0, 3: 50.0, 4: 2.0}) == pytest.approx(63 + 56 * 2)


def test_distances_are_shares_of_the_way() -> None:
    starts = torch.tensor([[0.0, 0.0], [100.0, 0.0]])
    expected = torch.tensor([[3.0, 4.0], [100.0, 10.0], [0.0, 0.0]])
    found = expected + torch.tensor([[0.5, 0.0], [0.0, 0.1], [0.0, 0.0]])
    assert apart(found, expected, starts).tolist() == pytest.approx([0.1, 0.01, 0.0], rel=1e-5)
    found[1, 0] = torch.nan
    assert apart(found, expected, starts)[1] == torch.inf
    assert apart(found.nan_to_num(7), expected)[0].item() == pytest.approx(0.1)
    assert apart(torch.ones(1), torch.zeros(1)).item() == torch.inf

    def result(params: torch.Tensor, loss: torch.Tensor) -> LocalResult:
        steps = torch.zeros(3, dtype=torch.int64)
        return LocalResult(params=params, slots=None, loss=loss, first_loss=loss, steps=steps)

    here = result(expected, torch.tensor([1.0, 2.0, 4.0]))
    there = result(expected, torch.tensor([1.0, 2.0, 3.0]))
    assert apart(there, here, starts).tolist() == pytest.approx([0.0, 0.0, 0.25])


def test_distances_of_sums_are_shares_of_the_way_of_all() -> None:
    """Two rows of the first model and three of the second, each 5 away from where it began."""
    starts = torch.tensor([[1.0, 0.0], [0.0, 2.0]])

    def sums(params: torch.Tensor, loss: torch.Tensor) -> Sums:
        steps = torch.zeros(2, dtype=torch.int64)
        return Sums(params=params, slots=None, loss=loss, first_loss=loss, steps=steps)

    expected = torch.tensor([[2.0, 10.0], [15.0, 6.0]])
    here = sums(expected, torch.tensor([1.0, 4.0]))
    there = sums(expected + torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([1.0, 3.0]))
    assert apart(there, here, starts).tolist() == pytest.approx([0.1, 0.0, 0.0, 0.25])
    assert apart(there, here)[0].item() == pytest.approx(1 / 104**0.5)


def test_paths_are_left_out_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCLUST_KERNELS", "none")
    before = plan.pays, layers.convolving
    with without(()):
        assert gpu.graphs(CUDA)
        assert set(measured.wanted(CUDA)) == {"graphs", "gather", "softmax"}
    with without(("gather", "span", "unfold")):
        assert list(measured.wanted(CUDA)) == ["graphs", "softmax"]
        count = torch.tensor([9, 200])
        assert not plan.pays(count, 1000 * count, None, 784, 10).any()
        assert layers.convolving(None, CUDA, None) == "row by row"  # type: ignore[arg-type]
    with without(measured.PATHS):
        assert not gpu.graphs(CUDA)
        assert not measured.wanted(CUDA)
    assert not gpu.graphs(CUDA)
    assert before == (plan.pays, layers.convolving)


def dense() -> Model:
    return mlp((1, 4, 4), 10, hidden=[8])


def convolutions() -> Model:
    return cnn((1, 4, 4), 10, channels=[3], kernel=3, padding=1, hidden=[])


def small(model: Callable[[], Model]) -> Workload:
    """A workload that a pretended GPU computes in no time."""
    how = Training(model=model, rows=2, count=4, epochs=9, batch=2, plain_rows=1)
    return Workload(name="W2", title="", unit="steps", prepare=how)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "paths"), [(dense, {"graphs", "span"}), (convolutions, {"graphs", "unfold"})]
)
def test_a_workload_in_all_ways(
    model: Callable[[], Model], paths: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "W2"
    monkeypatch.setattr(workloads, "WORKLOADS", [small(model)])
    monkeypatch.setattr(workloads, "_LEAST", 1)
    monkeypatch.setattr(workloads, "_SECONDS", 0.0)
    monkeypatch.setattr(workloads, "OTHERS", workloads.OTHERS[:3])  # vmap is PyTorch's own
    with pretend_cuda():
        rows = told(workloads.check, name, CUDA)
    by_way: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_way.setdefault(row["way"], {}).update(row)
    assert set(by_way["all"]["paths"]) == paths
    ways = {"CPU, one call", "all", "PyTorch", "high", "bf16", *(f"without {p}" for p in paths)}
    assert set(by_way) == ways
    for way in ways - {"CPU, one call"}:
        assert by_way[way]["rate"] > 0, by_way[way]
        assert by_way[way]["right"], by_way[way]
        assert by_way[way]["peak_mib"] == 3
    assert by_way["all"]["apart"] < 1e-3 < by_way["bf16"]["apart"]


@pytest.mark.full
def test_a_wrong_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA graphs that compute nothing, and are not compared when they are captured."""
    monkeypatch.setattr(Graph, "replay", lambda _: None)
    monkeypatch.setattr(graphs, "_agree", lambda *_: True)
    monkeypatch.setattr(workloads, "WORKLOADS", [small(dense)])
    monkeypatch.setattr(workloads, "_LEAST", 1)
    monkeypatch.setattr(workloads, "_SECONDS", 0.0)
    monkeypatch.setattr(workloads, "OTHERS", ())
    with pretend_cuda():
        rows = [
            {"kind": "workloads", "name": "W2", **row} for row in told(workloads.check, "W2", CUDA)
        ]
    assert verdicts(rows)["graphs"] == "wrong"
    assert verdicts(rows)["span"] != "wrong"


@pytest.fixture
def found_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders whose small jobs the checks take."""
    here = Path(__file__).parent
    for part in ("engines", "algorithms"):
        monkeypatch.syspath_prepend(str(here / part))


@pytest.mark.slow
@pytest.mark.usefixtures("found_tests")
def test_engines_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    some = {way: engines.WAYS[way] for way in ("fused", "fused, PyTorch alone", "fused, bf16")}
    monkeypatch.setattr(engines, "WAYS", some)
    with pretend_cuda():
        rows = told(engines.check, "linear", CUDA)
    assert [row["way"] for row in rows] == list(some)
    for row in rows:
        assert row["right"], row
        assert set(row["parts"]) >= {"train", "loss", "gradient", "alignment", "test"}
    assert "graphs" in rows[0]["paths"]
    assert "graphs" not in rows[1]["paths"]
    assert rows[0]["apart"] < 1e-4 < rows[2]["apart"]


@pytest.mark.full
@pytest.mark.usefixtures("found_tests")
def test_only_engines_that_know_a_model_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    no = staticmethod(lambda *_: "it has an unknown layer")  # as on a GPU, of its normalisation
    monkeypatch.setattr(engines.FusedEngine, "obstacle", no)
    rows = told(engines.check, "resnet9", CPU)
    assert [(row["way"], row["right"]) for row in rows] == [("loop", True), ("vmap", True)]


@pytest.mark.slow
@pytest.mark.usefixtures("found_tests")
def test_algorithms_are_compared() -> None:
    with pretend_cuda():
        (row,) = told(algorithms.check, "ifca", CUDA)
    assert row["right"]
    assert row["apart"] < 1e-4
    assert row["labels"] == ""


PROGRAM = """
import json, os, sys, time
out, words = sys.argv[sys.argv.index("--inside") + 1], sys.argv[sys.argv.index("--inside") + 2:]
for word in words:
    about = dict(zip(("kind", "name"), word.split("/")))
    print(json.dumps({**about, "state": "begun"}), file=open(out, "a"))
    if about["name"] == "lcfl":
        sys.exit("illegal memory access")
    if about["name"] == "ifca":
        time.sleep(60)
    print(json.dumps({**about, "state": "done", "took": 1.0}), file=open(out, "a"))
"""


@pytest.mark.full
def test_a_process_that_ends_early_costs_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PROGRAM", (sys.executable, "-c", PROGRAM))
    monkeypatch.setitem(command.LONGEST, "algorithms", 1.0)
    checks = [("algorithms", name) for name in ("fedavg", "lcfl", "ifca", "local")]
    rows = list(command.rows_of(checks, "cuda", 60.0))
    ends = {row["name"]: row for row in rows if row["state"] != "begun"}
    assert [ends[name]["state"] for _, name in checks] == ["done", "failed", "failed", "done"]
    assert "illegal memory access" in ends["lcfl"]["error"]
    assert "took longer than 1 s" in ends["ifca"]["error"]


def test_checks_without_time_are_named() -> None:
    left = list(command.rows_of([("algorithms", "lcfl")], "cuda", 0.0))
    assert left == [{"kind": "algorithms", "name": "lcfl", "state": "no time"}]


def test_a_process_that_does_not_begin_ends_the_first_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "PROGRAM", (sys.executable, "-c", "raise SystemExit('no torch')"))
    left = deque([("engines", "mlp"), ("engines", "cnn")])
    rows = list(command._watched(left, "cuda", Path(os.devnull), float("inf")))
    assert [row["name"] for row in rows] == ["mlp"]
    assert "no torch" in rows[0]["error"]
    assert list(left) == [("engines", "cnn")]


def test_all_that_is_checked_is_there() -> None:
    checks = command.all_checks()
    kinds = {kind for kind, _ in checks}
    assert kinds == set(command.LONGEST)
    assert ("workloads", "W7") in checks
    assert ("algorithms", "cfl_mgd") in checks
    assert len(checks) == len(set(checks)) > 70


@pytest.mark.usefixtures("found_tests")
def test_failures_are_told_and_the_next_check_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str, *_: object) -> None:
        if name == "a":
            raise RuntimeError("no kernel image\nis there")
        raise ModuleNotFoundError("No module named 'hydra'", name="hydra")

    monkeypatch.setattr(worker, "_function", lambda _: fails)
    out = tmp_path / "told"
    worker.work([("engines", "a"), ("engines", "b")], CPU, out)
    assert "RuntimeError: no kernel image" in out.read_text()
    assert "needs hydra" in out.read_text()
    assert len(out.read_text().splitlines()) == 4

"""What the benchmarks compute beside times."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from pasted import NETWORKS
from torch import nn

from benchmarks.__main__ import duration
from benchmarks.against.networks import build, layers_of, random_clients
from benchmarks.against.task import Measured, Task, rounds_within
from benchmarks.compare import OTHERS, _output, command, title_of
from benchmarks.convolutions import WAYS
from benchmarks.convolutions import measure as measure_convolutions
from benchmarks.growth import AXES, Cost, Point, exponent, federation, measure, parameters, table
from benchmarks.machine import cache_bytes, largest
from benchmarks.own_models import measure as measure_own
from benchmarks.variants import cases as cases_of_variants
from benchmarks.variants import measure as measure_variants
from benchmarks.variants import pools
from benchmarks.workloads import WORKLOADS, Rounds, step_bytes, synthetic_pool
from fedclust.engines.fused import layers
from fedclust.models.mlp import mlp
from fedclust.models.sequence import Model

CPU = torch.device("cpu")
BY_NAME = {w.name: w for w in WORKLOADS}


def task_of(name: str) -> Task:
    rounds = BY_NAME[name].rounds
    return rounds.task(name)


@pytest.mark.parametrize("name", [w.name for w in WORKLOADS if w.rounds is not None])
def test_a_task_survives_json_and_builds_the_same_model(name: str) -> None:
    task, rounds = task_of(name), BY_NAME[name].rounds
    assert Task.from_json(task.to_json()) == task
    model, built = rounds.model(), build(task.layers)
    shapes = [tuple(value.shape) for value in model.parameters()]
    assert [tuple(value.shape) for value in built.parameters()] == shapes
    nn.utils.vector_to_parameters(model.draw(torch.Generator().manual_seed(0)), model.parameters())
    built.load_state_dict(model.state_dict())
    x = torch.rand(2, *task.shape)
    torch.testing.assert_close(built(x), model(x))


@pytest.mark.parametrize(
    ("name", "steps"), [("W1", 1200), ("W2", 12000), ("W3", 500), ("W4", 2400), ("W7", 250)]
)
def test_steps_of_a_round(name: str, steps: int) -> None:
    assert task_of(name).round_steps == steps


def test_all_of_w7_is_what_its_rounds_make() -> None:
    assert BY_NAME["W7"].total == 375_000 == 1500 * task_of("W7").round_steps


def test_a_layer_without_a_description_is_refused() -> None:
    with pytest.raises(ValueError, match="no description"):
        layers_of(nn.Sequential(nn.Dropout(0.5)))


def test_every_client_has_its_own_number_of_examples_even_when_they_share_them() -> None:
    task = replace(task_of("W7"), population=30)
    clients = random_clients(task, most=120)  # room for two clients of fifty
    assert len(clients) == 30
    assert {(tuple(x.shape), tuple(y.shape)) for x, y in clients} == {((50, 3, 32, 32), (50,))}
    assert clients[0][0].data_ptr() == clients[2][0].data_ptr() != clients[1][0].data_ptr()


def test_the_result_is_the_last_json_line_of_what_a_program_prints() -> None:
    result = Measured(rate=12.5, rounds=3, processes=2, threads=1, version="x 1")
    printed = f'starting\n{{"rate": 1}}\n{result.to_json()}\n[stopped]\n'
    assert Measured.from_output(printed) == result
    with pytest.raises(ValueError, match="no result"):
        Measured.from_output("Killed\n")


@pytest.mark.parametrize("other", OTHERS)
def test_the_program_is_given_the_task(other: str) -> None:
    task = task_of("W1")
    given = command(other, task, 3.0, 2)
    assert given[0].endswith(f".venv-{other}/bin/python")
    start = given.index(f"benchmarks.against.{other}_worker") + 1
    assert Task.from_json(given[start]) == task
    assert float(given[start + 1]) == 3


def test_rounds_fit_the_time_within_bounds() -> None:
    assert [rounds_within(2, one) for one in (0.5, 5.0, 1e-9)] == [4, 3, 1000]


def test_the_last_cache() -> None:
    assert largest(["48K\n", "2M\n", "1024K\n"]) == 2 << 20
    assert largest([]) == 32 << 20
    assert cache_bytes(CPU) > 0


def test_parameters_beyond_the_cache_move_in_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp((4,), 5, hidden=[])  # 25 parameters
    monkeypatch.setattr("benchmarks.workloads.cache_bytes", lambda _: 150)
    assert step_bytes(model, 50, 10, 1, CPU) == (50 * 4 + 100) / 10
    assert step_bytes(model, 50, 10, 2, CPU) == (50 * 4 + 100) / 10 + 200


def test_synthetic_data_have_the_shape_asked_for() -> None:
    pool = synthetic_pool(7, (3, 32, 32), CPU)
    assert pool.x.shape == (7, 3, 32, 32)
    assert pool.x.dtype == torch.uint8


@pytest.mark.parametrize("models", [1, 3])
def test_a_round_gives_one_model_per_cluster(models: int) -> None:
    def linear() -> Model:
        return mlp((1, 4, 4), 10, hidden=[])

    play = Rounds(model=linear, clients=4, examples=6, epochs=2, batch=3, models=models)(
        "fused", CPU
    )
    averaged = play()
    assert averaged.shape == (models, 170)
    assert averaged.isfinite().all()


def test_titles() -> None:
    assert title_of(task_of("W4")) == "240 clients x 100, 10 epochs, full batches, k=4"
    assert title_of(task_of("W7")) == "50 of 1000 clients x 50, 1 epochs, B=10"


def test_durations() -> None:
    assert duration(3723.4) == "1:02:03"


def test_an_exponent_is_the_slope_between_the_last_two_points() -> None:
    assert exponent([1, 10, 100], [5, 2, 8]) == pytest.approx(np.log10(4))
    assert exponent([1, 2, 4], [7, 3, 12]) == pytest.approx(2)


@pytest.mark.parametrize("hidden", [0, 16])
def test_a_points_model_has_as_many_parameters_as_it_says(hidden: int) -> None:
    model = mlp((1, 28, 28), 10, hidden=[hidden] if hidden else [])
    assert parameters(Point(hidden=hidden)) == sum(value.numel() for value in model.parameters())


def test_clients_of_a_growing_federation_have_equal_shares() -> None:
    fed = federation(7, seed=3)
    assert fed.train.count.tolist() == [20] * 7
    assert fed.test.count.tolist() == [2] * 7
    assert not torch.equal(fed.train.index, federation(7, seed=4).train.index)


@pytest.mark.parametrize(
    "point", [Point(clients=30, cohort=4, seeds=2), Point(clients=12, cohort=4, landmarks=4)]
)
def test_a_growth_point_is_a_whole_job(point: Point) -> None:
    cost = measure(point, seconds=0.0)
    assert cost.seconds > 0
    assert cost.peak_mib > 10
    assert cost.setup_seconds > 0


@pytest.mark.parametrize("axis", list(AXES))
def test_every_axis_makes_a_table(axis: str) -> None:
    shown = table(
        axis, AXES[axis], [Cost(seconds=1.0, peak_mib=2.0, setup_seconds=3.0)] * len(AXES[axis])
    )
    assert shown.row_count == len(AXES[axis])


def runs(process: int) -> bool:
    """Whether a process has not ended."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.full
def test_another_simulator_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    started = f"subprocess.Popen([sys.executable, '-c', {child!r}])"
    code = f"import subprocess, sys; print({started}.pid, flush=True)"
    noted = tmp_path / "pid"
    program = [sys.executable, "-c", f"{code}; {child}"]
    with pytest.raises(RuntimeError, match="took longer than 3 s"):
        _output(["sh", "-c", f'exec "$@" > {noted}', "sh", *program], 3.0)
    child_id, deadline = int(noted.read_text()), time.monotonic() + 20
    while runs(child_id) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs(child_id)


def test_what_another_simulator_says_when_it_fails_is_told() -> None:
    with pytest.raises(RuntimeError, match="no such luck"):
        _output([sys.executable, "-c", "raise SystemExit('no such luck')"], 60.0)
    assert _output([sys.executable, "-c", "print(1)"], 60.0) == "1\n"


def test_what_torchrun_leaves_goes_with_the_program() -> None:
    made = _output(["sh", "-c", "mktemp -d -t torchelastic_XXXXXX"], 60.0).strip()
    assert Path(made).name.startswith("torchelastic_")
    assert Path(made).parent.name.startswith("fedclust-")
    assert not Path(made).parent.exists()


@pytest.mark.full
def test_all_ways_to_compute_convolutions_are_measured() -> None:
    usual = layers.convolving
    rates = measure_convolutions("cnn_femnist_tiny", 1)
    assert list(rates) == list(WAYS)
    assert all(rate > 0 for rate in rates.values())
    assert layers.convolving is usual


def test_own_models_are_measured_beside_the_plain_loop() -> None:
    case = NETWORKS["MLP, dropout, BatchNorm"]
    found = measure_own(case, rounds=1, clients=2, batch=5, steps=1, small=True)
    assert (found.engine, found.remark) == ("fused", "")
    assert min(found.ours, found.plain, found.by_clock) > 0
    # forward and for every weight, and back to all but the first layer's input
    assert found.operations == 2 * 5 * (2 * 64 * 16 + 3 * 16 * 16 + 3 * 16 * 10)


def test_variants_are_measured_against_their_workload() -> None:
    made = {name: pool for name, pool in pools(100).items() if name in ("classes", "labels")}
    found = measure_variants(cases_of_variants("W1", made, 0.25), rounds=1)
    assert set(found) == {"classes", "labels", "SGD with momentum", "Adam"}
    assert found["classes"] == found["SGD with momentum"] == 1
    assert min(found.values()) > 0

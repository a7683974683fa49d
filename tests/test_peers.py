"""The comparison of whole rounds with other ways to train."""

from __future__ import annotations

import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.against import fedclust_worker, loop_worker
from benchmarks.against.networks import build, resnet18
from benchmarks.against.task import Task
from benchmarks.against.turns import Given, Program, Turns, serve
from benchmarks.peers import (
    ARMS,
    SHORT,
    TASKS,
    UPDATE,
    Arm,
    Limits,
    OutOfTimeError,
    Player,
    Row,
    agreement,
    compare,
    given_of,
    head_of,
    line_of,
    loss_of,
    main,
    measure,
    quick,
)
from fedclust.models import resnet

SMALL_RESNET = replace(
    quick(TASKS["ResNet-18"]),
    shape=(3, 8, 8),
    layers=resnet18([2, 2, 4, 4], 10),
    examples=8,
    batch=4,
)


def played(task: Task, folder: Path) -> tuple[Given, Mapping[str, NDArray[np.float32]]]:
    """What fedclust and the three plain loops make of two rounds, through the files."""
    given_of(task).write(folder)
    given = Given.read(folder)
    programs = {name: loop_worker.program(given, name) for name in loop_worker.WAYS}
    programs["fedclust"] = fedclust_worker.program(given)
    for name, program in programs.items():
        serve(program, folder, name, Turns(io.StringIO("0\n"), io.StringIO()))
    return given, {name: np.load(folder / f"{name}.npy") for name in programs}


@pytest.mark.full
@pytest.mark.parametrize(
    "task", [quick(TASKS["W1"]), quick(TASKS["W4"]), SMALL_RESNET], ids=lambda task: task.name
)
def test_all_programs_compute_the_same_round(task: Task, tmp_path: Path) -> None:
    given, models = played(task, tmp_path)
    found = agreement(given, models)
    assert set(found) == {"fedclust", "indexed", "pfllib", "flbench"}
    assert found["fedclust"].update < (1e-5 if task.optimizer == "sgd" else 0.05)
    assert max(found[name].update for name in ("pfllib", "flbench")) < 1e-6
    assert loss_of(given, given.start) - found["indexed"].loss > 1e-3  # something was learnt


def test_a_program_that_computes_something_else_is_told(tmp_path: Path) -> None:
    given, models = played(quick(TASKS["W1"]), tmp_path)
    step = models["indexed"] - given.start
    far = {**models, "fedclust": given.start + (1 + 2 * UPDATE["sgd"]) * step}
    with pytest.raises(RuntimeError, match="W1: fedclust computes something else: loss"):
        agreement(given, far)


def test_batches_are_passes_over_a_clients_examples() -> None:
    given = given_of(TASKS["W1"])
    assert given.clients.shape == (20, 60)
    assert given.order.shape == (20, 60, 10)
    passes = np.sort(given.order.reshape(20, 10, 60), 2)
    assert (passes == np.arange(60)).all()


def test_participants_of_a_larger_population_are_spread_over_it() -> None:
    given = given_of(TASKS["CNN"])
    assert len(given.y) == 100 * 50
    assert given.clients[:, 0].tolist() == [5 * 50 * c for c in range(20)]


def test_resnet18_is_that_of_the_package() -> None:
    made = build(resnet18([2, 2, 4, 4], 10))
    own = resnet.resnet18((3, 8, 8), 10, channels=[2, 2, 4, 4], groups=1, norm_layer="batch")
    own.load_state_dict(dict(zip(own.state_dict(), made.state_dict().values(), strict=True)))
    x = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(made(x), own(x))
    assert TASKS["ResNet-18"].layers == resnet18([64, 128, 256, 512], 10)
    count = sum(value.numel() for value in build(TASKS["ResNet-18"].layers).parameters())
    assert count == 11_173_962


def test_programs_take_turns() -> None:
    told, rounds = io.StringIO(), iter([0.5, 0.2, 0.2, 0.3])
    turns = Turns(io.StringIO("0.3\n0.1\n"), told)
    assert [turns.note(next(rounds)) for _ in range(4)] == [True, True, True, False]
    lines = [json.loads(line)["rounds"] for line in told.getvalue().splitlines()]
    assert lines == [[0.5], [0.2, 0.2], [0.3]]


def test_a_program_plays_until_there_is_no_more_to_read(tmp_path: Path) -> None:
    played, told = [], io.StringIO()
    program = Program(
        play=lambda: played.append(1) or len(played),
        averaged=lambda count: np.full((1, 2), count, np.float32),
        version="x 1",
    )
    serve(program, tmp_path, "x", Turns(io.StringIO("0\n0\n"), told))
    assert np.load(tmp_path / "x.npy").tolist() == [[3, 3]]
    assert json.loads(told.getvalue().splitlines()[-1])["version"] == "x 1"


FAKE = """
import sys
print('starting')
print('{"rounds": [2.0]}', flush=True)
for line in sys.stdin:
    print('{"rounds": [%s, 3]}' % line.strip(), flush=True)
print('{"version": "x 1"}', flush=True)
"""


def test_a_player_speaks_with_its_program() -> None:
    player = Player([sys.executable, "-S", "-c", FAKE], os.environ, 20.0)
    assert player.first is not None
    player.turn(0.5)
    player.turn(1.5)
    assert player.rounds == [0.5, 3, 1.5, 3]
    assert player.finish() == {"version": "x 1"}


def test_a_program_without_a_first_round_in_time_is_ended() -> None:
    player = Player([sys.executable, "-S", "-c", "import time; time.sleep(60)"], os.environ, 0.2)
    assert player.first is None


def test_what_a_failing_program_says_is_told() -> None:
    with pytest.raises(RuntimeError, match="no such luck"):
        Player([sys.executable, "-S", "-c", "raise SystemExit('no such luck')"], os.environ, 20.0)


@pytest.mark.slow
def test_a_quick_run_prints_the_table_and_keeps_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = [arm for arm in ARMS if arm.environment is None]
    monkeypatch.setattr("benchmarks.peers.ARMS", here)
    given = ["peers", "W1", "--quick", "--threads", "1", "--seconds", "0.01"]
    file = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", [*given, "--patience", "300", "--json", str(file)])
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    try:
        main()
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)
    rows = json.loads(file.read_text())
    assert [row["arm"] for row in rows] == [arm.name for arm in here]
    assert all(row["rate"] > 0 and row["start"] > 0 and row["peak_mib"] > 0 for row in rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| | fedclust | plain loop | PFLlib's way | FL-bench's way |"
    assert lines[2].startswith("| W1 | ")


def rows_of(task: str) -> list[Row]:
    numbers = {"rate": 10.0, "peak_mib": 1.0, "start": 1.0, "compiling": 0.0}
    return [Row(task=task, arm=arm, **numbers) for arm in ("fedclust", "indexed")]


TWO = [arm for arm in ARMS if arm.name in ("fedclust", "indexed")]


def test_a_line_is_printed_as_soon_as_its_task_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What comes out before every task; a task that fails leaves the others alone."""
    printed, told = list[str](), io.StringIO()

    def played(task: Task, arms: object, limits: Limits, tell: Callable[[str], None]) -> list[Row]:
        printed.append(capsys.readouterr().out)
        if task.name == "W2":
            raise RuntimeError("[x] computes something else")
        if task.name == "W7":
            raise OutOfTimeError
        tell(f"{task.name}: first round of fedclust (1 of 2)")
        return rows_of(task.name)

    monkeypatch.setattr("benchmarks.peers.compare", played)
    tasks = [TASKS[name] for name in ("W1", "W2", "W4", "W7", "CNN")]
    file, err = tmp_path / "rows.json", Console(file=told, width=300)
    assert measure(tasks, TWO, Limits(threads=1), file=file, err=err) == 1
    line = "| {} | 10<br>1 MiB<br>1.0 s | 10 (1)<br>1 MiB<br>1.0 s |\n"
    head = "| | fedclust | plain loop |\n|---|---:|---:|\n"
    assert printed == ["", head + line.format("W1"), "", line.format("W4")]
    assert [row["task"] for row in json.loads(file.read_text())] == ["W1", "W1", "W4", "W4"]
    lines = told.getvalue().splitlines()
    assert lines[1] == "0:00 W1: first round of fedclust (1 of 2)"
    assert "W2: [x] computes something else" in lines
    assert lines[-1] == "left out: W7 CNN: the minutes are over; --all measures all tasks"


def test_no_program_begins_when_the_time_is_over() -> None:
    now = time.monotonic()
    assert Limits(threads=1).left() == 45
    assert 0 < Limits(threads=1, end=now + 20).left() <= 20
    with pytest.raises(OutOfTimeError):
        Limits(threads=1, end=now).left()
    with pytest.raises(OutOfTimeError):
        compare(quick(TASKS["W1"]), TWO, Limits(threads=1, end=now))


def test_a_program_that_is_late_by_the_end_alone_ends_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeping = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(Arm, "command", lambda *_: sleeping)
    told: list[str] = []
    limits = Limits(threads=1, end=time.monotonic() + 0.3)
    with pytest.raises(OutOfTimeError):
        compare(quick(TASKS["W1"]), TWO, limits, told.append)
    assert told == ["W1: first round of fedclust (1 of 2)"]


@pytest.mark.parametrize(
    ("given", "names", "minutes", "rest"),
    [
        ([], SHORT, 5, "left out: W3 W7 ResNet-18; --all measures all tasks"),
        (["--minutes", "2"], SHORT, 2, "left out: W3 W7 ResNet-18; --all"),
        (["--all"], tuple(TASKS), math.inf, ""),
        (["W3"], ("W3",), math.inf, ""),
        (["W3", "--minutes", "9"], ("W3",), 9, ""),
    ],
)
def test_what_is_measured_by_default_ends_in_five_minutes(
    given: list[str],
    names: tuple[str, ...],
    minutes: float,
    rest: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("benchmarks.peers.measure", lambda *told, **_: seen.extend(told) or 0)
    monkeypatch.setattr(sys, "argv", ["peers", "--threads", "1", *given])
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    main()
    tasks, _, limits = seen
    assert tuple(task.name for task in tasks) == names
    assert limits.end - time.monotonic() == pytest.approx(60 * minutes, abs=5)
    said = " ".join(capsys.readouterr().err.split())
    assert rest in said
    assert ("--all" in said) == bool(rest)


def test_a_table_of_rates_memory_and_starts() -> None:
    def row(arm: str, rate: float, compiling: float = 0.0) -> Row:
        return Row(
            task="W1", arm=arm, rate=rate, peak_mib=512.4, start=2.04, compiling=compiling, rounds=3
        )

    rows = [row("fedclust", 1234.5), row("indexed", 61.73), row("jax_jit", 200, 1.5)]
    arms = [arm for arm in ARMS if arm.name in ("fedclust", "indexed", "jax_jit", "jax_vmap")]
    head = "| | fedclust | plain loop | JAX, jit | JAX, vmap |\n|---|---:|---:|---:|---:|"
    assert head_of(arms) == head
    assert line_of([*rows, Row(task="W1", arm="jax_vmap", late=True)], arms, 60) == (
        "| W1 | 1,234<br>512 MiB<br>2.0 s | 61.7 (20)<br>512 MiB<br>2.0 s "
        "| 200 (6.17)<br>512 MiB<br>2.0 s, 1.5 compiling | no round in 60 s |"
    )


def test_programs_of_several_processes_are_started_by_torchrun() -> None:
    pfl = next(arm for arm in ARMS if arm.name == "pfl")
    assert "--nproc_per_node=2" in pfl.command(Path("x"), 2)
    assert "torch.distributed.run" not in pfl.command(Path("x"), 1)

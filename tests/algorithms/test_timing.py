"""Methods with a clock: hand-computed times, identities, deadlines, budgets, and resuming."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd
import pytest
import torch
from digits_jobs import config_of
from planted import (
    ALGORITHMS,
    configured,
    copied,
    engine_for,
    federation,
    rounds_of,
    same,
    simulate,
)
from run_folders import Interrupting, assert_pieces_make_the_whole, assert_same_runs

from fedclust.algorithms.layers.timing import Plain, _Timed
from fedclust.algorithms.parts.asynchronous import Asynchronous
from fedclust.config.build import build
from fedclust.config.read import read_config
from fedclust.config.tree import CONF
from fedclust.core.clock import Devices
from fedclust.core.front import Gradient
from fedclust.core.types import Round
from fedclust.helpers.errors import ConfigError, Interrupted, RunFolderError
from fedclust.runtime.contract import fields_of
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

SIZE = 21  # parameters: three classes, six features
EXAMPLES = 48  # two epochs of 24 examples
EQUAL = ("speed_spread=0", "down_spread=0", "up_spread=0")


def clock_of(name: str = "devices", *options: str) -> tuple[str, ...]:
    return (f"clock={name}", *(f"clock.{option}" for option in options))


def devices(speed: Any, down: Any = float("inf"), up: Any = float("inf")) -> Devices:
    ones = torch.ones(12, dtype=torch.float64)
    one = Devices.alike(12, 1.0)
    return replace(
        one,
        **{
            k: torch.as_tensor(v) * ones
            for k, v in {"speed": speed, "down": down, "up": up}.items()
        },
    )


def timed(
    name: str, own: Devices, *, deadline: float | None = None, over: float = 0.0, **others: Any
) -> Any:
    """A method on planted data with given devices."""
    method = configured(name)
    solver = configured("fedavg").solver
    plain = Plain(solver=solver, received=4 * SIZE, sent=4 * SIZE)
    options = {"deadline": deadline, "over": over, "num_params": SIZE, **others}
    return _Timed(base=method, devices={0: own}, plain=plain, **options)


def seconds(costs: list[Any]) -> list[float]:
    return [
        cost.notes["simulated_seconds"] for cost in costs if cost.notes.get("simulated_seconds")
    ]


def test_a_round_lasts_as_long_as_its_slowest_participant() -> None:
    rounds = rounds_of(federation(), 3)
    speed = [48.0] * 10 + [24.0, 4.8]
    states, costs = simulate(timed("fedavg", devices(torch.tensor(speed))), rounds)
    assert seconds(costs) == pytest.approx([10, 10, 10])
    assert [one.elapsed for one in states] == pytest.approx([10, 20, 30])
    # without the two slow ones
    some = [replace(rnd, cohort=rnd.cohort[:10]) for rnd in rounds]
    _, costs = simulate(timed("fedavg", devices(torch.tensor(speed))), some)
    assert seconds(costs) == pytest.approx([1, 1, 1])


def test_bytes_take_time_both_ways() -> None:
    rounds = rounds_of(federation(), 1)
    own = devices(48.0, down=21.0, up=8.4)
    _, costs = simulate(timed("fedavg", own), rounds)
    assert seconds(costs) == pytest.approx([4 + 1 + 10])
    # three models down, and a third of a pass over 24 examples with each of them
    _, costs = simulate(timed("ifca", own), rounds)
    assert seconds(costs) == pytest.approx([12 + 0.5 + 1 + 10])


def test_infinite_bandwidth_leaves_the_work() -> None:
    """Stragglers do part of it: rounded up to whole steps."""
    rounds = rounds_of(federation(), 2)
    some = [replace(rnd, work=torch.full_like(rnd.work, 0.3)) for rnd in rounds]
    _, costs = simulate(timed("fedavg", devices(12.0)), some)
    assert seconds(costs) == pytest.approx([2, 2])  # 2 of 4 steps of 12 examples


def test_every_question_is_counted() -> None:
    rnd = rounds_of(federation(), 1)[0]
    method = timed("fedavg", devices(1.0))
    ids = torch.tensor([3, 5])
    seen, began = dict[str, list[float]](), torch.tensor([5.0]).double()

    def asking(name: str, ask: Any) -> Any:
        def verb(clients: Any, rnd: Round) -> tuple[Any, Any]:
            ask(clients)
            seen[name] = clients.examples[[3, 5, 0]].tolist()
            return method.base.init(clients, rnd)

        return verb

    clients = engine_for(rnd.fed).at(rnd)
    models = clients.init(rnd.stream("init"), 3)
    label = torch.tensor([0, 1])
    gradient = Gradient(models, label, ids)
    asked = {
        "loss": (lambda c: c.loss(models, ids), 24),
        "loss of a batch": (lambda c: c.loss(models, ids, 6), 6),
        "loss of each": (lambda c: c.loss_of_each(models[:2], ids), 8),
        "losses of examples": (lambda c: c.example_losses(models, ids), 24),
        "one pass": (lambda c: c.example_losses(models, ids, passes=1), 8),
        "gradient": (lambda c: c.grad(gradient), 24),
        "sum": (lambda c: c.grad_sum(gradient), 24),
        "batch": (lambda c: c.grad(Gradient(models, label, ids, batch_size=6)), 6),
        "products": (lambda c: c.align(models, models, ids), 3 * 24),
        "losses alone": (lambda c: c.align(models, 0 * models, ids), 24),
        "served": (lambda c: c.aside().loss(models, ids), 0),
    }
    for name, (ask, examples) in asked.items():
        state, _ = method._timed(asking(name, ask), clients, rnd, began, 0.0)
        assert seen[name] == pytest.approx([examples, examples, 0]), name
        assert state.elapsed == pytest.approx(5 + examples), name


def follows_the_clock(name: str) -> bool:
    """Whether a method is an asynchronous server; told by its class, for composing takes long."""
    config = read_config(CONF / "algorithm" / f"{name}.yaml")
    if "_target_" not in config:  # a variant of another
        return follows_the_clock(config["defaults"][0])
    return issubclass(resolve_name(config["_target_"]), Asynchronous)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("fedavg", "ifca", "lcfl") else pytest.mark.full)
        for name in ALGORITHMS
        if not follows_the_clock(name)
    ],
)
def test_a_clock_without_a_deadline_changes_no_result(name: str) -> None:
    rounds = rounds_of(federation(), participation=0.5)
    plain, costs = simulate(configured(name), rounds)
    states, others = simulate(timed(name, devices(7.0, 100.0, 50.0)), rounds)
    for one, other in zip(plain, states, strict=True):
        assert same(one, type(one)(**{key: getattr(other, key) for key in fields_of(one)}))
    for one, other in zip(costs, others, strict=True):
        assert (one.models_up, one.floats_up) == (other.models_up, other.floats_up)
    assert states[-1].elapsed == pytest.approx(sum(seconds(others)))
    assert all(after.elapsed > before.elapsed for before, after in pairwise(states))
    # it continues from a file to the same bits
    rest, _ = simulate(timed(name, devices(7.0, 100.0, 50.0)), rounds[-1:], copied(states[-2]))
    assert same(rest[-1], states[-1])


def test_a_deadline_drops_who_would_be_late() -> None:
    speed = torch.tensor([48.0] * 9 + [24.0, 12.0, 4.8])  # 1, 2, 4 and 10 seconds
    rounds = rounds_of(federation(), 3)
    few = [replace(rnd, cohort=rnd.cohort[:10]) for rnd in rounds]
    states, costs = simulate(timed("fedavg", devices(speed), deadline=3.0), rounds)
    without, _ = simulate(configured("fedavg"), few)
    assert torch.equal(states[-1].model, without[-1].model)
    # the server waits for the two that are late
    assert seconds(costs) == pytest.approx([3, 3, 3])
    assert [cost.models_up for cost in costs[1:]] == [10, 10, 10]
    # if nobody is, the slowest decides
    _, costs = simulate(timed("fedavg", devices(speed), deadline=30.0), rounds)
    assert seconds(costs) == pytest.approx([10, 10, 10])
    # if everybody is, one takes part
    _, costs = simulate(timed("fedavg", devices(speed), deadline=0.1), rounds)
    assert [cost.models_up for cost in costs[1:]] == [1, 1, 1]


def test_a_device_that_is_off_may_be_late() -> None:
    own = replace(
        devices(48.0),
        on_from=torch.tensor([0.0] * 11 + [5.0]).double(),
        on_for=torch.tensor([10.0] * 11 + [5.0]).double(),
        period=10.0,
    )
    _, costs = simulate(timed("fedavg", own), rounds_of(federation(), 2))
    assert seconds(costs) == pytest.approx([6, 1])  # it goes on at 5, and is on until 10
    _, costs = simulate(timed("fedavg", own, deadline=2.0), rounds_of(federation(), 4))
    assert [cost.models_up for cost in costs[1:]] == [11, 11, 12, 12]


def test_of_more_clients_the_first_ones_are_kept() -> None:
    speed = torch.arange(1, 13).flip(0)  # the last clients are the slowest
    method, everybody = timed("fedavg", devices(speed), over=0.5), torch.arange(12)
    for rnd in rounds_of(federation(), 4, participation=1 / 3):
        waiting, least = method._waiting(method._paced(rnd, 0.0))
        six = rnd.sample(6, everybody).tolist()
        assert waiting.cohort.tolist() == six[:4]
        assert set(rnd.cohort.tolist()) <= set(six)
        assert least == 0
        # likewise where a method draws among some clients
        some = torch.tensor([1, 5, 7, 9, 11])
        assert waiting.sample(2, some).tolist() == rnd.sample(3, some).tolist()[:2]
    # nobody in addition where all take part
    rnd = rounds_of(federation(), 1)[0]
    assert len(method._waiting(method._paced(rnd, 0.0))[0].cohort) == 12


def numbers(folder: Path, metric: str = "simulated_seconds") -> list[float]:
    rounds = pd.read_csv(folder / "rounds.csv")
    found: list[float] = rounds[(rounds.metric == metric) & (rounds.seed == 0)].value.tolist()
    return found


@pytest.mark.full
def test_equal_devices_give_the_same_run(tmp_path: Path) -> None:
    """By hand: 24 examples in two epochs, 650 parameters."""
    short = ("seeds=1", "rounds=3")
    config = config_of("fedavg", *short)
    run(build(config), RunFolder(tmp_path / "without", config), Silent())
    assert numbers(tmp_path / "without") == []
    config = config_of("fedavg", *short, *clock_of("devices", *EQUAL, "speed=48"))
    run(build(config), RunFolder(tmp_path / "with", config), Silent())
    sent = 650 * 32 / 1e6
    assert numbers(tmp_path / "with") == pytest.approx([sent / 20 + 1 + sent / 5] * 3)
    one, other = (pd.read_csv(tmp_path / name / "rounds.csv") for name in ("without", "with"))
    kept = ~one.metric.isin(["seconds"])
    rest = other[~other.metric.isin(["seconds", "simulated_seconds"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(one[kept].reset_index(drop=True), rest)


def test_compressed_updates_take_less_time(tmp_path: Path) -> None:
    given = ("seeds=1", "rounds=1", "compression=half", *clock_of("devices", *EQUAL, "speed=48"))
    config = config_of("fedavg", *given, "clock.down=null", "clock.up=1")
    run(build(config), RunFolder(tmp_path, config), Silent())
    assert numbers(tmp_path) == pytest.approx([1 + 650 * 16 / 1e6])


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["fedavg", "lcfl"])
def test_a_job_ends_after_its_hours(algorithm: str, tmp_path: Path) -> None:
    """Rounds of about a second: five are tested last before 4.5 seconds are over, and then ten."""
    given = (
        *clock_of("devices", *EQUAL, "speed=48"),
        "rounds=40",
        "eval_every=5",
        "scores=[auroc]",
    )
    config = config_of(algorithm, *given, f"stop.hours={4.9 / 3600}", "predictions=true")
    whole = tmp_path / "whole"
    job = build(config)
    run(job, RunFolder(whole, config), Silent())
    used = sum(numbers(whole))
    rounds = len(numbers(whole))
    assert used >= 4.9
    assert rounds % 5 == 0
    assert sum(numbers(whole)[:-5]) < 4.9
    status = json.loads((whole / "status.json").read_text())
    assert (status["state"], status["rounds"]) == ("done", rounds)
    assert len(numbers(whole, "auroc")) == rounds / 5
    assert (whole / "predictions" / "seed=1.parquet").is_file()
    before = (whole / "rounds.csv").read_bytes()
    run(build(config, like=job), RunFolder(whole, config), Silent())
    assert (whole / "rounds.csv").read_bytes() == before
    # killed, also after its last round
    pieces, after = RunFolder(tmp_path / "pieces", config), (1, rounds - 2, rounds - 1)
    for _ in after:
        with pytest.raises(Interrupted):
            run(build(config, like=job), pieces, Interrupting(after))
    run(build(config, like=job), pieces, Silent())
    assert_same_runs(whole, tmp_path / "pieces")


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["fedavg", "ifca", "lcfl", "ditto"])
@pytest.mark.parametrize(
    "options",
    [
        ("deadline=0.7", "over=0.5"),
        ("on_share=0.3", "period=0.001", "law=pareto"),
    ],
    ids=" ".join,
)
def test_an_interrupted_run_ends_with_the_same_bits(
    algorithm: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    config = config_of(algorithm, *clock_of("devices", *options))
    assert_pieces_make_the_whole(config, tmp_path)


def test_every_method_meets_the_same_devices_and_participants() -> None:
    given = clock_of("devices", "deadline=0.7", "over=0.5")
    jobs = [build(config_of(name, *given)) for name in ("fedavg", "ifca")]
    for seed in (0, 1):
        assert jobs[0].devices[seed].digest == jobs[1].devices[seed].digest
        one, other = (next(job.scenario.rounds(job.federations[seed], seed)) for job in jobs)
        cohorts = [
            job.algorithm._waiting(job.algorithm._paced(rnd, 0.0))[0].cohort.tolist()
            for job, rnd in zip(jobs, (one, other), strict=True)
        ]
        assert cohorts[0] == cohorts[1]
    assert jobs[0].devices[0].digest != jobs[0].devices[1].digest


def test_a_folder_belongs_to_its_devices(tmp_path: Path) -> None:
    table = tmp_path / "devices.csv"
    rows = [f"{i},48,1,1" for i in range(8)]
    table.write_text("\n".join(["client,speed,down,up", *rows]))
    config = config_of("fedavg", *clock_of("trace", f"path={table}"), "rounds=3")
    job = build(config)
    with pytest.raises(Interrupted):
        run(job, RunFolder(tmp_path / "job", config), Interrupting([1]))
    table.write_text("\n".join(["client,speed,down,up", *rows[:-1], "7,1,1,1"]))
    with pytest.raises(RunFolderError, match=r"the devices of seed 0 changed"):
        run(build(config, like=job), RunFolder(tmp_path / "job", config), Silent())


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("stop.hours=2",), "stop.hours=2.0 is not allowed: null without a clock"),
        (("stop.hours=0", "clock=devices"), r"stop.hours=0.0 is not allowed: a number in \(0, "),
        (("clock=devices", "clock.law=normal"), "clock.law=normal is not allowed: "),
        (("clock=devices", "clock.speed=0"), "clock.speed=0.* is not allowed: "),
        (
            ("clock=devices", "clock.over=0.5", "scenario.selection=round_robin_first"),
            "clock.over=0.5 is not allowed: 0 with scenario.selection=round_robin_first",
        ),
        (
            (
                *("clock=devices", "clock.deadline=5", "privacy=client", "privacy.delta=0.001"),
                "common.aggregation=uniform",
            ),
            "clock.deadline=5.* is not allowed: clock.deadline=null with privacy",
        ),
    ],
)
def test_what_does_not_fit_is_refused(overrides: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        build(config_of("fedavg", *overrides))
    assert "\n" not in str(refused.value)


def test_old_folders_have_no_clock() -> None:
    from fedclust.config.schema import relevant

    config: Mapping[str, Any] = config_of("fedavg")
    assert not {"clock", "stop"} & set(relevant(config))
    assert {"clock", "stop"} <= set(relevant(config_of("fedavg", "clock=devices", "stop.hours=1")))

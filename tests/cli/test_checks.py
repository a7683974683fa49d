"""One list of checks: what `fedclust run` refuses or tells, every other way to a job does too."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import HydraException
from rich.console import Console

import fedclust
from fedclust.commands import tune
from fedclust.helpers.errors import ConfigError, SweepError, UserError
from fedclust.launch import command
from fedclust.launch.checks import CHECKS
from fedclust.launch.typed import Typed
from fedclust.tuning import batches
from scripts.papers import campaign

BASE = ("threads=1", "partition.num_clients=4", "model=linear", "solver.epochs=1", "progress=false")
# by the check that refuses it: what is typed, and what is said
REFUSED = {
    "check_form": (("algorithm=fedavg", "rounds"), "'rounds' is not allowed"),
    "check_choices": (("algorithm=[fedavg,ifca]",), "algorithm=['fedavg', 'ifca'] is not allowed"),
    "check_hydra": (("algorithm=fedavg", "name=../x"), "name=../x is not allowed"),
    "check_read": (
        ("algorithm=fedavg", "num_clusters=7"),
        "num_clusters=7 is not allowed: fedavg would not read it",
    ),
    "check_scale": (
        ("algorithm=fedavg", "+scale.x=1"),
        "scale.x=1 is not allowed: what scale=… sets",
    ),
    "check_keys": (("algorithm=fedavg", "rounds=0"), "rounds=0 is not allowed"),
    "check_sampling": (
        ("algorithm=fedavg", "participation=0.5", "clients_per_round=3"),
        "participation=0.5 is not allowed: clients_per_round=3 is set",
    ),
}
OF_SWEEPS = {
    "check_tuned": (("tuned=nowhere.yaml", "algorithm=fedavg,ifca"), "a best.yaml of"),
    "check_direction": (
        ("+hydra.sweeper.direction=minimize", "algorithm=fedavg,ifca"),
        "hydra.sweeper.direction=minimize is not allowed: maximize",
    ),
}


def _run(typed: tuple[str, ...]) -> None:
    command.launch(Typed((*BASE, *typed)))


def _sweep(typed: tuple[str, ...]) -> None:
    command.launch(Typed((*BASE, *typed, "seeds=1,2"), many=True))


def _tune(typed: tuple[str, ...]) -> None:
    tune.command([*BASE, *typed, "solver.lr=0.1,0.2", "tuning_seeds=[7]", "trials=1"])


def _python(typed: tuple[str, ...]) -> None:
    fedclust.run(*BASE, *typed)


def _python_sweep(typed: tuple[str, ...]) -> None:
    fedclust.sweep(*BASE, *typed)


def _campaign(typed: tuple[str, ...]) -> None:
    campaign.plan(campaign.Entry("x", "quickstart", (*BASE, *typed), 1.0, "measured", ()))


def test_every_check_is_tried() -> None:
    of_jobs = {"check_scale", "check_keys", "check_sampling"}
    assert {check.__name__ for check in CHECKS} == {*REFUSED, *OF_SWEEPS} - of_jobs


@pytest.mark.thinned
@pytest.mark.parametrize("way", [_run, _sweep, _tune, _python, _campaign])
@pytest.mark.parametrize("check", REFUSED)
def test_every_way_refuses_what_a_run_refuses(
    way: Callable[[tuple[str, ...]], None],
    check: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed, said = REFUSED[check]
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UserError, SweepError)) as refused:
        way(typed)
    assert said in str(refused.value)
    assert not list(tmp_path.rglob("rounds.csv"))


@pytest.mark.full
@pytest.mark.parametrize("way", [_sweep, _python_sweep])
@pytest.mark.parametrize("check", OF_SWEEPS)
def test_every_sweep_refuses_what_a_sweep_refuses(
    way: Callable[[tuple[str, ...]], None],
    check: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed, said = OF_SWEEPS[check]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        way(typed)
    assert said in str(refused.value)
    assert not list(tmp_path.iterdir())


TOLD = {
    "a key of another scenario": (
        ("algorithm=fedavg", "common.release_every=2"),
        "common.release_every has no effect: it is read by scenario=incremental",
    ),
    "a key whose reader has a value of its own": (
        ("algorithm=ifca", "algorithm.num_clusters=2", "num_clusters=3"),
        "num_clusters has no effect: algorithm.num_clusters has a value of its own",
    ),
    "a key that leads to what is idle": (
        ("algorithm=pacfl", "algorithm.method.threshold=9", "num_clusters=2"),
        "num_clusters=2 has no effect: it is read with algorithm.method.threshold=null",
    ),
    "what a method leaves unused, in a wrapper": (
        ("algorithm=finetune", "algorithm@algorithm.base=local", "participation=0.5"),
        "participation=0.5 has no effect: participants=all trains every client in every round",
    ),
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What consoles are told, in one line; nothing is computed."""
    text = StringIO()

    class Deaf(Console):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(file=text, width=1000)

    def stop(*_: object, **__: object) -> None:
        raise UserError("stopped here")

    monkeypatch.setattr("fedclust.launch.job.Console", Deaf)
    monkeypatch.setattr(tune, "Console", Deaf)
    monkeypatch.setattr("fedclust.runtime.run.run", stop)
    monkeypatch.setattr(batches.TrialRunner, "run", stop)
    return lambda: " ".join(text.getvalue().split())


@pytest.mark.thinned
@pytest.mark.parametrize("way", [_run, _tune, _python])
@pytest.mark.parametrize("what", TOLD)
def test_every_way_tells_what_has_no_effect(
    way: Callable[[tuple[str, ...]], None],
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[[], str],
) -> None:
    typed, said = TOLD[what]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="stopped here"):
        way(typed)
    assert told().count(said) == 1


@pytest.mark.full
def test_a_job_that_is_refused_says_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[[], str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SweepError):
        _sweep(("algorithm=fedavg,ifca", "num_clusters=3", "partition.num_clients=0"))
    assert "num_clusters" not in told()
    assert told().startswith("fedclust: partition.num_clients=0 is not allowed")


@pytest.mark.full
@pytest.mark.parametrize(
    ("idle", "other", "option"),
    [
        ("attack=none", "sign_flip", "attack.share=0.25"),
        ("aggregation=mean", "trimmed_mean", "aggregation.trim=0.1"),
        ("privacy=none", "client", "privacy.noise=0.5"),
        ("server=mean", "adam", "server.rate=0.5"),
    ],
)
def test_an_option_is_left_out_where_the_choice_does_nothing(
    idle: str,
    other: str,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[[], str],
) -> None:
    ran = []

    def noted(_: object, folder: Any, *__: object) -> None:
        ran.append((folder.config[group].get(name), option in folder.path.name))
        raise UserError("stopped here")

    monkeypatch.setattr("fedclust.runtime.run.run", noted)
    monkeypatch.chdir(tmp_path)
    group, _, choice = idle.partition("=")
    key, _, value = option.partition("=")
    name = key.partition(".")[2]
    more = ("algorithm=fedavg", "common.aggregation=uniform")
    with pytest.raises(SweepError):
        _sweep((*more, f"{idle},{other}", option))
    assert set(ran) == {(None, False), (float(value), True)}
    assert told().count(f"{key} is read by other choices of {group}, not by {choice}") == 1
    with pytest.raises(ConfigError, match=f"is not allowed for {idle}: run the other choices with"):
        _sweep((*more, f"{idle},{other}", f"{option},0.3"))
    with pytest.raises(HydraException, match=key):
        _sweep((*more, idle, option))

"""One list of checks: what `fedclust run` refuses or tells, every other way to a job does too."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import fedclust
from fedclust.commands import tune
from fedclust.helpers.errors import SweepError, UserError
from fedclust.launch import command
from fedclust.tuning import batches

BASE = ("threads=1", "partition.num_clients=4", "model=linear", "solver.epochs=1", "progress=false")
REFUSED = {
    "a fraction that a number replaces": (
        ("algorithm=fedavg", "participation=0.5", "clients_per_round=3"),
        "participation=0.5 is not allowed: clients_per_round=3 is set",
    ),
    "a key that the method does not read": (
        ("algorithm=fedavg", "num_clusters=7"),
        "num_clusters=7 is not allowed: fedavg would not read it",
    ),
    "a value out of range": (("algorithm=fedavg", "rounds=0"), "rounds=0 is not allowed"),
    "a scale without an experiment": (
        ("algorithm=fedavg", "scale=laptop"),
        "scale=laptop is not allowed: only an experiment",
    ),
    "what is no KEY=VALUE": (("algorithm=fedavg", "rounds"), "'rounds' is not allowed"),
    "a choice that is no name": (("algorithm=[fedavg,ifca]",), "is not allowed"),
    "what Hydra may not do": (
        ("algorithm=fedavg", "name=../x"),
        "name=../x is not allowed",
    ),
}


def _run(typed: tuple[str, ...]) -> None:
    command.launch([*BASE, *typed])


def _sweep(typed: tuple[str, ...]) -> None:
    command.launch([*BASE, *typed, "seeds=1,2"], multirun=True)


def _tune(typed: tuple[str, ...]) -> None:
    tune.command([*BASE, *typed, "solver.lr=0.1,0.2", "tuning_seeds=[7]", "trials=1"])


def _python(typed: tuple[str, ...]) -> None:
    fedclust.run(*BASE, *typed)


@pytest.mark.thinned
@pytest.mark.parametrize("way", [_run, _sweep, _tune, _python])
@pytest.mark.parametrize("what", REFUSED)
def test_every_way_refuses_what_a_run_refuses(
    way: Callable[[tuple[str, ...]], None],
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed, said = REFUSED[what]
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UserError, SweepError)) as refused:
        way(typed)
    assert said in str(refused.value)
    assert not list(tmp_path.rglob("rounds.csv"))


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
    monkeypatch.setattr(batches.Batches, "run", stop)
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

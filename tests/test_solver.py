"""Solver settings: ranges, one-line errors that name the key, and the shipped files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from refusals import refused

from fedclust.core.calls import Shards
from fedclust.core.solver import Solver as Base
from fedclust.engines.schedule import schedule
from fedclust.helpers.errors import ConfigError
from fedclust.solver import Solver

CONF = sorted((Path(__file__).parents[1] / "conf" / "solver").glob("*.yaml"))


def test_steps_by_hand() -> None:
    """Clients with 0, 1, 10 and 25 examples; the last short batch counts."""
    count = torch.tensor([0, 1, 10, 25])
    epochs = Solver(lr=0.1, batch_size=10, epochs=3)
    assert epochs.all_steps(count).tolist() == [0, 3, 3, 9]
    whole = Solver(lr=0.1, batch_size=None, epochs=2)
    assert whole.all_steps(count).tolist() == [0, 2, 2, 2]
    steps = Solver(lr=0.1, batch_size=10, epochs=None, steps=7)
    assert steps.all_steps(count).tolist() == [0, 7, 7, 7]


def test_rate_decays_per_round() -> None:
    solver = Solver(lr=0.5, decay=0.9)
    assert [solver.rate(t) for t in (0, 1, 3)] == pytest.approx([0.5, 0.45, 0.5 * 0.729])


@pytest.mark.parametrize("path", CONF, ids=lambda path: path.stem)
def test_shipped_files_show_every_field(path: Path) -> None:
    config = OmegaConf.load(path)
    for parent in config.pop("defaults", ()):
        config = OmegaConf.merge(OmegaConf.load(path.with_stem(parent)), config)
    solver = hydra.utils.instantiate(config)
    fields = {field.name for field in dataclasses.fields(solver)}
    assert {str(key) for key in config} == fields | {"_target_"}
    assert isinstance(solver, Base)
    assert path.read_text().startswith("# ")


def test_what_the_shipped_files_are_for() -> None:
    sgd, momentum, proximal = (
        hydra.utils.instantiate(OmegaConf.load(CONF[0].parent / f"{name}.yaml"))
        for name in ("sgd", "momentum", "proximal")
    )
    assert (sgd.momentum, sgd.proximal) == (0, 0)
    assert momentum.momentum == 0.9
    assert proximal.proximal == 1.0


@pytest.mark.parametrize(
    ("how", "rates"),
    [
        ({"schedule": "constant"}, [1, 1, 1, 1, 1]),
        ({"decay": 0.5}, [1, 0.5, 0.25, 0.125, 0.0625]),
        ({"schedule": "step", "decay": 0.1, "every": 2}, [1, 1, 0.1, 0.1, 0.01]),
        ({"schedule": "cosine", "length": 4}, [1, 0.853553, 0.5, 0.146447, 0]),
        ({"schedule": "cosine", "length": 2, "floor": 0.2}, [1, 0.6, 0.2, 0.2, 0.2]),
        ({"warmup": 4}, [0.25, 0.5, 0.75, 1, 1]),
        ({"warmup": 2, "decay": 0.5}, [0.5, 0.5, 0.25, 0.125, 0.0625]),
    ],
)
def test_schedules_by_hand(how: dict[str, Any], rates: list[float]) -> None:
    by_round, by_step = (Solver(lr=2.0, schedule_by=by, **how) for by in ("round", "step"))
    assert [by_round.rate(t) for t in range(5)] == pytest.approx([2 * r for r in rates], abs=1e-5)
    assert [by_round.step_rate(3.0, s) for s in range(5)] == [3.0] * 5
    assert [by_step.rate(t) for t in range(5)] == [2.0] * 5
    steps = [by_step.step_rate(3.0, s) for s in range(5)]
    assert steps == pytest.approx([3 * r for r in rates], abs=1e-5)


@pytest.mark.parametrize(
    ("key", "how"),
    [
        *(("lr", {"lr": value}) for value in (0.0, float("nan"), float("inf"))),
        *(("decay", {"decay": value}) for value in (0.0, 1.1)),
        *((key, {key: 0}) for key in ("batch_size", "epochs")),
        ("epochs", {"epochs": None}),
        ("epochs", {"steps": 3}),
        ("steps", {"epochs": None, "steps": 0}),
        *(("momentum", {"momentum": value}) for value in (1.0, -0.1)),
        *((key, {key: -1.0}) for key in ("proximal", "weight_decay")),
        ("decay", {"schedule": "constant", "decay": 0.9}),
        ("decay", {"schedule": "cosine", "length": 3, "decay": 0.9}),
        ("every", {"schedule": "step"}),
        ("every", {"every": 3}),
        ("length", {"schedule": "cosine"}),
        ("floor", {"floor": 0.1}),
        ("floor", {"schedule": "cosine", "length": 3, "floor": 2.0}),
        ("clip_norm", {"clip_norm": 0.0}),
        ("nesterov", {"nesterov": True}),
        ("dampening", {"dampening": 0.1}),
        ("dampening", {"momentum": 0.9, "nesterov": True, "dampening": 0.1}),
    ],
)
def test_a_value_out_of_range_or_that_does_not_fit_is_one_line(
    key: str, how: dict[str, Any]
) -> None:
    with refused(ConfigError, rf"solver\.{key}"):
        Solver(**{"lr": 0.1, **how})


@pytest.mark.parametrize(
    ("key", "how"),
    [
        ("warmup", {"warmup": 11}),
        ("every", {"schedule": "step", "every": 10}),
        ("length", {"schedule": "cosine", "length": 11}),
        ("length", {"schedule": "cosine", "length": 9}),
    ],
)
def test_a_schedule_past_the_last_round_is_one_line(key: str, how: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"solver\.{key}=\d+ is not allowed: .*10"):
        Solver(lr=0.1, **how).check_rounds(10)
    Solver(lr=0.1, **how, schedule_by="step").check_rounds(10)
    Solver(lr=0.1, schedule="cosine", length=10).check_rounds(10)


def test_parts_of_a_pass_are_rounded_up_to_batches() -> None:
    """Clients with 0, 1, 10, 25 and 100 examples in batches of 10."""
    count = torch.tensor([0, 1, 10, 25, 100])
    assert Solver(lr=0.1, epochs=0.5).all_steps(count).tolist() == [0, 1, 1, 2, 5]
    assert Solver(lr=0.1, epochs=0.7).all_steps(count).tolist() == [0, 1, 1, 3, 7]
    assert Solver(lr=0.1, epochs=2.5).all_steps(count).tolist() == [0, 3, 3, 8, 25]
    whole = Solver(lr=0.1, epochs=1.5, batch_size=None)
    assert whole.all_steps(count).tolist() == [0, 2, 2, 2, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 10, "epochs": 2},
        {"batch_size": 10, "epochs": 1.5},
        {"batch_size": 10, "epochs": 2, "drop_last": True},
        {"batch_size": 10, "steps": 7, "epochs": None},
        {"batch_size": None, "epochs": 3},
        {"batch_size": None, "steps": 4, "epochs": None},
    ],
    ids=str,
)
def test_examples_are_those_of_all_batches(options: dict[str, Any]) -> None:
    count = torch.tensor([0, 1, 9, 10, 11, 25, 40])
    work = torch.tensor([1.0, 1.0, 0.5, 0.2, 0.7, 0.9, 0.1])
    solver = Solver(lr=0.1, **options)
    index = torch.zeros(len(count), 40, dtype=torch.int32)
    for part in (None, work):
        shards = Shards(index=index, count=count, key=count, work=part)
        sizes = schedule(shards, solver).size
        assert solver.examples(count, part).tolist() == sizes.sum(1).tolist()

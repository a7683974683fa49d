"""Solver settings: ranges, one-line errors that name the key, and the shipped files."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import hydra
import pytest
import torch
from omegaconf import OmegaConf

from fedclust.core.solver import Solver as Base
from fedclust.helpers.errors import ConfigError
from fedclust.solver import Solver

CONF = sorted((Path(__file__).parents[1] / "conf" / "solver").glob("*.yaml"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lr", 0.0),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("decay", 0.0),
        ("decay", 1.1),
        ("batch_size", 0),
        ("epochs", 0),
        ("epochs", None),
        ("steps", 3),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("proximal", -1.0),
        ("weight_decay", -1.0),
    ],
)
def test_a_value_out_of_range_is_one_line_that_names_the_key(key: str, value: float | None) -> None:
    settings = {"lr": 0.1, key: value}
    with pytest.raises(
        ConfigError, match=rf"solver\.{'epochs' if key == 'steps' else key}"
    ) as error:
        Solver(**settings)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_steps_by_hand() -> None:
    """Clients with 0, 1, 10 and 25 examples; the last short batch counts."""
    count = torch.tensor([0, 1, 10, 25])
    epochs = Solver(lr=0.1, batch_size=10, epochs=3)
    assert epochs.all_steps(count).tolist() == [0, 3, 3, 9]
    whole = Solver(lr=0.1, batch_size=None, epochs=2)
    assert whole.all_steps(count).tolist() == [0, 2, 2, 2]
    steps = Solver(lr=0.1, batch_size=10, epochs=None, steps=7)
    assert steps.all_steps(count).tolist() == [0, 7, 7, 7]


def test_steps_instead_of_epochs() -> None:
    with pytest.raises(ConfigError, match=r"solver\.steps"):
        Solver(lr=0.1, epochs=None, steps=0)
    assert Solver(lr=0.1, epochs=None, steps=2).steps == 2


def test_rate_decays_per_round() -> None:
    solver = Solver(lr=0.5, decay=0.9)
    assert [solver.rate(t) for t in (0, 1, 3)] == pytest.approx([0.5, 0.45, 0.5 * 0.729])


@pytest.mark.parametrize("path", CONF, ids=lambda path: path.stem)
def test_shipped_files_show_every_field(path: Path) -> None:
    config = OmegaConf.load(path)
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

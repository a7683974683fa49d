"""The methods of an experiment are told apart by colour where there are colours enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fedclust.config.tree import CONF
from fedclust.report.style import DASHES, PALETTE, look


def methods_of(experiment: Path) -> list[str]:
    given = OmegaConf.select(OmegaConf.load(experiment), "hydra.sweeper.params.algorithm")
    return str(given).split(",") if given else []


EXPERIMENTS = {
    str(file.relative_to(CONF / "experiment").with_suffix("")): methods_of(file)
    for file in sorted((CONF / "experiment").rglob("*.yaml"))
}
FEW = {name: found for name, found in EXPERIMENTS.items() if 1 < len(found) <= len(PALETTE)}


@pytest.mark.parametrize("name", FEW)
def test_few_methods_have_a_colour_each(name: str) -> None:
    colours = {look(method)["color"] for method in FEW[name]}
    assert len(colours) == len(FEW[name])


def test_every_shipped_method_has_its_own_line() -> None:
    shipped = sorted(file.stem for file in (CONF / "algorithm").glob("*.yaml"))
    lines = {(look(m)["color"], str(look(m)["linestyle"]), look(m)["marker"]) for m in shipped}
    assert len(lines) == len(shipped)
    assert len(shipped) > len(PALETTE) * len(DASHES)

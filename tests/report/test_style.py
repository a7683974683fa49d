"""The methods of an experiment are told apart by colour where there are colours enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import plain

from fedclust.config.read import read_config
from fedclust.config.tree import CONF
from fedclust.papers.reports import contents
from fedclust.report import curves, style
from fedclust.report.style import DASHES, PALETTE, look


def methods_of(experiment: Path) -> list[str]:
    hydra = read_config(experiment).get("hydra", {})
    given = hydra.get("sweeper", {}).get("params", {}).get("algorithm")
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
    owners: dict[tuple[str, str, str], list[str]] = {}
    for one in shipped:
        shown = look(one)
        line = str(shown["color"]), str(shown["linestyle"]), str(shown["marker"])
        owners.setdefault(line, []).append(one)
    assert [names for names in owners.values() if len(names) > 1] == []
    assert len(shipped) > len(PALETTE) * len(DASHES)


@pytest.mark.parametrize("name", ["mine", "sticky", "a", "my_method", "fedmine"])
def test_a_method_of_ones_own_has_a_colour_that_no_other_in_the_figure_has(
    tmp_path: Path, name: str
) -> None:
    names = ("lcfl", "ifca", "flexcfl", "fesem", "cfl_mgd", "oracle", "fedavg", name)
    for one in names:
        plain(tmp_path / one, [[0.5], [0.6]])
    colours = {one: look["color"] for one, look in style.looks(contents(tmp_path).arms).items()}
    assert colours[name] not in {colours[other] for other in names if other != name}


def test_a_setting_without_a_curve_has_no_panel(tmp_path: Path) -> None:
    for case, metric in (("one", "accuracy"), ("two", "train_loss")):
        for name in ("lcfl", "ifca"):
            plain(tmp_path / f"{case} {name}", {metric: [[0.5], [0.6]]}, name, case=case)
    figure = curves.draw(contents(tmp_path).arms, ["accuracy"], "round")
    assert [axes.get_title() for axes in figure.axes] == ["one"]


def test_a_curve_below_another_shows_on_both_sides(tmp_path: Path) -> None:
    """ifca is lcfl in three of four rounds, local never; nothing hides the last one, fedavg."""
    high = [0.8, 0.9, 0.95, 0.96]
    made = {"lcfl": high, "ifca": [0.5, *high[1:]], "local": [0.7, 0.75, 0.8, 0.82], "fedavg": high}
    for name, values in made.items():
        plain(tmp_path / name, [[value] for value in values])
    figure = curves.draw(contents(tmp_path).arms, ["accuracy"], "round")
    (axes,) = figure.axes
    width = {line.get_label(): line.get_linewidth() for line in axes.get_lines()}
    names = list(width)
    alike = [name for name in names if name != "local"]
    assert width["local"] == width[alike[-1]]
    assert width[alike[0]] > width[alike[1]] > width["local"] + 1

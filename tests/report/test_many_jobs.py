"""A report on many jobs grows with them, not with their square, and says what it leaves out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from many_jobs import many_jobs

from fedclust.papers.reports import contents
from fedclust.report import panels
from fedclust.report.arms import Arm
from fedclust.report.figures import draw


@pytest.mark.full
def test_a_figure_of_many_arms_has_a_line_of_all_others_per_panel(tmp_path: Path) -> None:
    arms = contents(many_jobs(tmp_path / "demo", 20)).arms
    figure = panels.multiples(arms, "accuracy", "round")
    assert [len(axes.lines) for axes in figure.axes] == [2] * len(arms)
    behind = figure.axes[0].lines[0]
    assert len(behind.get_xdata()) == len(arms) * 7  # six rounds and a gap


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
def test_panels_are_capped_and_the_caption_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "MOST_PANELS", 10)
    report = contents(many_jobs(tmp_path / "demo", 12))
    figure = panels.multiples(report.arms, "accuracy", "round")
    assert len([axes for axes in figure.axes if axes.lines]) == 10
    captions = {one.name: one.caption for one in draw(tmp_path, report.spec, report.arms)}
    assert captions["accuracy"].endswith(" The first 10 of 12 arms only.")


@pytest.mark.full
def test_work_grows_with_the_number_of_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many arms are asked twice as often whether printed numbers may stand beside them."""
    ask, asked = Arm.comparable.fget, Counter[int]()
    assert ask is not None
    number = 0

    def counted(arm: Arm) -> bool:
        asked[number] += 1
        return bool(ask(arm))

    monkeypatch.setattr(Arm, "comparable", property(counted))
    for number in (8, 16):
        contents(many_jobs(tmp_path / str(number), number))
    assert 0 < asked[16] <= 2 * asked[8]

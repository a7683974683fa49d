"""Figures as files: laid out once, they are what Matplotlib writes; and the names in them."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from fedclust.report import flow, heatmaps, scores, style
from fedclust.report.arms import Arm
from fedclust.report.federations import called
from fedclust.report.figures import save
from fedclust.report.runs import Run


def _figure() -> Figure:
    figure = Figure(figsize=(4, 3))
    left, right = figure.subplots(1, 2)
    left.plot([0.0, 1.0, 2.0], [0.1, 0.4, 0.2], label="lcfl, λ = 0.5 — größer")
    left.set_ylabel("a long label of the axis")
    right.imshow([[0, 1], [2, 3]])
    right.set_title("clients × clusters")
    left.legend()
    return figure


@pytest.mark.full
def test_the_picture_is_as_matplotlib_draws_it(tmp_path: Path) -> None:
    plain = io.BytesIO()
    with mpl.rc_context(style.RC):
        _figure().savefig(plain, format="png", metadata={"Software": None})
        picture = save(tmp_path, "one", "", _figure())
    assert picture.png == plain.getvalue() == (tmp_path / "one.png").read_bytes()


@pytest.mark.full
def test_both_files_have_the_same_layout(tmp_path: Path) -> None:
    with mpl.rc_context(style.RC):
        figure, drawn = _figure(), _figure()
        save(tmp_path, "one", "", figure)
        drawn.savefig(io.BytesIO(), format="png")
    for axes, other in zip(figure.axes, drawn.axes, strict=True):
        assert axes.get_position().bounds == other.get_position().bounds


def test_groups_and_classes_have_the_names_that_the_data_give_them(tmp_path: Path) -> None:
    arm = Arm(Run(tmp_path, {}, {}, {}), "a", "")
    names = {"groups": ["commuters", "a name that is much too long"], "classes": ["no", "yes"]}
    arm.run.__dict__["federation"] = {"seeds": {"0": {"names": names}}}
    figure = Figure()
    axes = figure.subplots()
    heatmaps._mark_groups(axes, np.array([0, 0, 1, 2]), np.zeros(4, int), called(arm, "groups"))
    shown = ["commuters", "a name that is mu…", "group 2"]
    assert [label.get_text() for label in axes.get_yticklabels()] == shown
    flow._name_groups(figure, np.array([0, 1, 2]), called(arm, "groups"))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == shown
    scores._name_classes(axes, called(arm, "classes"), 2)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["no", "yes"]


def test_the_rows_of_many_clusters_are_named_where_there_is_room() -> None:
    for rows, named, numbers in ((15, 15, 30), (16, 8, 0)):
        axes = Figure().subplots()
        table = np.ones((rows, 2), dtype=np.int64)
        heatmaps._contingency(axes, table, np.arange(rows), np.arange(2))
        assert (len(axes.get_yticklabels()), len(axes.texts)) == (named, numbers)


def test_a_roc_curve_begins_in_the_corner() -> None:
    """Where a fifth is right at a false positive rate of 0, the curve rises to it from 0."""
    axes = Figure().subplots()
    scores._roc(axes, np.linspace(0.2, 1.0, 101))
    line = np.asarray(axes.lines[1].get_xydata())
    assert line[:2].tolist() == [[0, 0], [0, 0.2]]
    assert line[-1].tolist() == [1, 1]

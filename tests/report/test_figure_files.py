"""Figures as files: laid out once, they are what Matplotlib writes."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from fedclust.report import style
from fedclust.report.figures import save


def _figure() -> Figure:
    figure = Figure(figsize=(4, 3))
    left, right = figure.subplots(1, 2)
    left.plot([0.0, 1.0, 2.0], [0.1, 0.4, 0.2], label="lcfl, λ = 0.5 — größer")
    left.set_ylabel("a long label of the axis")
    right.imshow([[0, 1], [2, 3]])
    right.set_title("clients × clusters")
    left.legend()
    return figure


def test_the_picture_is_as_matplotlib_draws_it(tmp_path: Path) -> None:
    plain = io.BytesIO()
    with mpl.rc_context(style.RC):
        _figure().savefig(plain, format="png", metadata={"Software": None})
        picture = save(tmp_path, "one", "", _figure())
    assert picture.png == plain.getvalue() == (tmp_path / "one.png").read_bytes()


def test_both_files_have_the_same_layout(tmp_path: Path) -> None:
    with mpl.rc_context(style.RC):
        figure, drawn = _figure(), _figure()
        save(tmp_path, "one", "", figure)
        drawn.savefig(io.BytesIO(), format="png")
    for axes, other in zip(figure.axes, drawn.axes, strict=True):
        assert axes.get_position().bounds == other.get_position().bounds

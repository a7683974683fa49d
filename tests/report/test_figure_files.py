"""Figures as files: laid out once and with small fonts, they are what Matplotlib writes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from fontTools.ttLib import TTFont
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont

from fedclust.report import fonts, style
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


def _embedded(cut: Any, file: Any, glyphs: set[int]) -> tuple[bytes, dict[int, int]]:
    with cut(file, glyphs) as found:
        data = fonts.backend.font_as_file(found.font).getvalue()
        return data, {glyph: found.glyph_index_map[glyph] for glyph in glyphs}


@pytest.mark.skipif(not hasattr(fonts.backend, "SubsetResults"), reason="an older Matplotlib")
def test_glyphs_cut_out_of_a_copy_are_those_of_the_whole_font() -> None:
    file = findfont("DejaVu Sans")
    face = fonts.FT2Font(file)
    for text in ("accuracy 0.5 × −1", "größer λ → Ünü"):  # the second makes the copy grow
        glyphs = {face.get_char_index(ord(character)) for character in text}
        with fonts.small_fonts():
            assert fonts.backend.get_glyphs_subset is fonts._cut
            small = _embedded(fonts._cut, file, glyphs)
            whole = _embedded(fonts._of_a_whole_font, file, glyphs)
        assert small == whole
        assert len(TTFont(io.BytesIO(small[0])).getGlyphOrder()) < 40
    assert fonts.backend.get_glyphs_subset is fonts._of_a_whole_font

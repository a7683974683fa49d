"""The fonts in PDFs: the few glyphs of a figure, cut out of a small copy that is made once."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fontTools import subset
from matplotlib.backends import _backend_pdf_ps
from matplotlib.ft2font import FT2Font

backend: Any = _backend_pdf_ps

_LAYOUT = ("GDEF", "GPOS", "GSUB", "MATH")  # tables of a font
_USUAL = (*range(0x20, 0x7F), *map(ord, "±×–…−ﬀﬁﬂﬃﬄ"))
_of_a_whole_font = backend.get_glyphs_subset
_copies: dict[str, tuple[bytes, dict[int, int]]] = {}  # by file: a font, its glyphs by their number


@contextmanager
def small_fonts() -> Iterator[None]:
    """PDFs embed fonts without tables of layout, and cut them out of small copies.

    Cutting thirty glyphs out of six thousand takes longer than all the rest of a PDF, and no viewer
    reads those tables: which glyph stands where is said in the file. Where a version of fontTools
    or Matplotlib does this otherwise, fonts are embedded its way.
    """
    options: Any = subset.Options
    dropped = getattr(options, "_drop_tables_default", [])
    options._drop_tables_default = [*dropped, *_LAYOUT]
    if hasattr(backend, "SubsetResults"):  # glyphs by number, since Matplotlib 3.11
        backend.get_glyphs_subset = _cut
    try:
        yield
    finally:
        options._drop_tables_default = dropped
        backend.get_glyphs_subset = _of_a_whole_font


@contextmanager
def _cut(file: Any, glyphs: Iterable[int]) -> Iterator[Any]:
    """Matplotlib's `get_glyphs_subset`, with the same result.

    Args:
        file: of the font.
        glyphs: their numbers in it.
    """
    wanted = set(glyphs)
    data, places = _copy(file, wanted)
    options = subset.Options(glyph_names=True, recommended_glyphs=True)
    font = subset.load_font(io.BytesIO(data), options)
    with font:
        subsetter = subset.Subsetter(options=options)
        subsetter.populate(gids={places[glyph] for glyph in wanted})
        subsetter.subset(font)
        found = {glyph: subsetter.glyph_index_map[places[glyph]] for glyph in wanted}
        yield backend.SubsetResults(font, found)


def _copy(file: Any, wanted: set[int]) -> tuple[bytes, dict[int, int]]:
    """A font with the usual glyphs and those wanted, and where each is in it."""
    name = f"{file} {file.face_index}"
    data, places = _copies.get(name, (b"", {}))
    if not wanted <= places.keys():
        face = FT2Font(file)
        usual = {face.get_char_index(code) for code in _USUAL}
        with _of_a_whole_font(file, usual | places.keys() | wanted) as small:
            data, places = backend.font_as_file(small.font).getvalue(), dict(small.glyph_index_map)
        _copies[name] = data, places
    return data, places

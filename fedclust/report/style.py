"""One look for every figure: legible in black and white, and to colour-blind readers."""

from __future__ import annotations

import io
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.figure import Figure

from fedclust.config.about import about
from fedclust.report.arms import Arm

# Okabe and Ito (2008) without the yellow, which vanishes on white; luminance differs between
# neighbours
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444", "#8C564B")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.6)),
    (0, (1, 1.2)),
    (0, (6, 1.4, 1, 1.4)),
    (0, (3, 1.2, 1, 1.2, 1, 1.2)),
)
_MORE_DASHES = (0, (9, 2.5))  # of the sixth methods of a colour
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo", "||||", "****")
HEAT = "cividis"
INK = "#222222"
PAPER = "#FFFFFF"
MUTED = "#6B7280"

_FONT = "DejaVu Sans"  # comes with Matplotlib
# that have what it lacks, by what systems usually have
_OTHER_FONTS = (
    *(f"{name} {land}" for name in ("Noto Sans CJK", "Source Han Sans") for land in ("SC", "JP")),
    *("Noto Sans CJK TC", "Noto Sans CJK KR", "Source Han Sans KR", "Noto Sans SC", "Noto Sans JP"),
    *("WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "PingFang SC"),
    *("Hiragino Sans", "Hiragino Sans GB", "Apple SD Gothic Neo", "Microsoft YaHei", "SimHei"),
    *("IPAexGothic", "IPAGothic", "TakaoGothic", "Yu Gothic", "NanumGothic", "Malgun Gothic"),
    *("Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Thai", "Arial Unicode MS", "Unifont"),
)

RC: dict[str, Any] = {
    "font.family": _FONT,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9CA3AF",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E7EB",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.5,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # embedded as text, as journals ask
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a name with two dollars is no formula
}


@contextmanager
def looked() -> Iterator[None]:
    """While the block runs, figures look as here; of a user's settings only fonts are taken."""
    families = list(_fonts(*mpl.rcParams["font.family"], *mpl.rcParams["font.sans-serif"]))
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(cast(Any, {**RC, "font.family": families}))
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a report says it once
        yield


@cache
def _fonts(*users: str) -> tuple[str, ...]:
    """Ours, then those of the user's and of `_OTHER_FONTS` that are installed."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    more = (name for name in (*users, *_OTHER_FONTS) if name in installed)
    return tuple(dict.fromkeys((_FONT, *more)))


@cache
def can_write(text: str) -> bool:
    """Whether some font of ours, or an installed one that figures use, has every letter."""
    left = {ord(letter) for letter in text if letter.isprintable() and not letter.isspace()}
    for family in _fonts(*mpl.rcParams["font.family"], *mpl.rcParams["font.sans-serif"]):
        if not left:
            break
        font = font_manager.get_font(font_manager.findfont(family))
        left = {letter for letter in left if not font.get_char_index(letter)}
    return not left


class Drawing(Figure):
    """A figure that a notebook shows, whether or not it has imported pyplot."""

    def _repr_png_(self) -> bytes:
        """The picture."""
        png = io.BytesIO()
        with looked():
            self.savefig(png, format="png")
        return png.getvalue()


def line(position: int, variant: int = 0) -> dict[str, Any]:
    """The look of a place in the palette, or a `variant` of its colour; the first 48 differ."""
    turn = position // len(PALETTE) + variant
    among = (position % len(PALETTE) - turn) % len(DASHES)
    return {
        "color": PALETTE[position % len(PALETTE)],
        "linestyle": DASHES[among] if turn % 6 < 5 else _MORE_DASHES,
        "marker": MARKERS[(position + turn) % len(MARKERS)],
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.6,
    }


def looks(arms: Sequence[Arm]) -> dict[str, dict[str, Any]]:
    """The look of every name: one colour per method; of a single method one per variant."""
    variants: dict[str, dict[str, None]] = {}
    for arm in arms:
        variants.setdefault(arm.algorithm, {})[arm.name] = None
    alone = len(variants) == 1
    places = _places(list(variants))
    return {
        name: line(places[algorithm] + i) if alone else line(places[algorithm], i)
        for algorithm, names in variants.items()
        for i, name in enumerate(names)
    }


def look(algorithm: str) -> dict[str, Any]:
    """The look of a method without options, as in every report."""
    return line(_place(algorithm))


def _places(algorithms: Sequence[str]) -> dict[str, int]:
    """The place of every method of a figure; a user's own gets a free colour if there is one."""
    places = {name: _place(name) for name in algorithms if "look" in about(name)}
    for name in algorithms:
        if name not in places:
            taken = {place % len(PALETTE) for place in places.values()}
            turns = (_place(name) + turn for turn in range(len(PALETTE)))
            free = (place for place in turns if place % len(PALETTE) not in taken)
            places[name] = next(free, _place(name))
    return places


def _place(algorithm: str) -> int:
    """The place of a method in the palette: what its file says, else by its name."""
    if "look" not in about(algorithm):
        return zlib.crc32(algorithm.encode()) % 40
    colour, turn = about(algorithm)["look"]
    return int(colour) + len(PALETTE) * int(turn)


def group_colour(group: int) -> str:
    """The colour of a true group; grey for a client without one."""
    return PALETTE[group % len(PALETTE)] if group >= 0 else "#BBBBBB"


def of_group(group: int) -> dict[str, Any]:
    """The look of a true group's area, with a hatch so that neighbours differ without colour."""
    hatch = HATCHES[group % len(HATCHES)] if group >= 0 else ""
    return {"facecolor": group_colour(group), "hatch": hatch, "edgecolor": PAPER}

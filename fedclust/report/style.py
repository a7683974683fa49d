"""One look for every figure: legible in black and white, and to colour-blind readers."""

from __future__ import annotations

from typing import Any

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
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo", "||||", "****")
HEAT = "cividis"
INK = "#222222"
PAPER = "#FFFFFF"
MUTED = "#6B7280"

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
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


def line(position: int) -> dict[str, Any]:
    """Colour, dashes and marker of the arm at `position`; no two of the first forty are alike."""
    return {
        "color": PALETTE[position % len(PALETTE)],
        "linestyle": DASHES[(position + position // len(PALETTE)) % len(DASHES)],
        "marker": MARKERS[position % len(MARKERS)],
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.6,
    }


def group_colour(group: int) -> str:
    """The colour of a true group; grey for a client without one."""
    return PALETTE[group % len(PALETTE)] if group >= 0 else "#BBBBBB"


def group_hatch(group: int) -> str:
    """The hatch of a true group, so that neighbours differ without colour."""
    return HATCHES[group % len(HATCHES)] if group >= 0 else ""

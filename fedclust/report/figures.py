"""All figures of a report, as files and as pictures for the page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
from matplotlib.figure import Figure

from fedclust.files import atomic_write
from fedclust.report import curves, flow, heatmaps, style
from fedclust.report.arms import Arm
from fedclust.report.spec import Spec
from fedclust.report.wording import in_percent, title

_MOST_FLOWS = 8
_BAND = "Lines: mean over seeds; bands: ± 1 standard deviation."
_FLOW = (
    "which clients are in which cluster, over iterations. Bars: clusters; bands: clients, in the colour of "
    "their true group. Below: share of clients that changed cluster, mean over seeds."
)


@dataclass(frozen=True)
class Picture:
    """One figure as the page shows it.

    Attributes:
        name: file name without ending.
        caption: what it shows.
        png: the picture.
    """

    name: str
    caption: str
    png: bytes


def draw(folder: Path, spec: Spec, arms: Sequence[Arm], scaled: bool) -> list[Picture]:
    """The figures that the data allow, written to `folder` as PNG and PDF."""
    pictures = []
    with mpl.rc_context(cast(Any, style.RC)):
        for name, caption, figure in _figures(spec, arms, scaled):
            png, pdf = io.BytesIO(), io.BytesIO()
            figure.savefig(png, format="png", metadata={"Software": None})
            figure.set_layout_engine("none")  # keep the layout just found, which costs a drawing
            # without a date the same data give the same file
            figure.savefig(
                pdf, format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None}
            )
            atomic_write(folder / f"{name}.png", png.getvalue())
            atomic_write(folder / f"{name}.pdf", pdf.getvalue())
            pictures.append(Picture(name, caption, png.getvalue()))
    return pictures


def _figures(spec: Spec, arms: Sequence[Arm], scaled: bool) -> Iterator[tuple[str, str, Figure]]:
    candidates = [*_lines(spec, arms, scaled), *_matrices(arms)]
    yield from ((file, caption, figure) for file, caption, figure in candidates if figure is not None)
    flows = ((arm, figure) for arm in arms if (figure := flow.flow(arm)) is not None)
    for (arm, figure), _ in zip(flows, range(_MOST_FLOWS), strict=False):
        file = re.sub(r"[^A-Za-z0-9.=-]+", "_", arm.label)
        yield f"flow_{file}", f"{arm.label}: {_FLOW}", figure


def _lines(spec: Spec, arms: Sequence[Arm], scaled: bool) -> list[tuple[str, str, Figure | None]]:
    name, metric = title(spec.metric), spec.metric
    label = f"{name.lower()} (%)" if in_percent(metric) else name.lower()
    printed = spec if spec.published and spec.iterations and not scaled and in_percent(metric) else None
    hollow = " Hollow marks: published." if printed else ""
    return [
        (
            metric,
            f"{name} over iterations. {_BAND}{hollow}",
            curves.over_rounds(arms, metric, label, printed),
        ),
        (
            "train_loss",
            f"Training loss of the cohort over iterations. {_BAND}",
            curves.over_rounds(arms, "train_loss", "training loss, nats per example"),
        ),
        (
            "purity",
            f"Purity of the clusters over iterations; 1 means that no cluster mixes groups. {_BAND}",
            curves.over_rounds(arms, "purity", "purity"),
        ),
        (
            f"{metric}_bytes",
            f"{name} against the bytes sent in both directions. {_BAND}",
            curves.over_bytes(arms, metric, label),
        ),
    ]


def _matrices(arms: Sequence[Arm]) -> list[tuple[str, str, Figure | None]]:
    return [
        (
            "contingency",
            "Clients per cluster and true group at the end of the first seed; shade: share of the group.",
            heatmaps.contingencies(arms),
        ),
        (
            "distance",
            "Distance of any two clients as the clustering saw it, first seed; by group, then cluster.",
            heatmaps.distances(arms),
        ),
    ]

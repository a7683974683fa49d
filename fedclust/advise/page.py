"""The report of an advice: verdict on top, tables, and the figure of who is with whom."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedclust.advise.evidence import tree
from fedclust.advise.tables import (
    choices_table,
    differences_table,
    relations_table,
    sites_table,
)
from fedclust.advise.verdict import FILE, TRAINED
from fedclust.advise.words import Advice, sentences
from fedclust.helpers.errors import counted
from fedclust.helpers.files import atomic_write
from fedclust.report import style
from fedclust.report.axes import bare, colour_bar
from fedclust.report.figures import save
from fedclust.report.page import Page, render

_MOST_NAMES = 60  # that can be read along an axis
_CAPTION = (
    "How often two clients are in one group, of all repetitions, in the order of the dendrogram"
)


def write_page(advice: Advice, folder: Path) -> Path:
    """Write `index.html`, `verdict.json`, a CSV per table and the figure; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = sentences(advice)
    tables = [choices_table(advice), sites_table(advice)]
    if advice.differences:
        tables.append(differences_table(advice))
    if advice.relations:
        tables.append(relations_table(advice))
    for table in tables:
        atomic_write(folder / f"{table.name}.csv", table.csv())
    with style.looked():
        pictures = [save(folder, "together", _CAPTION, together_figure(advice))]
    one = advice.repetitions
    content = {
        "sentences": lines,
        "remarks": list(advice.remarks),
        "verdict": asdict(advice.verdict),
        "evidence": asdict(advice.evidence),
        "groups": dict(zip(advice.names, advice.groups.tolist(), strict=True)),
        "metric": one.metric,
        "margin": advice.margin,
        "redrawn": one.redrawn,
        "rows": one.rows,
        "scores": {choice: values.tolist() for choice, values in one.scores.items()},
        "labels": one.labels.tolist(),
        TRAINED: advice.trained.relative_to(folder.parent).as_posix(),
    }
    atomic_write(folder / FILE, json.dumps(_finite(content), indent=1, allow_nan=False) + "\n")
    about = (
        f"{counted(len(advice.names), 'client')}, {one.rows:,} rows, {len(one.seeds)} repetitions"
    )
    page = Page(
        "What these clients should train", about, advice.remarks, tables, pictures, findings=lines
    )
    atomic_write(folder / "index.html", render(page))
    return folder / "index.html"


def together_figure(advice: Advice) -> Figure:
    """The heat map of clients by name that are in one group, beside the dendrogram of them."""
    from scipy.cluster.hierarchy import dendrogram

    number = len(advice.names)
    size = min(9.0, 2.4 + 0.22 * number)
    figure = style.Drawing(figsize=(size + 1.6, size))
    left, right = figure.subplots(1, 2, width_ratios=(1, 4))
    links = tree(advice.together)
    with warnings.catch_warnings(action="ignore"):  # of a tree without height
        drawn = dendrogram(
            links,
            ax=left,
            orientation="left",
            no_labels=True,
            color_threshold=0.5,
            above_threshold_color=style.MUTED,
        )
    order = np.array(drawn["leaves"])
    bare(left)
    left.set_xticks([])
    left.invert_yaxis()
    shown = advice.together[np.ix_(order, order)]
    image = right.imshow(shown, cmap=style.HEAT, vmin=0, vmax=1, aspect="auto")
    bare(right, framed=True)
    places = range(number) if number <= _MOST_NAMES else []
    names = [str(advice.names[place]) for place in order]
    right.set_yticks(list(places), [names[place] for place in places])
    right.set_xticks(list(places), [names[place] for place in places], rotation=90)
    colour_bar(figure, image, "share of repetitions", ax=right, shrink=0.8)
    return figure


def _finite(content: Any) -> Any:
    """The content of a JSON file, null for numbers that JSON does not have."""
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content

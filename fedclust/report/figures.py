"""All figures of a report, as files and as pictures for the page."""

from __future__ import annotations

import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.files import atomic_write
from fedclust.metrics import meaning
from fedclust.report import curves, diagrams, flow, heatmaps, panels, scores, style
from fedclust.report.arms import Arm, settings_of
from fedclust.report.comparison import overall, scale, significance
from fedclust.report.formats import in_percent, inside, meant
from fedclust.report.pivot import pivots
from fedclust.report.relative import explained, relative
from fedclust.report.spec import AXES, AXES_ALLOWED, TIME, Spec

_MOST_FLOWS = 8
_MOST_BESIDE = 8
_MOST_GRIDS = 4  # beside each other
_MOST_CELLS = 40  # of a grid, down or across; a table tells larger ones
_LAYOUT = ("GDEF", "GPOS", "GSUB", "MATH")  # tables of a font
_BAND = "Lines: mean over seeds; bands: ± 1 standard deviation."
_FLOW = (
    "which clients are in which cluster, over rounds. Bars: clusters; bands: clients, in the "
    "colour of their true group, or of the cluster that the band leaves where there are no "
    "groups. Below: share of clients that changed cluster, "
    "mean over seeds."
)

Drawn = tuple[str, str, Figure | None]  # file, caption and figure, None where there is nothing


@dataclass(frozen=True)
class Picture:
    """One figure as the page shows it: file name without ending, caption and the PNG."""

    name: str
    caption: str
    png: bytes


def draw(folder: Path, spec: Spec, arms: Sequence[Arm]) -> list[Picture]:
    """The figures that the data allow, written to `folder` as PNG and PDF."""
    with style.looked():
        return [save(folder, *one) for one in _figures(spec, arms)]


def save(folder: Path, name: str, caption: str, figure: Figure) -> Picture:
    """A figure written to `folder` as PNG and PDF; within the style it was drawn in."""
    _lay_out(figure)
    png, pdf = io.BytesIO(), io.BytesIO()
    # without a date the same data give the same file
    metadata = {"CreationDate": None, "Producer": None, "Creator": None}
    with mpl.rc_context({"figure.constrained_layout.use": False}), _plain_fonts():
        figure.set_layout_engine(None)  # its parts stay where they are
        figure.savefig(png, format="png", metadata={"Software": None})
        figure.savefig(pdf, format="pdf", metadata=metadata)
    atomic_write(folder / f"{name}.png", png.getvalue())
    atomic_write(folder / f"{name}.pdf", pdf.getvalue())
    return Picture(name, caption, png.getvalue())


@contextmanager
def _plain_fonts() -> Iterator[None]:
    """PDFs embed fonts without tables of layout, which no viewer reads; to cut them takes long."""
    from fontTools.subset import Options  # only figures need it, and it takes long to import

    options: Any = Options
    before = getattr(options, "_drop_tables_default", [])
    options._drop_tables_default = [*before, *_LAYOUT]
    try:
        yield
    finally:
        options._drop_tables_default = before


def _lay_out(figure: Figure) -> None:
    """Find the places of all parts at the PNG's resolution; a layout engine draws twice."""
    engine, dpi, saved = figure.get_layout_engine(), figure.dpi, mpl.rcParams["savefig.dpi"]
    if engine is not None:
        figure.dpi = dpi if saved == "figure" else saved
        with warnings.catch_warnings():  # names too long for the figure are no news to anybody
            warnings.filterwarnings("ignore", "constrained_layout not applied")
            engine.execute(figure)
        figure.dpi = dpi


def figure(spec: Spec, arms: Sequence[Arm], metric: str, x: str) -> Figure:
    """One metric as a report draws it.

    Args:
        x: round, or what was sent so far: models, bytes; or simulated_seconds.

    Raises:
        ConfigError: for an unknown metric or axis, or where no arm has recorded the metric.
    """
    require(x in AXES, "x", x, AXES_ALLOWED)
    meaning(metric, "metric")
    with style.looked():
        _, _, drawn = _curve(spec, arms, (metric,), x, metric, curves.MOST_PANELS)
    if drawn is None:
        over = "" if x == "round" else f" with {x}"
        raise ConfigError(f"metric={metric} is not allowed: no job here has recorded it{over}")
    return drawn


def _figures(spec: Spec, arms: Sequence[Arm]) -> Iterator[tuple[str, str, Figure]]:
    candidates = itertools.chain(
        _glance(spec, arms),
        _grids(spec, arms),
        _lines(spec, arms),
        _comparisons(spec, arms),
        scores.drawn(first_settings(arms, 1)),
        _matrices(spec, arms),
        _flows(arms),
    )
    for file, caption, figure in candidates:
        if figure is not None:
            yield file, caption, figure


def first_settings(arms: Sequence[Arm], number: int) -> list[Arm]:
    """The arms of the first settings; all of a sweep would be hundreds of pictures."""
    shown = settings_of(arms)[:number]
    return [arm for arm in arms if arm.setting in shown]


def _only(few: Sequence[Arm], arms: Sequence[Arm], number: int = 1) -> str:
    """What a caption says where only the first settings are shown."""
    if len(few) == len(arms):
        return ""
    return " The first setting only." if number == 1 else f" The first {number} settings only."


def _lines(spec: Spec, arms: Sequence[Arm]) -> Iterator[Drawn]:
    rows, x = spec.figure.rows or (spec.metric,), spec.figure.x
    for metrics in [rows] if curves.fits_one_figure(arms, rows) else [(row,) for row in rows]:
        file = "_".join(metrics if x == "round" else (*metrics, x))
        yield _curve(spec, arms, metrics, x, file, curves.MOST_PANELS)
    # what nobody asked for is drawn for as many settings as are quickly looked at
    beside = partial(_curve, spec, arms, most=_MOST_BESIDE)
    if x != "round":
        yield beside((spec.metric,), "round", spec.metric)
    grouped = any(arm.curve("purity") for arm in arms)
    for metric in ("train_loss", *(("purity",) if grouped else ("num_clusters", "churn"))):
        if metric not in rows:
            yield beside((metric,), "round", metric)
    few_lines = not curves.is_single(arms, spec.metric) and not curves.is_crowded(arms)
    if x != "bytes" and few_lines:
        yield beside((spec.metric,), "bytes", f"{spec.metric}_bytes")
    if x != TIME and few_lines and any(arm.curve(TIME) for arm in arms):
        yield beside((spec.metric,), TIME, f"{spec.metric}_{TIME}")


def _curve(
    spec: Spec, arms: Sequence[Arm], metrics: Sequence[str], x: str, file: str, most: int
) -> Drawn:
    """One figure of lines, or of bars where there is a single round, with its caption."""
    first, *others = map(meant, metrics)
    named = "; ".join([first, *map(inside, others)])
    few = first_settings(arms, most)
    left_out = _only(few, arms, most)
    metric = metrics[0]
    if not others and curves.is_single(few, metric):
        left_out += _first_only(sum(len(a.last(metric)) > 0 for a in few), panels.MOST_BARS)
        caption = f"{named}. Bars: mean over seeds; lines: ± 1 standard deviation.{left_out}"
        return file, caption, panels.bars(few, metric)
    along = f"against the {x} sent in both directions"
    along = {"round": "over rounds", TIME: "over the simulated time"}.get(x, along)
    if not others and curves.is_crowded(few):
        alone = len(settings_of(few)) == 1
        kind = "One panel per arm" + ("; grey: the others" if alone else ", a line per setting")
        left_out += _first_only(len({a.name for a in few if a.curve(metric)}), panels.MOST_PANELS)
        caption = f"{named}, {along}. {kind}. {_BAND}{left_out}"
        return file, caption, panels.multiples(few, metric, x)
    printed = spec.published and spec.rounds and in_percent(spec.metric)
    comparable = printed and any(arm.comparable for arm in arms)
    compared = spec if comparable and spec.metric in metrics and x == "round" else None
    hollow = " Hollow marks: published." if compared else ""
    figure = curves.draw(few, metrics, x, compared)
    return file, f"{named}, {along}. {_BAND}{hollow}{left_out}", figure


def _first_only(number: int, most: int) -> str:
    """What the caption says of a figure that shows no more than `most` of `number` arms."""
    return f" The first {most} of {number} arms only." if number > most else ""


def _glance(spec: Spec, arms: Sequence[Arm]) -> Iterator[Drawn]:
    shares = relative(spec, arms)
    if shares is not None:
        yield "at_a_glance", explained(shares), diagrams.at_a_glance(shares)


def _grids(spec: Spec, arms: Sequence[Arm]) -> Iterator[Drawn]:
    small = [p for p in pivots(arms) if max(len(p.rows), len(p.columns)) <= _MOST_CELLS]
    grids = small[:_MOST_GRIDS]
    if grids:
        caption = f"{meant(spec.metric)}, at the end, mean over seeds, by two options."
        yield "grid", caption, panels.heat(grids, spec.metric)


def _comparisons(spec: Spec, arms: Sequence[Arm]) -> Iterator[Drawn]:
    methods = overall(spec, arms)
    if methods is None:
        return
    bars = " Bars join methods whose mean ranks do not differ significantly."
    yield (
        "critical_difference",
        f"Mean rank over {len(methods.settings)} federations, 1 is the best."
        f"{bars * bool(np.isfinite(methods.difference))} {significance(methods)}",
        diagrams.critical_difference(methods),
    )
    yield (
        "profiles",
        "Performance profiles: for every level on the horizontal axis, the share of an arm's runs "
        f"(seeds in all federations) that score above it; measured in {scale(spec, methods)}. An "
        "arm whose line is nowhere below another's is at least as good at every level.",
        diagrams.profiles(spec, arms, methods),
    )


def _matrices(spec: Spec, arms: Sequence[Arm]) -> Iterator[Drawn]:
    if curves.is_single(arms, spec.metric):
        yield (
            "examples",
            "Training examples of every class, by true group; first seed.",
            heatmaps.examples(arms),
        )
    few = first_settings(arms, 1)
    left_out = _only(few, arms)
    if len(few) > heatmaps.MOST_PANELS:
        left_out += f" The first {heatmaps.MOST_PANELS} arms that have one."
    for name, (caption, draw_matrices) in _MATRICES.items():
        yield name, caption + left_out, draw_matrices(few)


_MATRICES: dict[str, tuple[str, Callable[[Sequence[Arm]], Figure | None]]] = {
    "contingency": (
        "Clients per cluster and true group at the end of the first seed; shade: share of the "
        "group.",
        heatmaps.contingencies,
    ),
    "classes": (
        "Share of every class among the training examples of a cluster's clients, clusters at the "
        "end of the first seed.",
        heatmaps.classes,
    ),
    "distance": (
        "Distance of any two clients as the clustering saw it, first seed; in the order of their "
        "groups, then clusters, in that round.",
        heatmaps.distances,
    ),
}


def _flows(arms: Sequence[Arm]) -> Iterator[Drawn]:
    few = first_settings(arms, 1)
    flows = ((arm, figure) for arm in few if (figure := flow.flow(arm)) is not None)
    for arm, figure in itertools.islice(flows, _MOST_FLOWS):
        file = re.sub(r"[^A-Za-z0-9.=-]+", "_", arm.label)
        yield f"flow_{file}", f"{arm.label}: {_FLOW}{_only(few, arms)}", figure

"""Scores of predictions: a table of them, and what is drawn of what was said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import methodcaller

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedclust.metrics import METRICS
from fedclust.report import style
from fedclust.report.arms import Arm
from fedclust.report.axes import panels, write_cells
from fedclust.report.columns import ARM, over_seeds, tabulate
from fedclust.report.federations import called
from fedclust.report.formats import decimals, in_percent, lower_is_better
from fedclust.report.table import Table
from fedclust.report.trivial import OF_SCORES, guesses

_MOST = 8  # arms; more panels are too small to read
_LETTERS = 12  # of a class's name
_CELLS = 15  # classes whose counts are written into a confusion matrix
_GRID = np.linspace(0, 1, 101)  # of false positive rates, as the arrays have them
_ENDS = {
    "": "",
    "_over_clients": " client mean",
    "_worst_decile": " worst tenth",
    "_undefined": " undefined",
}


_OVER = {"": "pooled", "_over_clients": "client_mean", "_worst_decile": "worst_decile"}


def names_of(arm: Arm) -> list[str]:
    """The scores that an arm has recorded, in the order of its config."""
    asked = [name for name in arm.run.config.get("scores") or () if isinstance(name, str)]
    others = [name.removesuffix("_undefined") for name in arm.run.curves if _is_count(name)]
    known = (name for name in [*asked, *others] if f"{name}_undefined" in arm.run.curves)
    return list(dict.fromkeys(known))


def _is_count(metric: str) -> bool:
    return metric.endswith("_undefined")


def scores_table(arms: Sequence[Arm]) -> Table | None:
    """Every score at the end, mean ± std over seeds; None where no arm took any."""
    names = list(dict.fromkeys(name for arm in arms for name in names_of(arm)))
    if not names:
        return None
    columns, shown = [ARM], list[str]()
    for name in names:
        percent = name in METRICS and in_percent(name)
        for end, words in _ENDS.items():
            metric, head = name + end, f"{name}{words}"
            known = np.concatenate([arm.last(metric) for arm in arms])
            if not len(known) or (_is_count(metric) and not known.any()):
                continue
            shown.append(metric)
            read = methodcaller("last", metric)
            if _is_count(metric):
                columns.append(over_seeds(head, metric, read, 1))
            elif percent:
                columns.append(over_seeds(f"{head} (%)", metric, read, 2, 100))
            else:
                columns.append(over_seeds(head, metric, read, partial(decimals, name, usual=4)))
    meant = ". ".join(f"{name}: {_text(name)}" for name in names)
    lower = list(filter(lower_is_better, names))
    less = f" Less is better of {', '.join(lower)}." if lower else ""
    notes = [
        f"{meant}. Each: over all test examples at the end, mean ± std over seeds.{less}",
        "Client mean, worst tenth: over the clients for whom the score is defined; undefined: "
        "those for whom it is not, such as clients with one class only.",
    ]
    beside = guesses(arms, shown, by_setting=False)
    notes += [f"{OF_SCORES}."] * bool(beside)
    return tabulate("scores", "Scores of predictions", columns, [*arms, *beside], notes=notes)


def _text(name: str) -> str:
    return METRICS[name].text.partition(";")[0] if name in METRICS else name


def scores_frame(arms: Sequence[Arm]) -> pd.DataFrame:
    """Every score over all test examples, clients and their worst tenth, by arm, seed and round."""
    rows = []
    for arm, name in [(one, name) for one in arms for name in names_of(one)]:
        count = arm.curve(f"{name}_undefined")
        assert count is not None
        curves = [(over, curve) for end, over in _OVER.items() if (curve := arm.curve(name + end))]
        for over, curve in curves:
            for t in count.rounds.tolist():
                left_out = dict(zip(count.seeds, count.at(t), strict=True))
                rows += [
                    (arm.label, seed, t, name, over, value, left_out[seed])
                    for seed, value in zip(curve.seeds, curve.at(t), strict=True)
                    if not np.isnan(left_out.get(seed, np.nan))
                ]
    columns = ["arm", "seed", "round", "score", "over", "value", "undefined"]
    return pd.DataFrame(rows, columns=columns)


def drawn(arms: Sequence[Arm]) -> Iterator[tuple[str, str, Figure | None]]:
    """File, caption and figure of everything that jobs have kept to draw."""
    for name, (caption, draw, pooled) in _PICTURES.items():
        known = ((arm, pooled(_each(arm, f"score_{name}"))) for arm in arms)
        kept = [(arm, values) for arm, values in known if values is not None]
        shown = kept[:_MOST]
        more = f" The first {_MOST} of {len(kept)} arms only." if len(kept) > _MOST else ""
        yield f"scores_{name}", caption + more, _panels(shown, draw) if shown else None


def _panels(
    shown: Sequence[tuple[Arm, NDArray[np.float64]]],
    draw: Callable[[Axes, NDArray[np.float64]], None],
) -> Figure:
    """A panel per arm."""
    wide = min(4, len(shown))
    size = max(3.2, 2.7 * wide), 2.9 * math.ceil(len(shown) / wide)
    figure, grid = panels(len(shown), wide, size)
    for axes, (arm, values) in zip(grid, shown, strict=True):
        axes.set_title(arm.label, fontsize=9, wrap=True)
        draw(axes, values)
        if draw is _confusion:
            _name_classes(axes, called(arm, "classes", _LETTERS), len(values))
    return figure


def _each(arm: Arm, name: str) -> list[NDArray[np.float64]]:
    """The array of every seed that did not fail."""
    seeds = [seed for seed in arm.run.seeds if seed not in arm.run.failed]
    kept = (arm.run.array(seed, name) for seed in seeds)
    return [np.asarray(one, dtype=np.float64) for one in kept if one is not None]


def _sum(every: Sequence[NDArray[np.float64]]) -> NDArray[np.float64] | None:
    return np.sum(every, axis=0) if every else None


def _mean(every: Sequence[NDArray[np.float64]]) -> NDArray[np.float64] | None:
    known = [one for one in every if np.isfinite(one).all()]
    return np.mean(known, axis=0) if known else None


def _confusion(axes: Axes, count: NDArray[np.float64]) -> None:
    share = count / np.maximum(count.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.grid(visible=False)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("class")
    if len(count) > _CELLS:
        return
    axes.set_xticks(range(len(count)))
    axes.set_yticks(range(len(count)))
    written = {
        place: (f"{100 * value:.0f}", "white" if value > 0.5 else "black")
        for place, value in np.ndenumerate(share)
        if value >= 0.005
    }
    write_cells(axes, written, 7 if len(count) < 8 else 5)


def _name_classes(axes: Axes, names: Mapping[int, str], classes: int) -> None:
    """What the data call the classes, where they do and there is room."""
    if len(names) != classes or classes > _CELLS or all(n.isdecimal() for n in names.values()):
        return
    shown = list(names.values())
    axes.set_xticks(range(classes), shown, rotation=90 if classes > 3 else 0)
    axes.set_yticks(range(classes), shown)


def _roc(axes: Axes, true: NDArray[np.float64]) -> None:
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=0.8)
    axes.plot([0, *_GRID], [0, *true])  # what is already right at a rate of 0 lies straight above
    axes.set(xlabel="false positive rate", ylabel="true positive rate", aspect="equal")


def _calibration(axes: Axes, bins: NDArray[np.float64]) -> None:
    count, sure, right = bins[:, bins[0] > 0]
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=0.8)
    axes.plot(sure / count, right / count, linewidth=1)
    axes.scatter(sure / count, right / count, s=4 + 60 * count / count.sum())
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set(xlabel="predicted probability", ylabel="share that is true")


def _residuals(axes: Axes, pairs: NDArray[np.float64]) -> None:
    target, predicted = pairs
    axes.axhline(0, color=style.MUTED, linewidth=0.8)
    axes.scatter(target, predicted - target, s=4, alpha=0.5, linewidths=0)
    axes.set(xlabel="target", ylabel="prediction − target")


_PICTURES = {
    "confusion": (
        "Examples of every class by predicted class, in percent of the class; all seeds, at the "
        "end.",
        _confusion,
        _sum,
    ),
    "roc": (
        "ROC curve over all test examples, mean over seeds and over labels or, of more than two "
        "classes, over each against the rest.",
        _roc,
        _mean,
    ),
    "calibration": (
        "Calibration: the share that is true against the probability it was given, in 15 bins of "
        "it: of two classes that of the second, of more that of the predicted class, of labels "
        "that of each; area: examples. All seeds.",
        _calibration,
        _sum,
    ),
    "residuals": (
        "Residuals over the target, of several the first, in its unit; at most 1000 test examples "
        "of the first seed.",
        _residuals,
        lambda every: next(iter(every), None),
    ),
}

"""The report on searches: default beside tuned, best value by budget, and score by each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any, cast

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

from fedclust.helpers.errors import RunFolderError, counted
from fedclust.helpers.files import atomic_write, harmless
from fedclust.metrics import METRICS
from fedclust.metrics.meanings import read_meanings
from fedclust.report import style
from fedclust.report.figures import Picture, save
from fedclust.report.formats import axis, decimals, factor, inside, title
from fedclust.report.page import Page, render
from fedclust.report.statistics.paired import Paired, paired
from fedclust.report.table import Cell, Table
from fedclust.tuning.record import Trial, best_of, comparable, read_texts, seeds_of

_WIDE = 20  # times the smallest value is the largest on a logarithmic axis
_GROUPS = ("case", "dataset", "partition", "scenario", "model")  # of a setting
_ROW = 0.3  # inches of a method
_ACROSS = 3  # panels of a row
_LETTERS = 30  # of a line beside an axis
_NAMED = 8  # methods that a legend has room for
_OF_VALUES = (
    "Every complete trial by the value of a searched key, the default as a diamond; other keys of "
    "the trial differ too."
)
_BETWEEN = (
    "Behind a gain: its 95 % interval over the tuning seeds, as if the trial had been named "
    "beforehand; that of the best of many is smaller elsewhere."
)
_CAPTION = (
    "Left: the best value so far against the budget, in complete trials. Right: every complete "
    "trial as a dot, the middle half of them as a bar, the default as a diamond. The values are of "
    "validation examples, means over the tuning seeds."
)


@dataclass(frozen=True)
class FinishedSearch:
    """One search read from its folder: `about` is `search.yaml`, `trials` are in order."""

    folder: Path
    about: Mapping[str, Any]
    trials: Sequence[Trial]

    @property
    def method(self) -> str:
        """The method."""
        return str(self.about["choices"]["algorithm"])

    @property
    def metric(self) -> str:
        """The metric by which trials are compared."""
        return str(self.about["metric"])

    @property
    def rounds(self) -> int:
        """Of a complete trial."""
        return int(self.about["rounds"])

    @cached_property
    def best(self) -> Trial | None:
        """The best trial; None before one is complete."""
        return best_of(self.trials, higher=METRICS[self.metric].better == "higher")

    @cached_property
    def judged(self) -> frozenset[int]:
        """The numbers of the trials that are compared."""
        return frozenset(one.number for one in comparable(self.trials))

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Of the comparable trials, in the printed unit."""
        found = [one.value for one in self.trials if one.number in self.judged]
        return factor(self.metric) * np.array(found, dtype=np.float64)

    def gain(self) -> Paired | None:
        """Tuned less default, seed by seed, in the printed unit; None without a gain or folders."""
        if self.best is None or self.best.number == 0 or 0 not in self.judged:
            return None
        jobs = (self.folder / "trials" / f"{number:03d}" for number in (0, self.best.number))
        default, tuned = (seeds_of(job, self.metric, self.rounds - 1) for job in jobs)
        both = sorted(default.keys() & tuned.keys())
        differences = [tuned[seed] - default[seed] for seed in both]
        return paired(factor(self.metric) * np.array(differences)) if both else None

    def way(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Budget spent, in complete trials, and the best value so far, NaN before the first."""
        spent = np.cumsum([one.rounds for one in self.trials]) / self.rounds
        values = np.array(
            [one.value if one.number in self.judged else np.nan for one in self.trials],
            dtype=np.float64,
        )
        pick = np.fmax if METRICS[self.metric].better == "higher" else np.fmin
        return spent, factor(self.metric) * pick.accumulate(values)


def search_folders(folder: Path) -> list[Path]:
    """The folders of the searches at or below a folder."""
    return sorted(file.parent for file in folder.rglob("search.yaml"))


def read_searches(folder: Path) -> list[FinishedSearch]:
    """The searches with a trial, at or below a folder; RunFolderError for none or damage."""
    searches = [one for place in search_folders(folder) if (one := _read(place)).trials]
    if not searches:
        raise RunFolderError(f"{folder} holds no search with a trial; run `fedclust tune` first")
    return searches


def make_tuning_report(folder: Path) -> Path:
    """The page `report/report.html` on all searches of a folder, as `read_searches` reads them."""
    searches = read_searches(folder)
    target = folder / "report"
    table = tuning_table(searches)
    for ending, text in (
        ("md", table.markdown()),
        ("csv", table.csv()),
        ("tex", table.latex(wide=True)),
    ):
        atomic_write(target / f"{table.name}.{ending}", text)
    pictures = []
    by_setting = _by_setting(searches)
    with style.looked():
        for place, (setting, some) in enumerate(by_setting.items()):
            name = "tuning" if len(by_setting) == 1 else f"tuning_{place}"
            pictures.append(_drawn(target / "figures", name, setting, some))
            pictures.append(_against_values(target / "figures", f"{name}_values", setting, some))
    num_searches = f"{len(searches)} {'search' if len(searches) == 1 else 'searches'}"
    trials = counted(sum(len(one.trials) for one in searches), "trial")
    page = Page(
        title=folder.resolve().name,
        subtitle=f"{num_searches} · {trials}",
        banners=tuple(line for one in searches if (line := _left_out(one))),
        tables=(table,),
        pictures=pictures,
    )
    atomic_write(target / "report.html", render(page))
    return target / "report.html"


def tuning_table(searches: Sequence[FinishedSearch]) -> Table:
    """Default beside tuned, a row per search with a trial, and what was spent."""
    names = _names(searches)
    rows, records = zip(*(_row(one, names[one.folder]) for one in searches), strict=True)
    metric = searches[0].metric
    unit_name = " (%)" if factor(metric) == 100.0 else ""
    numbers = list(map(str, searches[0].about["seeds"]))
    seeds = f"mean over the tuning seeds {', '.join(numbers)}"
    if len(numbers) == 1:
        seeds = f"of tuning seed {numbers[0]}"
    return Table(
        name="tuning",
        title=f"Default and tuned, {inside(title(metric))}{unit_name}",
        columns=(
            "search",
            "default",
            "tuned",
            "spread",
            "best trial",
            "complete + pruned + failed",
            "budget spent",
        ),
        rows=rows,
        records=records,
        notes=(
            f"{METRICS[metric].text}, in the last round, {seeds}"
            f"{'; less is better' if METRICS[metric].better == 'lower' else ''}. The best "
            "of many trials is optimistic: the result is what `fedclust run tuned=…` measures "
            "on test data with other seeds.",
            *([_BETWEEN] if len(numbers) > 1 else []),
            "Spread: interquartile range over the complete trials. Budget: rounds computed, in "
            "complete trials.",
            *(line for one in searches if (line := _left_out(one))),
            # too long for cells, whose words would be broken
            *(f"Tuned {one['search']}: {one['values']}" for one in records if one["values"]),
        ),
    )


def _left_out(one: FinishedSearch) -> str:
    """The trials that serve fewer clients than others, and that is why they are not compared."""
    left = [t.number + 1 for t in one.trials if t.value is not None and t.number not in one.judged]
    if not left:
        return ""
    return (
        f"{one.method}: {counted(len(left), 'trial')} ({', '.join(map(str, left))}) gave clients "
        "no model (label −1) that other trials serve, and cannot be the best."
    )


def _row(one: FinishedSearch, name: str) -> tuple[tuple[Cell, ...], dict[str, Any]]:
    """The cells of a search, and its record."""
    states = Counter(trial.state for trial in one.trials)
    rounds, spread = sum(trial.rounds for trial in one.trials), _interquartile(one)
    default, tuned = one.trials[0].value, None if one.best is None else one.best.value
    gain, unit = one.gain(), factor(one.metric)
    digits, low, high, detail = decimals(one.metric, unit * (tuned or 0.0)), None, None, ""
    if default is not None and tuned is not None and 0 in one.judged:
        detail = f"{unit * (tuned - default):+.{digits}f}"
    if gain is not None and gain.n > 1:
        low, high = gain.low / unit, gain.high / unit
        detail += f", {gain.low:+.{digits}f} to {gain.high:+.{digits}f}"
    share = one.trials[0].served
    of_some = "" if 0 in one.judged or default is None else f"of {100 * share:.3g} % of the clients"
    cells = (
        name,
        Cell(text=_number(default, unit, digits), detail=of_some),
        Cell(text=_number(tuned, unit, digits), detail=detail.replace("-", "−")),
        _number(spread, 1.0, digits),
        "–" if one.best is None else str(one.best.number + 1),
        f"{states['complete']} + {states['pruned']} + {states['failed']}",
        f"{rounds / one.rounds:.1f}",
    )
    record: dict[str, Any] = {
        "search": name,
        "metric": one.metric,
        "default": default,
        "tuned": tuned,
        "gain_low": low,
        "gain_high": high,
        "spread": spread,
        **{state: states[state] for state in ("complete", "pruned", "failed")},
        "rounds": rounds,
        "gradient_steps": sum(trial.gradient_steps for trial in one.trials),
        "values": "" if one.best is None else _words(one.best.values),
    }
    return tuple(Cell(text=c) if isinstance(c, str) else c for c in cells), record


def _interquartile(one: FinishedSearch) -> float | None:
    """Range of the middle half of the settings that are complete, each counted once."""
    ended = (trial for trial in one.trials if trial.number in one.judged)
    by_setting = {tuple(trial.values.values()): trial.value for trial in ended}
    if not by_setting:
        return None
    values = factor(one.metric) * np.array(list(by_setting.values()), dtype=np.float64)
    return float(np.subtract(*np.percentile(values, [75, 25])))


def _number(value: float | None, unit: float, digits: int) -> str:
    return "–" if value is None else f"{unit * value:.{digits}f}"


def _words(values: Mapping[str, Any]) -> str:
    """Values as typed, numbers shortened."""
    return " ".join(f"{key}={_short(str(value))}" for key, value in values.items())


def _short(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def _setting(one: FinishedSearch) -> tuple[str, ...]:
    return tuple(str(one.about["choices"].get(group) or "") for group in _GROUPS)


def _by_setting(searches: Sequence[FinishedSearch]) -> dict[str, list[FinishedSearch]]:
    """The searches of every setting, by the first groups that tell it apart from the others."""
    settings = {one.folder: _setting(one) for one in searches}
    several = list[int]()
    for i in range(len(_GROUPS)):
        told = {tuple(s[j] for j in several) for s in settings.values()}
        if len(told) < len({tuple(s[j] for j in (*several, i)) for s in settings.values()}):
            several.append(i)
    found: dict[str, list[FinishedSearch]] = {}
    for one in searches:
        words = ", ".join(filter(None, (settings[one.folder][i] for i in several)))
        found.setdefault(words, []).append(one)
    return found


def _names(searches: Sequence[FinishedSearch]) -> dict[Path, str]:
    """A name for every search: its method and setting, or its folder where others have those."""
    named = {
        one.folder: ", ".join(filter(None, (one.method, setting)))
        for setting, some in _by_setting(searches).items()
        for one in some
    }
    alike = Counter(named.values())
    return {where: name if alike[name] == 1 else where.name for where, name in named.items()}


def _drawn(folder: Path, name: str, setting: str, searches: Sequence[FinishedSearch]) -> Picture:
    """The way of every search, and the spread of its trials."""
    high = max(2.6, 0.9 + _ROW * len(searches))
    figure = Figure(figsize=(8.2, high))
    left, right = cast(tuple[Axes, Axes], figure.subplots(1, 2))
    names = _names(searches)
    looks = [style.look(one.method) for one in searches]
    for place, (one, look) in enumerate(zip(searches, looks, strict=True)):
        spent, best = one.way()
        left.plot(spent, best, drawstyle="steps-post", **{**look, "marker": ""})
        _spread(right, place, one, look["color"])
    metric = searches[0].metric
    left.set_xlabel("budget spent, in complete trials")
    left.set_ylabel(fill(f"best {axis(metric)}", _LETTERS))
    right.set_xlabel(axis(metric))
    right.set_yticks(range(len(searches)), [names[one.folder] for one in searches])
    for tick, look in zip(right.get_yticklabels(), looks, strict=True):
        tick.set_color(look["color"])
    right.set_ylim(len(searches) - 0.5, -0.5)
    if setting:
        left.set_title(setting)
    return save(folder, name, f"{setting}: {_CAPTION}" if setting else _CAPTION, figure)


def _against_values(
    folder: Path, name: str, setting: str, searches: Sequence[FinishedSearch]
) -> Picture:
    """How the score depends on each searched key, a panel per key."""
    keys = list(dict.fromkeys(key for one in searches for key in one.trials[0].values))
    across = min(_ACROSS, len(keys))
    down = -(-len(keys) // across)
    figure = Figure(figsize=(0.6 + 3.8 * across, 0.4 + 2.6 * down))
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    metric = searches[0].metric
    for key, panel in zip(keys, panels[: len(keys)], strict=True):
        tried = [one for one in searches if key in one.trials[0].values]
        words = [str(one.about.get("space", {}).get(key)) for one in tried]
        even = any("interval" in one and "log" not in one for one in words)
        where = _places([trial.values[key] for one in tried for trial in one.trials], even)
        for one in tried:
            look = style.look(one.method)
            ended = [trial for trial in one.trials if trial.number in one.judged]
            x = [where.of[str(trial.values[key])] for trial in ended]
            alike = {"marker": look["marker"], "color": look["color"], "label": one.method}
            panel.plot(x, one.values, linestyle="", markersize=4, **alike)
            if ended and ended[0].number == 0:
                face = {"markerfacecolor": "none", "markeredgecolor": style.INK}
                panel.plot(x[:1], one.values[:1], "D", markersize=7, **face)
        if where.log:
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            panel.xaxis.set_minor_formatter(NullFormatter())
        if where.texts:
            panel.set_xticks(range(len(where.texts)), where.texts)
        panel.set_xlabel(key)
        panel.set_ylabel(fill(axis(metric), _LETTERS))
        if len(tried) <= _NAMED:
            panel.legend()
    for panel in panels[len(keys) :]:
        panel.set_visible(False)
    if setting:
        figure.suptitle(setting)
    return save(folder, name, f"{setting}: {_OF_VALUES}" if setting else _OF_VALUES, figure)


@dataclass(frozen=True)
class _Places:
    """Where the values of a key lie on an axis.

    Attributes:
        of: the place of every value, by its text.
        log: whether the axis is logarithmic.
        texts: what stands at places 0, 1, …; empty for numbers.
    """

    of: Mapping[str, float]
    log: bool = False
    texts: Sequence[str] = ()


def _places(values: Sequence[Any], even: bool = False) -> _Places:
    """Numbers where they are (`even`: drawn from no logarithmic interval), others as tried."""
    texts = list(dict.fromkeys(map(str, values)))
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return _Places({text: float(place) for place, text in enumerate(texts)}, texts=texts)
    wide = min(numbers) > 0 and max(numbers) > _WIDE * min(numbers)
    return _Places(dict(zip(texts, numbers, strict=True)), log=wide and not even)


def _spread(axes: Axes, place: int, one: FinishedSearch, colour: str) -> None:
    """The trials of one search on a line."""
    if len(one.values):
        low, high = np.percentile(one.values, [25, 75])
        axes.plot([low, high], [place, place], color=colour, linewidth=6, alpha=0.25, zorder=1)
        axes.plot(one.values, np.full(len(one.values), place), "o", color=colour, markersize=3)
    if one.trials[0].value is not None and 0 in one.judged:
        default = factor(one.metric) * one.trials[0].value
        axes.plot(
            [default], [place], "D", markersize=7, markerfacecolor="none", markeredgecolor=style.INK
        )


def _read(folder: Path) -> FinishedSearch:
    file = folder / "search.yaml"
    for job in sorted((folder / "trials").glob("*")):
        read_meanings(job)  # of the scores of another task
    try:
        about = yaml.safe_load(harmless(file).read_text(encoding="utf-8"))
        needed = (about["choices"]["algorithm"], int(about["rounds"]), METRICS[about["metric"]])
        assert needed
        assert isinstance(about["seeds"], list)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AssertionError) as error:
        raise RunFolderError(f"{file} is damaged; delete its folder and tune again") from error
    return FinishedSearch(folder, about, read_texts(folder / "trials.csv"))

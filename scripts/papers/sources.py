"""What a paper's page says beside its tables: settings, misprints, the authors' curves, their code.

All of it stands in `sources.yaml`, filled by hand; our numbers beside the curves come from runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import yaml

from fedclust.helpers.errors import require
from fedclust.helpers.prose import table
from fedclust.papers.published import interval
from scripts.papers.cells import Run, Runs, mixing, published
from scripts.papers.rules import Row
from scripts.papers.stand_ins import stand_in
from scripts.papers.tables import counted_seeds, signed

CODE = "Released code"
_UNKNOWN = "not recorded"
_RUNS, _READ = 5, 0.01  # behind a curve; points, to which the bands were read
_WHOLE = "Without line numbers, the whole file or folder is meant."
_CURVES_SAY = """\
Read off the vector graphics in the released repository, to about 0.05 points; means over 5 seeds,
accuracy in percent of the participants' own last models. The paper prints none of those that are
in no table. ± is the height of the shaded band to one side, times √(5/4). Below each, ours at the
iterations that are kept. In brackets: ours minus theirs, and half the 95 % interval of this
difference, with the spread of both; ✓ where it holds zero and the data are the paper's."""
_HEADS = {
    "settings": ("Settings, printed and used", ("what", "printed", "used here", "why")),
    "misprints": ("Suspected misprints", ("where", "printed", "read here as")),
    "code": (CODE, ("what", "repository", "commit", "file")),
}


def read_sources(file: Path) -> dict[str, Any]:
    """What is known of every paper; nothing without the file.

    Raises:
        ConfigError: for a line with too few or too many entries.
    """
    known: dict[str, Any] = (yaml.safe_load(file.read_text()) if file.is_file() else None) or {}
    for paper, parts in known.items():
        for part, (_, head) in _HEADS.items():
            for line in parts.get(part, ()):
                label = f"{file.name}, {paper}, {part}"
                require(len(line) == len(head), label, line, f"{len(head)} entries: {head}")
    return known


def parts(known: Mapping[str, Any], runs: Runs) -> list[str]:
    """The parts of one paper's page as Markdown."""
    sections = []
    for part, (title, head) in _HEADS.items():
        if lines := known.get(part):
            if part == "code":
                lines = [
                    [what, f"[{of}](https://github.com/{of})", *(cell or _UNKNOWN for cell in at)]
                    for what, of, *at in lines
                ]
            sections += [f"## {title}", table(head, lines, len(head))]
            if part == "code" and not all(_has_lines(line[-1]) for line in lines):
                sections.append(_WHOLE)
        if part == "misprints" and known.get("curves"):
            sections += ["## The authors' own curves", _CURVES_SAY]
            sections += [text for curve in known["curves"] for text in _curve(curve, runs)]
        if part == "misprints" and known.get("bands"):
            sections += ["### The bands of these curves", *bands(known["bands"])]
    return sections


def bands(known: Mapping[str, Any]) -> list[str]:
    """The bands of a figure beside the spreads that a table prints.

    A band is a standard deviation over five runs with five below; a table has four below.
    """
    printed: dict[tuple[str, str], Row] = {
        (row["algorithm"], row["round"]): row
        for row in published()
        if row["experiment"] == known["experiment"] and row["std"]
    }
    rows: list[list[object]] = []
    equal = dict.fromkeys(known["rows"], 0)
    for name, halves in known["rows"].items():
        for at, half in halves.items():
            spread, told = _spread(half), printed[name, str(at)]["std"]
            equal[name] += abs(spread - float(told)) < _READ
            rows.append([name, at, f"{half:.3f}", f"{spread:.2f}", told])
    each = ", ".join(f"{name} {equal[name]} of {len(of)}" for name, of in known["rows"].items())
    note = (
        f"The figure's bands ({known['file']}) times √(5/4) are the printed spreads of "
        f"{known['experiment']}, to {_READ:g} points, in {sum(equal.values())} of {len(rows)} "
        f"cells ({each}). Where they are, a table's spreads are those of the curve, whatever its "
        "means are."
    )
    head = ["method", "iteration", "half the band", "times √(5/4)", "printed spread"]
    return [note, table(head, rows, 1)]


def _has_lines(places: str) -> bool:
    """Whether every file that is named has its lines."""
    return all(re.search(r":\d", place) for place in places.split(";"))


def _curve(curve: Mapping[str, Any], runs: Runs) -> list[str]:
    """A figure's curves, each with ours in the line below."""
    columns = sorted({at for _, values, *_ in curve["rows"].values() for at in values})
    drawn = [value for _, values, *_ in curve["rows"].values() for value in values.values()]
    digits = 1 if all(value == round(value, 1) for value in drawn) else 2
    rows: list[list[object]] = []
    remarks: dict[str, None] = {}
    for name, (method, values, *halves) in curve["rows"].items():
        spread = {at: _spread(half) for known in halves for at, half in known.items()}
        theirs = [f"{values[at]:.{digits}f}" if at in values else "" for at in columns]
        wide = [f" ± {spread[at]:.{digits}f}" if at in spread else "" for at in columns]
        rows.append([f"{name}, authors", *map("".join, zip(theirs, wide, strict=True))])
        of, _, options = method.partition(" ")
        for run in runs.find(curve["experiment"], of, options=options):
            cells = [_ours(run, at, values.get(at), spread.get(at)) for at in columns]
            if any(cells):
                rows.append([f"{name}, ours", *cells])
                if options:
                    remarks[f"{name} with {options}"] = None
                remarks[_what(run)] = None
            if (purity := mixing(run, runs.of(run.experiment))) is not None:
                remarks[f"{name} mixes clusters in ours, purity {purity:.2f}"] = None
    head = [curve["title"], *(f"iteration {at}" for at in columns)]
    text = table(head, rows, 1)
    return [text, f"Ours: {'; '.join(remarks)}."] if remarks else [text]


def _spread(half: float) -> float:
    """A band's standard deviation over five runs, with four below."""
    return half * math.sqrt(_RUNS / (_RUNS - 1))


def _ours(run: Run, at: int, theirs: float | None, spread: float | None) -> str:
    """Our mean at an iteration, and whether it can be told from the authors'; data that stand in
    for others are not ticked.
    """
    ours = run.seeds.get(_column(at, int(run.made["rounds"])))
    if not ours:
        return ""
    half = interval(pstdev(ours), len(ours), spread)
    if theirs is None or spread is None or half is None:
        return f"{fmean(ours):.2f}"
    gap = fmean(ours) - theirs
    good = " ✓" if abs(gap) <= half and not stand_in(run.made) else ""
    return f"{fmean(ours):.2f} ({signed(round(gap, 2))}, {half:.2f}{good})"


def _column(iteration: int, rounds: int) -> str:
    return "accuracy_last_local " + ("last" if iteration == rounds else f"at {iteration}")


def _what(run: Run) -> str:
    seeds = counted_seeds(len(run.made["seeds"].split()))
    return ", ".join(text for text in (seeds, stand_in(run.made)) if text)


def linked(text: str, page: str = "") -> str:
    """A text in which the released code leads to the list of its places."""
    anchor = f"{page}#{CODE.lower().replace(' ', '-')}"
    return text.replace("released code", f"[released code]({anchor})")

"""The page of one paper: its tables as printed with ours beside, and what its prose says.

What became of a number stands below its table, in a note with the number in the cell.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from string import ascii_uppercase

import yaml

from fedclust.helpers.prose import table
from scripts.papers.campaign import Entry
from scripts.papers.cells import Cell
from scripts.papers.collect_results import drawn_jobs
from scripts.papers.drawn import embedded
from scripts.papers.evidence import signs
from scripts.papers.prose import AGAIN, FOLDERS
from scripts.papers.rules import (
    NOT_PRINTED,
    NOT_RUN,
    OTHER_DATA,
    REPRODUCED,
    SETTING,
    Measured,
    Row,
)
from scripts.papers.sources import CODE, linked
from scripts.papers.stand_ins import stand_in
from scripts.papers.tables import counted_seeds, first_entry, ours, printed, signed, told

_SIGNS = {"percent": "%", "percentage points": "points", "round": "iterations"}
_UNITS = {"percent": "points", "percentage points": "points", "round": "iterations"}


def page_name(paper: str) -> str:
    """The file of a paper's page."""
    return f"numbers_{FOLDERS[paper]}.md"


def page(
    paper: str,
    lead: str,
    cells: Sequence[Cell],
    claims: Sequence[dict[str, str]],
    entries: Sequence[Entry],
    results: Path,
    conf: Path,
    more: Sequence[str] = (),
    beside: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> str:
    """The page as Markdown.

    Args:
        paper: its name in published.csv.
        lead: what stands and what does not; "" for nothing.
        cells: its numbers.
        claims: its statements with their verdicts.
        entries: the list of experiments.
        results: docs/results.
        conf: the config tree.
        more: further parts, after the tables.
        beside: the parts of `sources.yaml`, before the figures.
        files: pictures of tables by the table's name.
    """
    links, article = ["[All papers and the rules](README.md)"], f"{FOLDERS[paper]}.md"
    if (results / article).is_file():
        links.append(f"[what else was run]({article})")
    parts = [
        f"# {paper}: every number and statement",
        *([f"In short: {lead}"] if lead else []),
        "Made by `make results` from the files in `runs`. " + ", ".join(links) + ".",
    ]
    if cells:
        parts.append(
            "A cell has the printed number, then ours, as mean ± standard deviation over seeds; in "
            "bold where it is reproduced. Accuracies are in percent. The small number leads to a "
            "note below the table."
        )
    texts = tables(cells, entries, files or {})
    parts += [linked(text) for text in texts] if f"## {CODE}" in beside else texts
    parts += [*more, *_claims(claims), *beside, *_figures(paper, results, conf)]
    return "\n\n".join(parts) + "\n"


def tables(cells: Sequence[Cell], entries: Sequence[Entry], files: Mapping[str, str]) -> list[str]:
    """Every printed table, methods as columns where it has several, and its notes."""
    parts = []
    for experiment, group in groupby(cells, key=lambda c: c.row["experiment"]):
        of = list(group)
        notes: dict[str, int] = {}
        letters = _letters(of)
        by_metric = len({c.row["algorithm"] for c in of}) == 1
        lines: dict[str, dict[str, str]] = {}
        heads: dict[str, None] = {}
        for cell in of:
            side, head = _place(cell, by_metric=by_metric)
            heads[head] = None
            number = notes.setdefault(note(cell, entries, letters), len(notes) + 1)
            known = lines.setdefault(side, {})
            text = f"{_cell(cell)} <sup>{number}</sup>"
            known[head] = f"{known[head]}, {text}" if head in known else text
        rows = [[side, *(line.get(head, "") for head in heads)] for side, line in lines.items()]
        parts += [f"## {experiment}", table(["", *heads], rows, 1), *embedded(files, experiment)]
        going = signs(of)
        parts += [going.told()] if going is not None and going.numbers > 1 else []
        parts.append("\n".join(f"{number}. {text}" for text, number in notes.items()))
        parts += [f"Cause {letter}: {text}" for text, letter in letters.items()]
    return parts


def _letters(cells: Sequence[Cell]) -> dict[str, str]:
    """The causes that several numbers of a table have, each with a letter."""
    count = Counter(cell.cause.cause for cell in cells if cell.cause is not None and _is_told(cell))
    several = [text for text, number in count.items() if number > 1]
    return dict(zip(several, ascii_uppercase, strict=False))


def _is_told(cell: Cell) -> bool:
    """Whether the note of a number names its cause."""
    return cell.measured is not None and cell.state not in (REPRODUCED, OTHER_DATA)


def _place(cell: Cell, *, by_metric: bool) -> tuple[str, str]:
    """The row and the column of a number: by method, or by metric where there is one method."""
    row = cell.row
    metric = _metric(row)
    versus = "vs " in row["variant"] or "shift" in row["variant"]  # what a lead is measured against
    method = ", ".join(
        part
        for part in (row["algorithm"], row["variant"] if row["mean"] and not versus else "")
        if part
    )
    names = [row["dataset"], row["model"], row["setting"].partition(";")[0]]
    names.append(f"iteration {row['round']}" if row["round"].isdigit() else "")
    names.append(row["variant"] if versus or by_metric else "")
    if not by_metric and metric != "accuracy":
        names.append(metric)
    side = ", ".join(name for name in names if name)
    return side, metric if by_metric else method


def _metric(row: Row) -> str:
    """What a number measures, in words, with its unit where the words do not say it."""
    words = re.sub(r"_ge_(\d+)$", r" of \1 % or more", row["metric"]).replace("_", " ")
    words = words.replace("first round test acc", "first iteration with an accuracy")
    words = words.replace("test acc", "accuracy")
    unit = _SIGNS.get(row["unit"], row["unit"])
    plain = words == "accuracy" or "iteration with" in words or unit in ("", "factor", "rounds")
    return words if plain or unit.split()[0] in words else f"{words} ({unit})"


def _cell(cell: Cell) -> str:
    value = ours(cell) or "–"
    return f"{printed(cell)} / {f'**{value}**' if cell.state == REPRODUCED else value}"


def note(cell: Cell, entries: Sequence[Entry], letters: Mapping[str, str] | None = None) -> str:
    """What became of a number, in words: state, difference, seeds, cause and what it rests on.

    Args:
        cell: the number.
        entries: the list of experiments.
        letters: of causes that stand below the notes.
    """
    measured = cell.measured
    if cell.state == NOT_RUN or (cell.row["mean"] and measured is None):
        entry = first_entry(cell, entries)
        needs = f": `{entry.name}` needs {entry.hours:g} h" if entry else ""
        return f"Not yet run{needs}."
    if cell.state == NOT_PRINTED or measured is None:
        return "No number printed."
    if cell.state == SETTING:
        return f"A setting, used as printed{f' ({measured.note})' if measured.note else ''}."
    parts = [cell.state[0].upper() + cell.state[1:]]
    if cell.state == OTHER_DATA:
        parts[0] += f", {measured.stands_in}"
    if difference := signed(cell.difference):
        unit = _UNITS.get(cell.row["unit"], "")
        unit = unit.removesuffix("s") if difference[1:] == "1" else unit
        iterations = unit.startswith("iteration")
        sides = ("later than", "earlier than") if iterations else ("above", "below")
        side = sides[not difference.startswith("+")]
        by = f"{difference[1:]}{f' {unit}' if unit else ''} {side}"
        parts.append(f"ours is {'equal to' if difference == '+0' else by} the printed one")
    if measured.n:
        parts.append(_seeds(measured))
    if measured.end is not None:
        parts.append(f"{measured.end:.2f} after the last round")
    if measured.note:
        parts.append(measured.note)
    if cell.more is not None:
        parts.append(f"with all its {_seeds(cell.more)} {told(cell.more)}")
    if measured.purity is not None:
        parts.append(f"its groups mix clusters, purity {measured.purity:.2f}")
    text = "; ".join(parts) + "."
    if cell.cause is not None and _is_told(cell):
        letter = (letters or {}).get(cell.cause.cause)
        text += f" Cause {letter}." if letter else f" Cause: {cell.cause.cause}"
        text += f" {_tested(cell)}"
    return text


def _seeds(measured: Measured) -> str:
    """How many seeds a number is of, and of what."""
    if measured.over_data:
        return f"{counted_seeds(measured.n)} of the data, one run of each"
    return counted_seeds(measured.n)


def _tested(cell: Cell) -> str:
    """How the cause of a number was tested, and what came out."""
    if cell.cause is None or cell.cause.run is None:
        return f"Tested: {cell.cause.tested}" if cell.cause else ""
    if cell.shown is None:
        return "No run of it is kept."
    outcome = [
        told(cell.shown),
        _seeds(cell.shown),
        cell.shown.note,
    ]
    return f"Tested: `{cell.command}`: {', '.join(text for text in outcome if text)}."


def _claims(claims: Sequence[dict[str, str]]) -> list[str]:
    if not claims:
        return []
    head = ["where", "claim", "measured", "verdict", "seeds"]
    rows = [[(claim | {"verdict": _verdict(claim)})[key] for key in head] for claim in claims]
    return ["## Statements in prose", table(head, rows, len(head))]


def _verdict(claim: Mapping[str, str]) -> str:
    """A verdict, or what it waits for."""
    if not claim["needs"]:
        return claim["verdict"]
    kept_without = claim["needs"].endswith(AGAIN)
    state = "run, but kept without the curve that decides" if kept_without else claim["verdict"]
    return f"{state}; needs {claim['needs']}"


def _figures(paper: str, results: Path, conf: Path) -> list[str]:
    parts = []
    for picture in sorted((results / "runs" / FOLDERS[paper]).rglob("figure.png")):
        name = picture.parent.relative_to(results / "runs").as_posix()
        file = conf / "experiment" / f"{name}.yaml"
        report = (yaml.safe_load(file.read_text()).get("report") or {}) if file.is_file() else {}
        claims = [str(claim["text"]) for claim in report.get("claims") or [] if claim.get("text")]
        parts.append(f"### {report.get('title', name)}")
        parts.append(f"![{name}]({picture.relative_to(results).as_posix()})")
        parts += _drawn_of(picture.with_name("jobs.csv"))
        if claims:
            parts.append("The paper says: " + "; ".join(claims) + ".")
        if known := report.get("published"):
            title = known.partition("/")[2]
            heading = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
            parts.append(f"The printed numbers beside ours: [{title}](#{heading}).")
    return ["## Figures at full size", *parts] if parts else []


def _drawn_of(jobs: Path) -> list[str]:
    """What a figure is drawn of: data and model, methods, seeds, and where the data are others.

    Args:
        jobs: the lines of its runs; those that were cut short are not drawn.
    """
    if not jobs.is_file():
        return []
    with jobs.open(newline="") as lines:
        whole = [row for row in csv.DictReader(lines) if " rounds=" not in row["command"]]
    drawn = drawn_jobs(jobs.parent)
    rows = [row for row in whole if drawn is None or row["file"] in drawn]
    later = [f"{row['algorithm']} {row['options']}".strip() for row in whole if row not in rows]
    cases = {f"{row['case'] or row['dataset']} ({row['model']})": stand_in(row) for row in rows}
    of = ", ".join(dict.fromkeys(row["algorithm"] for row in rows))
    given = [text.partition("=") for row in rows for text in row["options"].split()]
    options = dict.fromkeys(f"{key.rpartition('.')[2]}={value}" for key, _, value in given)
    of += f" with {', '.join(options)}" if options else ""
    seeds = max((row["seeds"].split() for row in rows), key=len)
    shown = f"seed {seeds[0]}" if len(seeds) == 1 else f"up to {counted_seeds(len(seeds))}"
    sentences = [f"Drawn: {'; '.join(cases)}. Methods: {of}; {shown}, mean curves of ours alone."]
    if len(set(cases.values())) == 1:
        others = [name for name in cases.values() if name][:1]
    else:
        others = [f"{name} in {case}" for case, name in cases.items() if name]
    sentences += [f"Not the published data: {'; '.join(others)}."] if others else []
    return [*sentences, f"Not drawn, as run later: {'; '.join(later)}."] if later else sentences

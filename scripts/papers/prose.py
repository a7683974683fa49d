"""What became of every statement in the papers' prose, and which experiments have not been run."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedclust.config.references import at
from fedclust.helpers.errors import require
from fedclust.helpers.prose import table
from fedclust.report.arms import SEPARATOR
from fedclust.report.reference import outcome
from scripts.papers.campaign import Entry
from scripts.papers.cells import Cell, Run, Runs
from scripts.papers.compared import compared, is_compared
from scripts.papers.later_claims import cannot_tell, seeds_of, verdicts
from scripts.papers.rules import NOT_PRINTED, NOT_RUN
from scripts.papers.stand_ins import stand_in
from scripts.papers.tables import first_entry

PAPERS = {  # folders of experiments
    "lcfl": "LCFL",
    "cfl_mgd": "CFL-MGD",
    "jgl": "JGL",
    "flexcfl": "FlexCFL",
    "cfl_gp": "CFL-GP",
    "clove": "CLoVE",
    "stocfl": "StoCFL",
    "feddrift": "FedDrift",
}
FOLDERS = {paper: folder for folder, paper in PAPERS.items()}
ONE_SEED = "one seed"
VERDICTS = ("holds", "does not hold", ONE_SEED, "cannot tell", NOT_RUN)
AGAIN = "again"  # behind the hours of runs that are kept without the curves that decide
_SAID = ("paper", "where", "claim")
_BASE = "algorithm@algorithm.base"  # jobs.csv has the method inside a wrapper
_SCENARIOS = ("swap all", "swap part", "incremental")


def prose(results: Path, conf: Path, entries: Sequence[Entry], runs: Runs) -> list[dict[str, str]]:
    """Every statement of the papers' prose with its verdict, or with the hours it needs.

    Those that experiments check, with what was claimed or run after their report, then those of
    `statements.yaml`. A figure that is printed in parts (fig6a) says what the whole of it says.
    """
    found = []
    for file in sorted((conf / "experiment").rglob("*.yaml")):
        name = file.relative_to(conf / "experiment").with_suffix("").as_posix()
        paper = PAPERS.get(name.partition("/")[0])
        parts = [part for part in file.parent.glob(f"{file.stem}[a-c].yaml") if part != file]
        if paper is None or parts:
            continue
        report: dict[str, Any] = _config(file).get("report") or {}
        swept = at(_config(file), "hydra.sweeper.params") or {}
        rows = _checked(results / "runs" / name / "claims.csv")
        known = [_parts(row["claim"]) for row in rows]
        kept = runs.of(name) or _taken_over(name, entries, runs, conf)
        later = [
            row for claim in report.get("claims") or [] for row in verdicts(claim, kept, swept)
        ]
        rows = [_of_most_seeds(row, later) for row in rows if _is_stated(row, report)]
        rows = [_strict(row, kept) for row in rows]
        rows += [row for row in later if not _is_told(_parts(row["claim"]), known)]
        waiting = {"measured": "", "verdict": NOT_RUN, "seeds": ""}
        rows += [
            waiting
            | {
                "claim": str(claim.get("text") or claim["kind"]),
                "needs": _needs(name, claim, entries, runs, conf),
            }
            for claim in report.get("claims") or []
            if not any(row["claim"].startswith(str(claim.get("text"))) for row in rows)
        ]
        found += [{"paper": paper, "where": name} | row for row in rows]
    return found + _statements(results / "statements.yaml", entries, runs)


@cache
def _config(file: Path) -> Mapping[str, Any]:
    """A file of the config tree; read once, which takes a hundredth of a second for each."""
    return yaml.safe_load(file.read_text()) or {}


def _taken_over(experiment: str, entries: Sequence[Entry], runs: Runs, conf: Path) -> Sequence[Run]:
    """The runs of another experiment that a figure is made of, if it computes nothing itself."""
    by_name = {entry.name: entry for entry in entries}
    of = [by_name[entry.of] for entry in entries if entry.experiment == experiment and entry.of]
    known = [(entry.experiment, _cases(entry, conf)) for entry in of]
    return [run for name, cases in known for run in runs.of(name) if run.made["case"] in cases]


def _is_stated(row: Mapping[str, str], report: Mapping[str, Any]) -> bool:
    """Whether an experiment still states what a kept report was about."""
    texts = [claim.get("text") for claim in report.get("claims") or []]
    return None in texts or _parts(row["claim"])[0] in texts


def _strict(row: dict[str, str], kept: Sequence[Run]) -> dict[str, str]:
    """A line of a report by today's rule: one seed, few seeds and other data decide nothing."""
    pieces = _parts(row["claim"])[1]
    of = [run for run in kept if all(_begins(piece, _title(run)) for piece in pieces)]
    if of and all(stand_in(run.made) for run in of):
        return row | cannot_tell(row)
    holds = {"holds": True, "does not hold": False}.get(row["verdict"])
    agreeing, _, number = row["seeds"].partition(" of ")
    if holds is None or not number:
        return row
    return row | {"verdict": outcome(holds, int(agreeing), int(number))}


def _of_most_seeds(row: dict[str, str], later: Sequence[dict[str, str]]) -> dict[str, str]:
    """A line of `claims.csv`, or what its kept runs say today, unless they know fewer seeds."""
    same = [one for one in later if _is_told(_parts(one["claim"]), [_parts(row["claim"])])]
    best = max(same, key=seeds_of, default=row)
    if best["seeds"] != "–" and not 0 < seeds_of(row) <= seeds_of(best):
        return row
    setting = row["claim"].partition(" [")[2]
    return best | {"claim": best["claim"].partition(" [")[0] + (f" [{setting}" if setting else "")}


def _title(run: Run) -> str:
    shift = run.made["scenario"].replace("_", " ")
    return SEPARATOR.join([run.made["case"], shift])


def _parts(claim: str) -> tuple[str, frozenset[str]]:
    """A statement without its setting and the size that is claimed, and the pieces of the
    setting.
    """
    text, _, setting = claim.removesuffix("]").partition(" [")
    return text.partition(" (claimed ")[0], frozenset(setting.split(SEPARATOR)) - {""}


def _is_told(one: tuple[str, frozenset[str]], known: Sequence[tuple[str, frozenset[str]]]) -> bool:
    """Whether a statement is known: a report names of a setting only what tells it from others."""
    return any(text == one[0] and pieces <= one[1] for text, pieces in known)


def _checked(file: Path) -> list[dict[str, str]]:
    """The lines of a collected `claims.csv`."""
    if not file.is_file():
        return []
    with file.open(newline="") as lines:
        # a report puts an apostrophe before a sign, for programs that would read a formula
        return [
            {key: value.removeprefix("'") for key, value in row.items()} | {"needs": ""}
            for row in csv.DictReader(lines)
        ]


@cache
def _titles(conf: Path) -> dict[str, str]:
    """What reports call the cases, by their names."""
    titles = {}
    for file in (conf / "case").rglob("*.yaml"):
        report = _config(file).get("report") or {}
        name = file.relative_to(conf / "case").with_suffix("").as_posix()
        titles[name] = str(report.get("case") or "")
    return titles


def _needs(
    experiment: str, claim: Mapping[str, Any], entries: Sequence[Entry], runs: Runs, conf: Path
) -> str:
    """The first entry of the list whose runs decide on a claim, with its hours: one that waits, or
    else one whose runs are kept without what decides.

    One that is cut short counts for claims about its rounds, or where there is no other.
    """
    about = [
        piece
        for piece in str(claim.get("setting") or "").split(SEPARATOR)
        if piece and piece not in _SCENARIOS
    ]
    titles, by_name = _titles(conf), {entry.name: entry for entry in entries}
    latest = float(claim.get("round") or max(claim.get("between") or [math.inf]))
    again = short = ""
    for entry in entries:
        given = dict(text.partition("=")[::2] for text in entry.overrides)
        cases = [titles[case] for case in given.get("case", "").split(",") if case]
        fits = not cases or any(all(_begins(one, title) for one in about) for title in cases)
        if entry.experiment != experiment or not fits:
            continue
        computing = by_name.get(entry.of, entry)
        needs = f"{computing.hours:g} h (`{computing.name}`)"
        whole = float(given.get("rounds", math.inf)) >= latest
        if whole and _is_run(computing, runs, conf):
            again = again or f"{needs} {AGAIN}"
        elif whole:
            return needs
        else:
            short = short or needs
    return again or short


def _begins(piece: str, title: str) -> bool:
    return any(part.startswith(piece) for part in title.split(SEPARATOR))


def _statements(file: Path, entries: Sequence[Entry], runs: Runs) -> list[dict[str, str]]:
    """What no report decides: a statement, its verdict, and what shows it, or which runs do.

    Raises:
        ConfigError: for an entry without one of these, or that names no entry of the list.
    """
    nodes = (yaml.safe_load(file.read_text()) if file.is_file() else None) or []
    require(isinstance(nodes, list), str(file), type(nodes).__name__, "a list")
    hours = {entry.name: entry.hours for entry in entries}
    found = []
    for number, node in enumerate(nodes, 1):
        label = f"{file.name}, entry {number}"
        keys = set(node) if isinstance(node, dict) else set()
        rest = keys - {*_SAID}
        fine = keys >= {*_SAID} and (rest in ({"verdict", "shown"}, {"needs"}) or is_compared(rest))
        allowed = (
            "a mapping with paper, where, claim, and verdict and shown or needs, or needs, column "
            "and falls or rises"
        )
        require(fine, label, node, allowed)
        require(node["paper"] in PAPERS.values(), label, node["paper"], "one of the papers")
        verdict, needs = node.get("verdict", NOT_RUN), node.get("needs", "")
        require(verdict in VERDICTS, label, verdict, f"one of {', '.join(VERDICTS)}")
        require(not needs or needs in hours, label, needs, "an entry of the campaign")
        row = {key: str(node[key]) for key in _SAID}
        row |= {"measured": str(node.get("shown", "")), "verdict": verdict, "seeds": ""}
        if is_compared(rest):
            row |= compared(node, runs, label)
        waits = row["verdict"] == NOT_RUN
        found.append(row | {"needs": f"{hours[needs]:g} h (`{needs}`)" if waits else ""})
    return found


def left(cells: Sequence[Cell], entries: Sequence[Entry], runs: Runs, conf: Path) -> list[str]:
    """The experiments that still have to run, with the numbers they would give."""
    waiting: Counter[str] = Counter()
    for cell in cells:
        waits = cell.measured is None and cell.state != NOT_PRINTED
        if waits and (entry := first_entry(cell, entries)) is not None:
            waiting[entry.name] += 1
    open_ones = [
        entry
        for entry in entries
        if waiting[entry.name] or not (_counts(entry) or _is_run(entry, runs, conf))
    ]
    rows = [
        [
            entry.name,
            " ".join([entry.experiment, *entry.overrides]),
            waiting[entry.name] or "",
            f"{entry.hours:g}",
            entry.basis,
        ]
        for entry in open_ones
    ]
    if not rows:
        return []
    # whoever runs an experiment whole does not run its first rounds before
    begun = [e for e in open_ones if any(_begins_as(e, whole) for whole in open_ones)]
    total = sum(entry.hours for entry in open_ones if entry not in begun)
    head = ["entry of scripts/papers/campaign.yaml", "experiment", "numbers", "hours", "estimate"]
    return [
        "## Not yet run",
        f"About {total:.0f} hours of two quiet cores; `python scripts/papers/campaign.py run` does "
        "it.\n"
        "Entries without numbers are ablations, causes and further seeds. An experiment that is\n"
        "listed whole and with its first rounds alone counts once, whole.",
        table(head, rows, 2, left=4),
    ]


def _counts(entry: Entry) -> bool:
    """Whether its printed numbers tell that it was run: not where other data may stand for them."""
    return bool(entry.rows) and not any(text.startswith("dataset=") for text in entry.overrides)


def _begins_as(entry: Entry, whole: Entry) -> bool:
    """Whether an entry is the first rounds of another one."""
    rest = [text for text in entry.overrides if not text.startswith("rounds=")]
    cut = len(rest) < len(entry.overrides)
    return cut and (entry.experiment, rest) == (whole.experiment, list(whole.overrides))


def _is_run(entry: Entry, runs: Runs, conf: Path) -> bool:
    """Whether all jobs of an entry have been run, in every seed and on the data that it names."""
    swept, cases = _swept(entry, conf), _cases(entry, conf)
    rounds = _rounds(entry, conf)
    (seeds,) = swept.get("seeds") or ("",)
    wanted = set(re.findall(r"\d+", seeds)) if seeds.startswith("[") else set()
    found = [
        run
        for run in runs.made_for(entry.experiment)
        if (not cases or run.made["case"] in cases)
        and run.made["dataset"] in swept.get("dataset", [run.made["dataset"]])
        and wanted <= set(run.made["seeds"].split())
        and rounds in ("", run.made["rounds"])
        and run.made["algorithm"] in swept.get(_BASE, [run.made["algorithm"]])
        # a run with another option, or value of it, is another experiment
        and all(
            value in swept.get(key, ())
            for key, _, value in (text.partition("=") for text in run.made["options"].split())
        )
    ]
    return len(found) >= math.prod(map(len, swept.values()))


def _rounds(entry: Entry, conf: Path) -> str:
    """How many rounds an entry has; "" where its case says so."""
    file = conf / "experiment" / f"{entry.experiment}.yaml"
    given = dict(text.partition("=")[::2] for text in entry.overrides)
    return given.get("rounds") or str(_config(file).get("rounds") or "")


def _cases(entry: Entry, conf: Path) -> list[str]:
    """What reports call the cases of an entry."""
    names = _swept(entry, conf).get("case", ())
    return [title for name, title in _titles(conf).items() if name in names]


def _swept(entry: Entry, conf: Path) -> dict[str, list[str]]:
    """The values of every key that an entry or its experiment sweeps or sets."""
    file = conf / "experiment" / f"{entry.experiment}.yaml"
    hydra = _config(file).get("hydra") or {}
    params: dict[str, Any] = (hydra.get("sweeper") or {}).get("params") or {}
    texts = {key: str(value) for key, value in params.items()}
    texts |= dict(text.partition("=")[::2] for text in entry.overrides)
    return {key: _values(text) for key, text in texts.items()}


def _values(text: str) -> list[str]:
    """The values of a sweep; a list is one value, and all seeds of a run are one."""
    if text.startswith("["):
        return [text]
    if span := re.fullmatch(r"range\((\d+),(\d+)\)", text):
        return [str(value) for value in range(int(span[1]), int(span[2]))]
    return text.split(",")

"""Makes docs/results/README.md: every published number, and what became of it at full size.

    make results            or: python -m scripts.results

Reads docs/results/runs (written by `scripts/collect_results.py --runs`), docs/results/causes.yaml
and statements.yaml (filled by hand) and scripts/campaign.yaml (which experiment gives a number, in
how many hours). The same files give the same page. Longer than other files because it is that page,
section by section.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import yaml

from fedclust.helpers.errors import UserError, require
from fedclust.helpers.files import atomic_write
from fedclust.report.arms import SEPARATOR
from scripts import as_released
from scripts.campaign import Entry, read_list
from scripts.cells import (
    CONJECTURE,
    DERIVED,
    NOT_PRINTED,
    NOT_RUN,
    OTHER_DATA,
    OUTSIDE,
    REPRODUCED,
    SETTING,
    SHOWN,
    SPREAD,
    STATES,
    Cell,
    Run,
    Runs,
    algorithm_of,
    case_of,
    judge,
    matches,
    read_causes,
    read_runs,
    scenario_of,
)
from scripts.later_claims import seeds_of, verdicts

ROOT = Path(__file__).resolve().parent.parent
_LARGEST = 10
_PAPERS = {  # folders of experiments
    "lcfl": "LCFL",
    "cfl_mgd": "CFL-MGD",
    "jgl": "Joint gradient+loss CFL",
    "flexcfl": "FlexCFL",
    "cfl_gp": "CFL-GP",
    "clove": "CLoVE",
    "stocfl": "StoCFL",
    "feddrift": "FedDrift",
}
# whose experiments are all here; of the others some
_FOUR = ("LCFL", "CFL-MGD", "Joint gradient+loss CFL", "FlexCFL")
_OPEN = (CONJECTURE, OUTSIDE, OTHER_DATA, NOT_RUN)
_RESULTS = (REPRODUCED, SHOWN, SPREAD, *_OPEN)  # not what was put in, or follows from others
# experiments that run a table again in another way: the table, its title, what is different, and
# what an option of a run begins with that is different
_ONE_CLIENT = "one client as a cluster's mean"
_VARIANTS = {
    "flexcfl/table3_one_client": ("flexcfl/table3", "Table III", _ONE_CLIENT, ""),
    "flexcfl/table4_one_client": ("flexcfl/table4", "Table IV", _ONE_CLIENT, ""),
    "flexcfl/table4_released": ("flexcfl/table4", "Table IV", "the released test of a shift", ""),
    "flexcfl/fesem_start": (
        "flexcfl/table3",
        "Table III",
        "models trained once as the start",
        "algorithm.first_assignment=kmeans_pretrained",
    ),
    "flexcfl/femnist_sharing": (
        "flexcfl/table3",
        "Table III",
        "no image twice",
        "partition.sharing=disjoint",
    ),
    "flexcfl/table4": ("flexcfl/table4", "Table IV", "", "scenario."),
}
_SHIFTS = {"static": "no shift"}  # other scenarios by their names
_VERDICTS = ("holds", "does not hold", "cannot tell", NOT_RUN)
_SAID = ("paper", "where", "claim")
_SCENARIOS = ("swap all", "swap part", "incremental")
_ARTICLES = {
    "LCFL": "lcfl.md",
    "CFL-MGD": "cfl_mgd.md",
    "Joint gradient+loss CFL": "jgl.md",
    "FlexCFL": "flexcfl.md",
    "CFL-GP": "cfl_gp.md",
}
_RULE = """\
States are computed from the runs.

- **reproduced**: the printed number lies within the limit. The limit is the interval in which one
  more run is expected (t s √(1 + 1/n), 95 %, s the standard deviation of our n seeds), or, where
  the paper prints a mean and a spread, that of the difference of two means; and at most 2 points
  or iterations, or 5 % of another quantity. Of one seed nothing is known of the spread: 1 point,
  one iteration or 5 %. Numbers of examples, which are drawn: 1 %. What is printed as a lower bound
  or as a saving is also met by more.
- **cause shown**: it is not, but a run that differs from ours in the named cause alone, with the
  first of its seeds as many as ours, meets the same limit.
- **within our spread**: it lies within that interval, which is wider than 2 points.
- **conjecture**: a cause is named, and no such run agrees.
- **outside**: no cause is known. **other data**: digits for EMNIST's letters, JPEG copies of
  CIFAR-10; never counted. **derived**: a difference of other cells, which follows from them.
  **setting**: a number that was put in.

CFL-GP's two curves are read off a figure, to about half a point. CLoVE's numbers are quoted from
notes on the paper."""
_BEST = """\
FlexCFL prints the best test accuracy over the rounds, which is chosen on test data. The value of
the last round stands beside it below, and here is the order of the methods by either."""


_SCORE, _SCORE_END = "<!-- score, by make results -->", "<!-- end of score -->"


def page(results: Path, campaign: Path, conf: Path) -> str:
    """The page as Markdown.

    Args:
        results: docs/results.
        campaign: the list of experiments.
        conf: the config tree.

    Raises:
        UserError: for a damaged file.
    """
    runs = read_runs(results, conf)
    cells = judge(runs, read_causes(results / "causes.yaml"))
    entries = read_list(campaign)
    claims = prose(results, conf, entries, runs)
    parts = [
        "# The papers at full size",
        "Made by `make results` from the files in `runs`; not written by hand.",
        *_score(cells, claims, runs),
        _RULE,
        *_largest(cells),
        *_orders(cells),
        *_tested_causes(runs, cells),
        *_as_released(runs, cells),
        *_data_seeds(runs, cells),
        "## Every published number",
        *_tables(cells, entries),
        *_claims(claims),
        *_figures(results, conf),
        *_left(cells, entries, runs, conf),
        *_made(runs),
        *_articles(results),
    ]
    return "\n\n".join(parts) + "\n"


def _score(cells: Sequence[Cell], claims: Sequence[Mapping[str, str]], runs: Runs) -> list[str]:
    count = Counter(cell.state for cell in cells)
    results = sum(count[state] for state in _RESULTS)
    derived = [cell for cell in cells if cell.state == DERIVED]
    of_four = Counter(c.state for c in cells if c.row["paper"] in _FOUR)
    told = Counter(claim["verdict"] for claim in claims)
    # a figure's runs may be a table's: computed once
    hours = {(run.made["hash"], run.made["seeds"]): float(run.made["hours"]) for run in runs.runs}
    rows = []
    for paper, experiment in dict.fromkeys((c.row["paper"], c.row["experiment"]) for c in cells):
        of = [c for c in cells if (c.row["paper"], c.row["experiment"]) == (paper, experiment)]
        states = Counter(cell.state for cell in of)
        rows.append([paper, experiment, len(of), *(states[state] or "" for state in STATES)])
    rows.append(["**all**", "", len(cells), *(count[state] or "" for state in STATES)])
    return [
        f"**{count[REPRODUCED]} of {results} published results reproduced**, {_others(count)}.",
        f"LCFL, CFL-MGD, JGL and FlexCFL alone: {of_four[REPRODUCED]} of "
        f"{sum(of_four[state] for state in _RESULTS)} reproduced, {_others(of_four)}.",
        f"The papers print {len(cells)} numbers; of these {count[SETTING]} are settings, used as "
        f"printed, {len(derived)} that were run follow from other cells "
        f"({sum(cell.agrees for cell in derived)} of them agree), and {count[NOT_PRINTED]} is a "
        "cell of a table that is left out.",
        "Statements in prose: " + _counted(told) + ".",
        f"Computing behind the runs below: {sum(hours.values()):.1f} hours.",
        table(["paper", "table or figure", "numbers", *STATES], rows, 3),
    ]


def _others(count: Mapping[str, int]) -> str:
    """What became of the results that were not reproduced."""
    return (
        f"{count[SHOWN]} differ for a cause that a run has shown, {count[SPREAD]} lie within the "
        f"wide spread of our seeds, {count[CONJECTURE]} have a cause that no run shows, "
        f"{count[OUTSIDE]} have none, {count[OTHER_DATA]} were measured on other data and "
        f"{count[NOT_RUN]} have not been run"
    )


def _counted(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{verdicts.get(name, 0)} {name}" for name in _VERDICTS)


def _largest(cells: Sequence[Cell]) -> list[str]:
    """The largest differences without a shown cause."""
    far = [c for c in cells if c.state in (CONJECTURE, OUTSIDE) and not math.isnan(c.difference)]
    percent = [c for c in far if c.row["unit"] in ("percent", "percentage points")]
    far = sorted(percent, key=lambda cell: -abs(cell.difference))[:_LARGEST]
    if not far:
        return []
    rows = [[_place(c), _what(c), _printed(c), _ours(c), _signed(c.difference)] for c in far]
    head = ["where", "what", "printed", "ours", "difference"]
    return ["## Largest differences without a shown cause", table(head, rows, 2)]


def _orders(cells: Sequence[Cell]) -> list[str]:
    """Methods by the printed score, by ours and by the last round."""
    scored = [
        c for c in cells if c.row["round"].startswith("max") and c.row["metric"] == "test_acc"
    ]
    rows: list[list[str]] = []
    leaders: list[list[str]] = []
    settings = dict.fromkeys(_setting_of(cell) for cell in scored)
    for setting in settings:
        of = [c for c in scored if _setting_of(c) == setting and c.measured is not None]
        if len(of) < 2:
            continue
        keys = (
            lambda c: float(c.row["mean"]),
            lambda c: c.measured.value,
            lambda c: math.nan if c.measured.end is None else c.measured.end,
        )
        orders = [[c.row["algorithm"] for c in sorted(of, key=k, reverse=True)] for k in keys]
        leaders.append([order[0] for order in orders])
        rows.append([", ".join(setting), *(" > ".join(order) for order in orders)])
    if not rows:
        return []
    best, last, agree = (
        sum(one[i] == one[k] for one in leaders) for i, k in ((0, 1), (0, 2), (1, 2))
    )
    said = (
        f"The method that is printed first leads in {best} of {len(rows)} settings by our best "
        f"round, and in {last} by the last round. In {len(rows) - agree} the two scores name "
        "different leaders."
    )
    head = ["setting", "printed", "ours, best round", "ours, last round"]
    return ["## Best round or last round", _BEST, said, table(head, rows, 4)]


def _tested_causes(runs: Runs, cells: Sequence[Cell]) -> list[str]:
    """What each variant that a released code or a paper suggests makes of FlexCFL's scores,
    whether it comes nearer to the printed one or not.
    """
    printed = {
        (c.row["experiment"], case_of(c.row), scenario_of(c.row), algorithm_of(c.row)): c
        for c in cells
        if c.row["paper"] == "FlexCFL" and c.row["metric"] == "test_acc"
    }
    rows = []
    for experiment, (base, title, what, option) in _VARIANTS.items():
        for run in runs.of(experiment):
            made = run.made
            cell = printed.get((title, made["case"], made["scenario"], made["algorithm"]))
            values = run.seeds.get("accuracy max", ())
            usual = runs.find(base, made["algorithm"], case=made["case"], scenario=made["scenario"])
            other = not option or any(o.startswith(option) for o in made["options"].split())
            if cell is None or not values or not usual or not other:
                continue
            ours = max(usual, key=lambda one: len(one.seeds["accuracy max"]))
            shift = _SHIFTS.get(made["scenario"], made["scenario"].replace("_", " "))
            name = made["case"] + (f" ({made['dataset']})" if made["stands_in_for"] else "")
            options = " ".join(o for o in made["options"].split() if o.startswith("scenario."))
            rows.append(
                [
                    f"{title}, {name}, {shift}",
                    cell.row["algorithm"],
                    ", ".join(part for part in (what, options and f"`{options}`") if part),
                    cell.row["mean"],
                    _mean_and_std(ours.seeds["accuracy max"]),
                    _mean_and_std(values),
                    len(values),
                ]
            )
    if not rows:
        return []
    head = ["setting", "method", "tested", "printed", "ours", "with it", "seeds"]
    note = (
        "Every variant of FlexCFL's Tables III and IV that was run, also where it leads away from "
        "the printed number: best accuracy over the rounds, in percent, mean and standard "
        "deviation over seeds. What was tried for its other tables, for CFL-MGD and for JGL stands "
        "on the [papers' own pages](#paper-by-paper-and-laptop-scale)."
    )
    return ["## Causes that were tested", note, table(head, sorted(rows, key=lambda r: r[:3]), 3)]


def _as_released(runs: Runs, cells: Sequence[Cell]) -> list[str]:
    """FlexCFL's Table IV in two worlds: all rules of the paper, all rules of its code."""
    count, written, released = as_released.counts(runs, cells)
    if not count:
        return []
    note = (
        f"Of {count} cells that were run both ways {written} agree with all rules as the paper "
        f"writes them, and {released} with all rules of the released code at once: one client as a "
        "cluster's mean for IFCA and FeSEM, its test of a shift, `abort_round`, `shrink_current` "
        "and `complete_start` (`scripts/as_released.py`). No cell chooses a rule of its own. Best "
        "accuracy over the rounds in percent, as many seeds on both sides; * agrees by the rule "
        "above."
    )
    head = ["setting", "method", "printed", "as written", "as released"]
    return [
        "## FlexCFL's Table IV, as written and as released",
        note,
        table(head, as_released.rows(runs, cells), 2),
    ]


def _mean_and_std(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" + (f" ± {pstdev(values):.2f}" if len(values) > 1 else "")


def _setting_of(cell: Cell) -> tuple[str, ...]:
    row = cell.row
    return (row["experiment"], f"{row['dataset']}-{row['model']}", row["setting"].partition(";")[0])


def _data_seeds(runs: Runs, cells: Sequence[Cell]) -> list[str]:
    """FlexCFL's Synthetic(1,1) over seeds of the data, beside the printed rows."""
    by_arm: dict[tuple[str, str, str], dict[str, float]] = {}  # by scenario, its options, method
    for run in (*runs.of("flexcfl/synthetic_seeds"), *runs.of("flexcfl/synthetic_seeds_shift")):
        options = run.made["options"].split()
        (seed,) = (option for option in options if option.startswith("dataset.data_seed="))
        values = run.seeds.get("accuracy max", ())
        if values:
            others = " ".join(option for option in options if option != seed)
            arm = run.made["scenario"], others, run.made["algorithm"]
            by_arm.setdefault(arm, {})[seed] = sum(values) / len(values)
    if not by_arm:
        return []
    printed = {
        (scenario_of(cell.row), algorithm_of(cell.row)): cell.row["mean"]
        for cell in cells
        if cell.row["experiment"] in ("Table III", "Table IV")
        and (cell.row["dataset"], cell.row["model"]) == ("Synthetic(1,1)", "MCLR")
        and cell.row["metric"] == "test_acc"
    }
    rows = []
    for (scenario, options, method), means in sorted(by_arm.items()):
        ascending, paper = sorted(means.values()), printed.get((scenario, method), "")
        shift = "no shift" if scenario == "static" else scenario.replace("_", " ")
        shift = f"{shift}, `{options}`" if options else shift
        spread = f"{ascending[0]:.2f} to {ascending[-1]:.2f}"
        below = sum(value < float(paper or "nan") for value in ascending)
        mean = f"{sum(ascending) / len(means):.2f}"
        beside = (paper, below) if paper else ("–", "–")
        rows.append([shift, method, len(means), mean, spread, *beside])
    flex, rac = (by_arm.get(("static", "", name), {}) for name in ("flexcfl", "flexcfl_rac"))
    common = sorted(set(flex) & set(rac))
    equal = sum(math.isclose(flex[seed], rac[seed], abs_tol=5e-3) for seed in common)
    head = ["shift", "method", "data seeds", "mean", "lowest to highest", "printed"]
    return [
        "## FlexCFL's Synthetic(1,1) over data seeds",
        "Best accuracy over rounds for every seed of the data, the mean of five runs without a\n"
        "shift (Table III) and of one run with it (Table IV). The seed of the published data is\n"
        "not known.",
        table([*head, "data seeds below it"], rows, 2),
        f"FlexCFL and RAC agree to two decimals for {equal} of {len(common)} data seeds:\nall "
        "100 clients are in the cold start, so nobody joins later, at random or not.",
    ]


def _tables(cells: Sequence[Cell], entries: Sequence[Entry]) -> list[str]:
    parts = []
    for (paper, experiment), group in groupby(
        cells, key=lambda c: (c.row["paper"], c.row["experiment"])
    ):
        of = list(group)
        parts.append(f"### {paper}, {experiment}")
        ends = any(c.measured is not None and c.measured.end is not None for c in of)
        head = ["what", "printed", "ours", *(["at the end"] if ends else [])]
        head += ["seeds", "difference", "state"]
        rows = []
        for c in of:
            end = "" if c.measured is None or c.measured.end is None else f"{c.measured.end:.2f}"
            seeds = c.measured.n or "" if c.measured else ""
            found = [_what(c), _printed(c), _ours(c), *([end] if ends else [])]
            rows.append([*found, seeds, _signed(c.difference), _state(c, entries)])
        parts.append(table(head, rows, 1, left=len(head) - 1))
    return parts


def _what(cell: Cell) -> str:
    """What a number is, in the words of the table."""
    row = cell.row
    names = [row["dataset"], row["model"], row["algorithm"], row["variant"]]
    setting = row["setting"].partition(";")[0]
    names += [setting, f"iteration {row['round']}" if row["round"].isdigit() else ""]
    if row["metric"] != "test_acc":
        names.append(row["metric"].replace("_", " "))
    return ", ".join(name for name in names if name)


def _place(cell: Cell) -> str:
    return f"{cell.row['paper']}, {cell.row['experiment']}"


def _printed(cell: Cell) -> str:
    row = cell.row
    return f"{row['mean']} ± {row['std']}" if row["std"] else row["mean"] or "–"


def _ours(cell: Cell) -> str:
    found = cell.measured
    if found is None:
        return ""
    if math.isnan(found.value):
        return "not reached"
    plain = f"{found.value:.0f}" if found.value >= 1000 else f"{found.value:.4g}"
    return plain if found.std is None else f"{found.value:.2f} ± {found.std:.2f}"


def _signed(value: float) -> str:
    if math.isnan(value):
        return ""
    return (f"{value:+.3g}" if abs(value) < 1000 else f"{value:+,.0f}").replace("-", "−")


def _state(cell: Cell, entries: Sequence[Entry]) -> str:
    """What became of a number, in words."""
    note = f"; {cell.measured.note}" if cell.measured and cell.measured.note else ""
    if cell.state == NOT_RUN:
        entry = first_entry(cell, entries)
        if entry is None:
            return "not yet run"
        return f"not yet run, needs {entry.hours:g} h (`{entry.name}`)"
    if cell.state in (REPRODUCED, SETTING):
        return f"{'reproduced' if cell.state == REPRODUCED else 'used as printed'}{note}"
    if cell.cause is not None and cell.state != OTHER_DATA:
        return f"{cell.state}{note}: {cell.cause.cause} Tested: {cell.cause.tested}"
    if cell.state == OTHER_DATA and cell.measured:
        return f"other data in place of {cell.measured.stands_in_for}{note}"
    return "no number printed" if cell.state == NOT_PRINTED else f"{cell.state}{note}"


def first_entry(cell: Cell, entries: Sequence[Entry]) -> Entry | None:
    """The first experiment of the list that gives a number."""
    wanted = (entry for entry in entries if any(matches(cell.row, row) for row in entry.rows))
    return next(wanted, None)


def prose(results: Path, conf: Path, entries: Sequence[Entry], runs: Runs) -> list[dict[str, str]]:
    """Every statement of the papers' prose with its verdict, or with the hours it needs.

    Those that experiments check, with what was claimed or run after their report, then those of
    `statements.yaml`. A figure that is printed in parts (fig6a) says what the whole of it says.
    """
    titles = _titles(conf)
    found = []
    for file in sorted((conf / "experiment").rglob("*.yaml")):
        name = file.relative_to(conf / "experiment").with_suffix("").as_posix()
        paper = _PAPERS.get(name.partition("/")[0])
        parts = [part for part in file.parent.glob(f"{file.stem}[a-c].yaml") if part != file]
        if paper is None or parts:
            continue
        report: dict[str, Any] = (yaml.safe_load(file.read_text()) or {}).get("report") or {}
        rows = _checked(results / "runs" / name / "claims.csv")
        known = [_parts(row["claim"]) for row in rows]
        kept = runs.of(name) or _taken_over(name, entries, runs, conf)
        later = [row for claim in report.get("claims") or [] for row in verdicts(claim, kept)]
        rows = [_of_most_seeds(row, later) for row in rows]
        rows += [row for row in later if not _is_told(_parts(row["claim"]), known)]
        where = {"paper": paper, "where": name}
        found += [where | row for row in rows]
        found += [
            where
            | {
                "claim": str(claim.get("text") or claim["kind"]),
                "measured": "",
                "verdict": NOT_RUN,
                "seeds": "",
                "needs": _needs(name, claim, entries, titles),
            }
            for claim in report.get("claims") or []
            if not any(row["claim"].startswith(str(claim.get("text"))) for row in rows)
        ]
    return found + _statements(results / "statements.yaml", entries)


def _taken_over(experiment: str, entries: Sequence[Entry], runs: Runs, conf: Path) -> Sequence[Run]:
    """The runs of another experiment that a figure is made of, if it computes nothing itself."""
    by_name = {entry.name: entry for entry in entries}
    of = [by_name[entry.of] for entry in entries if entry.experiment == experiment and entry.of]
    known = [(entry.experiment, _cases(entry, conf)) for entry in of]
    return [run for name, cases in known for run in runs.of(name) if run.made["case"] in cases]


def _of_most_seeds(row: dict[str, str], later: Sequence[dict[str, str]]) -> dict[str, str]:
    """A line of `claims.csv`, or the later one on the same that knows more seeds."""
    same = [one for one in later if _is_told(_parts(one["claim"]), [_parts(row["claim"])])]
    best = max(same, key=seeds_of, default=row)
    return best | {"claim": row["claim"]} if seeds_of(best) > seeds_of(row) > 0 else row


def _parts(claim: str) -> tuple[str, frozenset[str]]:
    """A statement without its setting, and the pieces of that."""
    text, _, setting = claim.removesuffix("]").partition(" [")
    return text, frozenset(setting.split(SEPARATOR)) - {""}


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


def _titles(conf: Path) -> dict[str, str]:
    """What reports call the cases, by their names."""
    titles = {}
    for file in (conf / "case").rglob("*.yaml"):
        report = yaml.safe_load(file.read_text()).get("report") or {}
        name = file.relative_to(conf / "case").with_suffix("").as_posix()
        titles[name] = str(report.get("case") or "")
    return titles


def _needs(
    experiment: str, claim: Mapping[str, Any], entries: Sequence[Entry], titles: Mapping[str, str]
) -> str:
    """The first entry of the list whose runs decide on a claim, with its hours.

    One that is cut short counts for claims about its rounds, or where there is no other.
    """
    about = [
        piece
        for piece in str(claim.get("setting") or "").split(SEPARATOR)
        if piece and piece not in _SCENARIOS
    ]
    by_name = {entry.name: entry for entry in entries}
    latest = float(claim.get("round") or max(claim.get("between") or [math.inf]))
    short = ""
    for entry in entries:
        given = dict(text.partition("=")[::2] for text in entry.overrides)
        cases = [titles[case] for case in given.get("case", "").split(",") if case]
        fits = not cases or any(all(_begins(one, title) for one in about) for title in cases)
        if entry.experiment != experiment or not fits:
            continue
        computing = by_name.get(entry.of, entry)
        needs = f"{computing.hours:g} h (`{computing.name}`)"
        if float(given.get("rounds", math.inf)) >= latest:
            return needs
        short = short or needs
    return short


def _begins(piece: str, title: str) -> bool:
    return any(part.startswith(piece) for part in title.split(SEPARATOR))


def _statements(file: Path, entries: Sequence[Entry]) -> list[dict[str, str]]:
    """What no curve decides: a statement, its verdict, and what shows it.

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
        fine = keys in ({*_SAID, "verdict", "shown"}, {*_SAID, "needs"})
        allowed = "a mapping with paper, where, claim, and verdict and shown or needs"
        require(fine, label, node, allowed)
        require(node["paper"] in _PAPERS.values(), label, node["paper"], "one of the papers")
        verdict, needs = node.get("verdict", NOT_RUN), node.get("needs", "")
        require(verdict in _VERDICTS, label, verdict, f"one of {', '.join(_VERDICTS)}")
        require(not needs or needs in hours, label, needs, "an entry of the campaign")
        said = {key: str(node[key]) for key in _SAID}
        rest = {"measured": str(node.get("shown", "")), "verdict": verdict, "seeds": ""}
        found.append(said | rest | {"needs": needs and f"{hours[needs]:g} h (`{needs}`)"})
    return found


def _claims(claims: Sequence[Mapping[str, str]]) -> list[str]:
    parts = ["## Every statement in prose"]
    for paper in dict.fromkeys(claim["paper"] for claim in claims):
        rows = [
            [
                claim["where"],
                claim["claim"],
                claim["measured"],
                ", needs ".join(text for text in (claim["verdict"], claim["needs"]) if text),
                claim["seeds"],
            ]
            for claim in claims
            if claim["paper"] == paper
        ]
        head = ["where", "claim", "measured", "verdict", "seeds"]
        parts += [f"### {paper}: prose", table(head, rows, len(head))]
    return parts


def _figures(results: Path, conf: Path) -> list[str]:
    parts = []
    for picture in sorted((results / "runs").rglob("figure.png")):
        name = picture.parent.relative_to(results / "runs").as_posix()
        file = conf / "experiment" / f"{name}.yaml"
        report = (yaml.safe_load(file.read_text()).get("report") or {}) if file.is_file() else {}
        said = [str(claim["text"]) for claim in report.get("claims") or [] if claim.get("text")]
        parts.append(f"### {report.get('title', name)}")
        parts.append(f"![{name}]({picture.relative_to(results).as_posix()})")
        if said:
            parts.append("The paper says: " + "; ".join(said) + ".")
        if printed := report.get("published"):
            title = printed.replace("/", ", ")
            heading = re.sub(r"[^a-z0-9]+", "-", title.lower())
            parts.append(f"The printed numbers beside ours: [{title}](#{heading}).")
    return ["## Figures at full size", *parts] if parts else []


def _left(cells: Sequence[Cell], entries: Sequence[Entry], runs: Runs, conf: Path) -> list[str]:
    """The experiments that still have to run, with the numbers they would give."""
    waiting: Counter[str] = Counter()
    for cell in cells:
        if cell.state == NOT_RUN and (entry := first_entry(cell, entries)) is not None:
            waiting[entry.name] += 1
    left = [e for e in entries if waiting[e.name] or not (e.rows or _is_run(e, runs, conf))]
    rows = [
        [
            entry.name,
            " ".join([entry.experiment, *entry.overrides]),
            waiting[entry.name] or "",
            f"{entry.hours:g}",
            entry.basis,
        ]
        for entry in left
    ]
    if not rows:
        return []
    # whoever runs an experiment whole does not run its first rounds before
    begun = [e for e in left if any(_begins_as(e, whole) for whole in left)]
    total = sum(entry.hours for entry in left if entry not in begun)
    head = ["entry of scripts/campaign.yaml", "experiment", "numbers", "hours", "estimate"]
    return [
        "## Not yet run",
        f"About {total:.0f} hours of two quiet cores; `python scripts/campaign.py run` does it.\n"
        "Entries without numbers are ablations, causes and further seeds. An experiment that is\n"
        "listed whole and with its first rounds alone counts once, whole.",
        table(head, rows, 2, left=4),
    ]


def _begins_as(entry: Entry, whole: Entry) -> bool:
    """Whether an entry is the first rounds of another one."""
    rest = [text for text in entry.overrides if not text.startswith("rounds=")]
    cut = len(rest) < len(entry.overrides)
    return cut and (entry.experiment, rest) == (whole.experiment, list(whole.overrides))


def _is_run(entry: Entry, runs: Runs, conf: Path) -> bool:
    """Whether all jobs of an entry that gives no printed number have been run, in every seed."""
    swept, cases = _swept(entry, conf), _cases(entry, conf)
    (seeds,) = swept.get("seeds") or ("",)
    wanted = set(re.findall(r"\d+", seeds)) if seeds.startswith("[") else set()
    found = [
        run
        for run in runs.of(entry.experiment)
        if (not cases or run.made["case"] in cases)
        and wanted <= set(run.made["seeds"].split())
        # a run with another option is another experiment
        and {option.partition("=")[0] for option in run.made["options"].split()} <= set(swept)
    ]
    return len(found) >= math.prod(map(len, swept.values()))


def _cases(entry: Entry, conf: Path) -> list[str]:
    """What reports call the cases of an entry."""
    names = _swept(entry, conf).get("case", ())
    return [title for name, title in _titles(conf).items() if name in names]


def _swept(entry: Entry, conf: Path) -> dict[str, list[str]]:
    """The values of every key that an entry or its experiment sweeps or sets."""
    file = conf / "experiment" / f"{entry.experiment}.yaml"
    hydra = yaml.safe_load(file.read_text()).get("hydra") or {}
    params: dict[str, Any] = (hydra.get("sweeper") or {}).get("params") or {}
    texts = {key: str(value) for key, value in params.items()}
    texts |= dict(text.partition("=")[::2] for text in entry.overrides)
    # a list is one value; of seeds, which add up to one run, all are
    return {key: [v] if v.startswith("[") else v.split(",") for key, v in texts.items()}


def _made(runs: Runs) -> list[str]:
    """What made the runs."""
    if not runs.runs:
        return []
    rows = []
    for experiment in dict.fromkeys(run.experiment for run in runs.runs):
        of = [run.made for run in runs.of(experiment)]
        rows.append(
            [
                f"[{experiment}](runs/{experiment}/jobs.csv)",
                len(of),
                f"{sum(float(made['hours']) for made in of):.2f}",
                ", ".join(sorted({made["commit"] or made["version"] for made in of})),
                ", ".join(sorted({made["machine"] for made in of})),
                max(made["date"] for made in of),
            ]
        )
    head = ["experiment", "jobs", "hours", "commit", "machine", "last run"]
    note = "The command, seeds and rounds of every job are in the linked files."
    return ["## What made these numbers", table(head, rows, 1, left=3), note]


def _articles(results: Path) -> list[str]:
    """Links to the pages about the papers, and to smaller runs."""
    links = [
        f"- [{paper}]({page})" for paper, page in _ARTICLES.items() if (results / page).is_file()
    ]
    if (results / "compare.md").is_file():
        links.append("- [comparison of methods](compare.md)")
    if not links:
        return []
    note = "What was run besides, most of it smaller: for orderings and mechanisms, not for values."
    return ["## Paper by paper, and laptop scale", note, "\n".join(links)]


def table(
    head: Sequence[str], rows: Sequence[Sequence[object]], numbers: int, left: int | None = None
) -> str:
    """A Markdown table; the columns from `numbers` to `left` are set to the right."""
    end = len(head) if left is None else left
    rule = ["---:" if numbers <= i < end else "---" for i in range(len(head))]
    lines = [head, rule, *([str(value).replace("|", "\\|") for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_score(readme: str, text: str) -> str:
    """A text with the score of the page between its two marks; the text itself without them."""
    begin, found, rest = readme.partition(_SCORE)
    if not found:
        return readme
    score = next(line for line in text.splitlines() if line.startswith("**"))
    score = textwrap.fill(score, 100, break_long_words=False, break_on_hyphens=False)
    end = rest.partition(_SCORE_END)[2]
    return f"{begin}{_SCORE}\n{score}\n{_SCORE_END}{end}"


def main(given: Sequence[str]) -> int:
    """Write the page; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results")
    parser.add_argument("--campaign", type=Path, default=ROOT / "scripts" / "campaign.yaml")
    parser.add_argument("--conf", type=Path, default=ROOT / "conf")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="gets the score")
    asked = parser.parse_args(list(given))
    try:
        text = page(asked.results, asked.campaign, asked.conf)
    except UserError as error:
        print(f"results: {error}", file=sys.stderr)
        return UserError.exit_status
    atomic_write(asked.results / "README.md", text)
    print(asked.results / "README.md")
    if asked.readme.is_file():
        atomic_write(asked.readme, with_score(asked.readme.read_text(), text))
        print(asked.readme)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

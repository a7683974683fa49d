"""Makes the pages about the papers in docs/results: README.md, and one for every paper.

    make results            or: python -m scripts.papers.results

Reads docs/results/runs (written by `scripts/papers/collect_results.py`), leads.yaml,
causes.yaml, statements.yaml and sources.yaml in docs/results (filled by hand) and
scripts/papers/campaign.yaml (which experiment gives a number, in how many hours). The same files
give the same pages.
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import yaml

from fedclust.helpers.errors import UserError
from fedclust.helpers.files import atomic_write
from fedclust.helpers.prose import table
from fedclust.papers.published import margin
from scripts.papers import drawn, evidence, flexcfl_trials, one_world, paper_page, score, sources
from scripts.papers.campaign import read_list
from scripts.papers.cells import Cell, Runs, judge, read_causes, read_runs, setting_of
from scripts.papers.later_claims import MACHINES, VERSIONS
from scripts.papers.prose import ONE_SEED, PAPERS, left, prose
from scripts.papers.rules import (
    CONJECTURE,
    DERIVED,
    NOT_PRINTED,
    NOT_RUN,
    OTHER_DATA,
    OUTSIDE,
    REPRODUCED,
    SETTING,
    SHOWN,
    STATES,
)
from scripts.papers.tables import each_commit, machines, ours, printed, signed, what

ROOT = Path(__file__).resolve().parents[2]
RULES = Path(__file__).with_name("rules.md")  # what the states mean, by hand
INDEX, RUNS, TRIALS = "README.md", "numbers_runs.md", "numbers_flexcfl_trials.md"
_LARGEST = 10
# whose experiments are all here; of the others some
_FOUR = ("LCFL", "CFL-MGD", "JGL", "FlexCFL")
_ARTICLES = {
    "LCFL": "lcfl.md",
    "CFL-MGD": "cfl_mgd.md",
    "JGL": "jgl.md",
    "FlexCFL": "flexcfl.md",
    "CFL-GP": "cfl_gp.md",
}
_BEST = """\
FlexCFL prints the best test accuracy over all rounds, so the round is selected on test data. Below
is the order of the methods in every row of its tables, by the best round and by the last one. Two
methods with equal printed values count as in order if our values are equal too."""
_CHOSEN = (
    " Of the shown causes, {} {} how unequal the clients' amounts of data are. The paper does not "
    "state this spread, and its value was chosen so that these same results agree."
)
_SCORE, _SCORE_END = "<!-- score, by make results -->", "<!-- end of score -->"


def pages(results: Path, campaign: Path, conf: Path) -> dict[str, str]:
    """The pages as Markdown and the pictures of their tables, by the names of their files.

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
    trials = [
        "# FlexCFL: in one world, and tested causes",
        f"The numbers themselves: [FlexCFL]({paper_page.page_name('FlexCFL')}).",
        *flexcfl_trials.both_ways(runs, cells),
        *one_world.told(runs, cells),
        *flexcfl_trials.data_seeds(runs, cells),
        *flexcfl_trials.spreads(runs, cells),
        *flexcfl_trials.tested_causes(runs, cells),
    ]
    more = {"FlexCFL": [*_orders(cells), f"[Tables I, III and IV run in other ways]({TRIALS})."]}
    code = paper_page.page_name("FlexCFL")
    made = {TRIALS: sources.linked("\n\n".join(trials), code) + "\n"}
    file = results / "leads.yaml"
    leads: Mapping[str, str] = yaml.safe_load(file.read_text()) if file.is_file() else {}
    beside = sources.read_sources(results / "sources.yaml")
    for paper in PAPERS.values():
        of = [cell for cell in cells if cell.row["paper"] == paper]
        stated = [claim for claim in claims if claim["paper"] == paper]
        name = paper_page.page_name(paper)
        pictures = drawn.pictures(of)
        files = {experiment: drawn.file_of(name, experiment) for experiment in pictures}
        made |= {files[experiment]: text for experiment, text in pictures.items()}
        made[name] = paper_page.page(
            paper,
            leads.get(paper, ""),
            of,
            stated,
            entries,
            results,
            conf,
            more.get(paper, ()),
            sources.parts(beside.get(paper, {}), runs),
            files,
        )
    made[score.PICTURE] = score.bar(Counter(cell.state for cell in cells))
    index = [
        "# The papers at full size",
        *_leads(leads),
        *_score(cells, claims, runs),
        *evidence.of_runs(cells),
        RULES.read_text().rstrip(),
        *evidence.of_signs(cells),
        *_largest(cells),
        *_articles(results),
        "Made by `make results` from the files in `runs`, but for the sentences at the top and the "
        "meaning of the states.",
    ]
    computed = ["# What was run, and what was not", *left(cells, entries, runs, conf), *_made(runs)]
    return {
        INDEX: "\n\n".join(index) + "\n",
        RUNS: "\n\n".join(computed) + "\n",
        **made,
    }


def _leads(leads: Mapping[str, str]) -> list[str]:
    """What stands and what does not, an entry per paper with a link to its page."""
    lines = [
        f"- **[{paper}]({paper_page.page_name(paper)})**: {leads.get(paper, '')}".rstrip()
        for paper in PAPERS.values()
    ]
    return ["\n".join(lines), *([leads["terms"]] if leads else [])]


def _score(cells: Sequence[Cell], claims: Sequence[Mapping[str, str]], runs: Runs) -> list[str]:
    count = Counter(cell.state for cell in cells)
    derived = [cell for cell in cells if cell.state == DERIVED]
    run_too = [cell for cell in derived if cell.measured and not cell.measured.stands_in]
    near = sum(abs(cell.difference) <= margin(cell.row) for cell in run_too)
    chosen = sum(cell.state == SHOWN and "partition.spread" in cell.command for cell in cells)
    best = [cell for cell in cells if cell.state == REPRODUCED]
    runs_of, seeds_of = evidence.independent(best)
    own = sum(map(evidence.is_own, best))
    # a figure's runs may be a table's: computed once
    hours = {(run.made["hash"], run.made["seeds"]): float(run.made["hours"]) for run in runs.runs}
    of: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        of.setdefault((cell.row["paper"], cell.row["experiment"]), []).append(cell)
    of[f"**{', '.join(_FOUR)}**", ""] = [cell for cell in cells if cell.row["paper"] in _FOUR]
    of["**all**", ""] = list(cells)
    rows = []
    for names, those in of.items():
        states = Counter(cell.state for cell in those)
        rows.append([*names, len(those), *(states[state] or "" for state in STATES)])
    return [
        "## Score by state",
        score.sentence(count),
        f"The {count[REPRODUCED]} rest on {runs_of} independent runs with {seeds_of} seeds "
        f"together; {own} of them are of the method that the paper itself proposes. Of the results "
        f"that differ, a further run has shown the cause for {count[SHOWN]}, we suspect one that "
        f"no run confirms for {count[CONJECTURE]}, and know none for {count[OUTSIDE]}."
        + (_CHOSEN.format(chosen, "is" if chosen == 1 else "are") if chosen else ""),
        f"The papers print {len(cells)} numbers. Not counted as results are: {count[SETTING]} "
        f"settings, used as printed; {len(derived)} numbers that follow from others or repeat "
        f"them ({len(run_too)} of these were run, and {near} lie within a point of the printed "
        f"one); and {count[NOT_PRINTED]} cell of a table that the paper leaves empty.",
        f"Of {len(claims)} statements that the papers make in words, {_counted(claims)}",
        f"The runs took {sum(hours.values()):.1f} hours of computing. A run that serves two "
        "experiments is counted once. "
        f"[What was run, and what was not]({RUNS}).",
        table(["paper", "table or figure", "numbers", *STATES], rows, 3),
    ]


def _counted(claims: Sequence[Mapping[str, str]]) -> str:
    """How many statements hold and so on; of those of one seed also whether they held in it."""
    count = Counter(claim["verdict"] for claim in claims)
    alone = Counter(claim["seeds"][:1] for claim in claims if claim["verdict"] == ONE_SEED)
    return (
        f"{count['holds']} hold and {count['does not hold']} do not hold. {count[ONE_SEED]} were "
        f"run with one seed only (in it {alone['1']} held and {alone['0']} did not). For "
        f"{count['cannot tell']} the runs cannot tell, and for {count[NOT_RUN]} the runs are still "
        f"missing. {_of_versions(claims)}"
    )


def _of_versions(claims: Sequence[Mapping[str, str]]) -> str:
    """How many decided statements compare runs of two versions of the code, or of two machines."""
    decided = [one for one in claims if one["verdict"] in ("holds", "does not hold", ONE_SEED)]
    versions, machines = (
        sum(what in one["measured"] for one in decided) for what in (VERSIONS, MACHINES)
    )
    return (
        f"{versions} of the statements that are answered compare runs of two versions of the code, "
        f"and {machines} those of two machines."
    )


def _largest(cells: Sequence[Cell]) -> list[str]:
    """The largest differences without a shown cause."""
    far = [c for c in cells if c.state in (CONJECTURE, OUTSIDE) and not math.isnan(c.difference)]
    percent = [c for c in far if c.row["unit"] in ("percent", "percentage points")]
    far = sorted(percent, key=lambda cell: -abs(cell.difference))[:_LARGEST]
    if not far:
        return []
    rows = [
        [
            f"{cell.row['paper']}, {cell.row['experiment']}",
            what(cell),
            printed(cell),
            ours(cell),
            signed(cell.difference),
        ]
        for cell in far
    ]
    head = ["where", "what", "printed, %", "ours, %", "difference, points"]
    note = "Accuracies only. Numbers of rounds and other quantities are on the papers' pages."
    return ["## Largest differences without a shown cause", table(head, rows, 2), note]


def _orders(cells: Sequence[Cell]) -> list[str]:
    """Of how many pairs of methods in a row the printed order is ours."""
    scored = [
        c for c in cells if c.row["round"].startswith("max") and c.row["metric"] == "test_acc"
    ]
    rows: list[list[object]] = []
    total = {state: [0, 0, 0] for state in (False, True)}  # of the paper's data, of others
    for setting in dict.fromkeys(setting_of(cell.row) for cell in scored):
        of = [c for c in scored if setting_of(c.row) == setting and c.measured and c.row["mean"]]
        if len(of) < 2:
            continue
        kept, other = in_order(of), of[0].state == OTHER_DATA
        total[other] = [a + b for a, b in zip(total[other], kept, strict=True)]
        by_ours = sorted(of, key=lambda c: -c.measured.value if c.measured else math.nan)
        names = [c.row["algorithm"] for c in by_ours]
        data = ", ".join(setting) + (" (other data)" if other else "")
        rows.append([data, _printed_order(of), " > ".join(names), *kept])
    if not rows:
        return []
    for other, where in ((False, "the paper's data"), (True, "other data")):
        if total[other][0]:
            rows.append([f"**all on {where}**", "", "", *total[other]])
    head = ["setting", "printed", "ours, best round", "pairs", "kept by best", "kept by last"]
    return ["## The order of the methods", _BEST, table(head, rows, 3)]


def in_order(cells: Sequence[Cell]) -> list[int]:
    """How many pairs of cells there are, and how many of them are in the printed order, or equal
    where they are printed equal to its decimals, by the best and by the last round.
    """
    kept = [0, 0, 0]
    for one, other in combinations(cells, 2):
        assert one.measured
        assert other.measured
        kept[0] += 1
        wanted = _sign(float(one.row["mean"]) - float(other.row["mean"]))
        for at, value in enumerate(("value", "end"), 1):
            a, b = getattr(one.measured, value), getattr(other.measured, value)
            if a is not None and b is not None:
                kept[at] += (
                    _sign(round(a - b, 2) if wanted else round(a, 1) - round(b, 1)) == wanted
                )
    return kept


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _printed_order(cells: Sequence[Cell]) -> str:
    """The methods by the printed score, ties with an equals sign."""
    ranked = sorted(cells, key=lambda c: -float(c.row["mean"]))
    text = ranked[0].row["algorithm"]
    for before, cell in pairwise(ranked):
        text += " = " if before.row["mean"] == cell.row["mean"] else " > "
        text += cell.row["algorithm"]
    return text


def _made(runs: Runs) -> list[str]:
    """What made the runs."""
    if not runs.runs:
        return []
    rows = []
    for experiment in dict.fromkeys(run.experiment for run in runs.runs):
        of = [run.made for run in runs.made_for(experiment)]
        rows.append(
            [
                f"[{experiment}](runs/{experiment}/jobs.csv)",
                len(of),
                f"{sum(float(made['hours']) for made in of):.2f}",
                each_commit(made["commit"] or made["version"] for made in of),
                machines(made["machine"] for made in of),
                max(made["date"] for made in of),
            ]
        )
    head = ["experiment", "jobs", "hours", "commit", "machine", "last run"]
    note = "The command, seeds and rounds of every job are in the linked files."
    return ["## What made these numbers", table(head, rows, 1, left=3), note]


def _articles(results: Path) -> list[str]:
    """Links to the pages about the papers."""
    links = [
        f"- [{paper}]({page})" for paper, page in _ARTICLES.items() if (results / page).is_file()
    ]
    if not links:
        return []
    note = (
        "These pages describe further runs at full size: single seeds, options, and attempts to "
        "explain differences."
    )
    return ["## What else was run", note, "\n".join(links)]


def with_score(readme: str, text: str) -> str:
    """A text with the first sentence of the page's score between its two marks; the text itself
    without them.
    """
    begin, mark, rest = readme.partition(_SCORE)
    if not mark:
        return readme
    score = next(line for line in text.splitlines() if line.startswith("**"))
    end = rest.partition(_SCORE_END)[2]
    return f"{begin}{_SCORE}\n{_filled(score)}\n{_SCORE_END}{end}"


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def main(given: Sequence[str]) -> int:
    """Write the pages; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results")
    parser.add_argument(
        "--campaign", type=Path, default=ROOT / "scripts" / "papers" / "campaign.yaml"
    )
    parser.add_argument("--conf", type=Path, default=ROOT / "conf")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="gets the score")
    asked = parser.parse_args(list(given))
    try:
        made = pages(asked.results, asked.campaign, asked.conf)
    except UserError as error:
        print(f"results: {error}", file=sys.stderr)
        return UserError.exit_status
    for name, text in made.items():
        (asked.results / name).parent.mkdir(parents=True, exist_ok=True)
        atomic_write(asked.results / name, text)
        print(asked.results / name)
    if asked.readme.is_file():
        atomic_write(asked.readme, with_score(asked.readme.read_text(), made[INDEX]))
        print(asked.readme)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A second reader of docs/results: it takes the numbers off the pages, and computes them again.

    make audit                                     every number of the pages from the kept files
    python -m scripts.papers.audit --again 2       two kept jobs, run again to the digit

It imports nothing of scripts/papers, so that a mistake there is not repeated here. A number of ours
must be the mean (with the same spread), the median, the ratio or the saving of some kept run of the
method that its column names; its state must follow from it by the rules of README.md; the score
must be the count of the states.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, median, stdev

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
_CELL = re.compile(r"(-?[\d.]+)(?: ± ([\d.]+))? / (\**)(-?[\d.e+]+|not reached)(?: ± ([\d.]+))?\**")
_CELL_END = re.compile(r" <sup>(\d+)</sup>")
_STATES = (
    *("reproduced", "consistent", "one seed, within a point", "cause shown", "cannot tell"),
    *("conjecture", "outside", "other data", "not yet run", "derived", "a setting", "no number"),
)
_DATA_SEED = re.compile(r"dataset\.data_seed=(\d+) ?")
_FIRST = "accuracy"


@dataclass(frozen=True)
class Number:
    """A printed number and ours, as a page has them.

    Attributes:
        page, method, row: where it stands.
        printed, spread: the paper's.
        ours, std: as they are written; std "" for none.
        bold: whether it is marked as reproduced.
        note: what became of it.
    """

    page: str
    method: str
    row: str
    printed: str
    spread: str
    ours: str
    std: str
    bold: bool
    note: str

    @property
    def state(self) -> str:
        """What the note begins with."""
        return next((s for s in _STATES if self.note.lower().startswith(s)), "")

    @property
    def seeds(self) -> int:
        """How many seeds the note tells."""
        plain = self.note.partition(" Cause")[0]
        found = re.search(r"; (one|\d+) seeds?\b", plain)
        return 0 if found is None else 1 if found[1] == "one" else int(found[1])


def numbers(page: Path) -> Iterator[Number]:
    """Every printed number of a page beside ours."""
    for part in page.read_text().split("\n## ")[1:]:
        lines = part.splitlines()
        notes = dict(re.findall(r"^(\d+)\. (.*)$", part, re.MULTILINE))
        head = next((line for line in lines if line.startswith("|")), "")
        methods = [text.strip() for text in head.split("|")[1:-1]]
        for line in lines if notes and "## " not in part else ():
            cells = [text.strip() for text in line.split("|")[1:-1]] if line[:1] == "|" else []
            for method, cell in zip(methods[1:], cells[1:], strict=False):
                for text in re.split(r"(?<=</sup>), ", cell):
                    found, end = _CELL.match(text), _CELL_END.search(text)
                    if found is not None and end is not None:
                        told = [one or "" for one in found.groups()]
                        where = (page.name, method, cells[0])
                        values = (told[0], told[1], told[3], told[4], bool(told[2]))
                        yield Number(*where, *values, notes[end[1]])


@dataclass(frozen=True)
class Kept:
    """A run of docs/results/runs: its line of jobs.csv, and per column the seeds' values."""

    made: Mapping[str, str]
    columns: Mapping[str, Mapping[str, float]]


def kept(folder: Path) -> list[Kept]:
    """All runs of a paper; runs that differ in the seed of made-up data alone are one as well."""
    runs: list[Kept] = []
    drawn: dict[tuple[str, ...], dict[int, Kept]] = {}
    for index in sorted(folder.rglob("jobs.csv")):
        for made in csv.DictReader(index.open(newline="")):
            lines = list(csv.DictReader((index.parent / made["file"]).open(newline="")))
            columns: dict[str, dict[str, float]] = {}
            for line in lines:
                for name, text in line.items():
                    if name != "seed" and text:
                        value = math.inf if text == "never" else float(text)
                        columns.setdefault(name, {})[line["seed"]] = value
            runs.append(Kept(made, columns))
            if found := _DATA_SEED.search(f"{made['options']} "):
                rest = _DATA_SEED.sub("", f"{made['options']} ").strip()
                key = (made["case"], made["scenario"], made["algorithm"], rest)
                drawn.setdefault(key, {})[int(found[1])] = runs[-1]
    for (_, _, _, rest), of in drawn.items():
        first = {
            name: {str(seed): next(iter(of[seed].columns[name].values())) for seed in sorted(of)}
            for name in next(iter(of.values())).columns
        }
        runs.append(Kept({**next(iter(of.values())).made, "options": rest}, first))
    return runs


def is_found(number: Number, runs: Sequence[Kept]) -> bool:
    """Whether our number of a page is that of some kept run, to the digits that are written."""
    name = _plain(number.method.partition(",")[0].partition("(")[0])[:4]
    mine = [run for run in runs if _plain(run.made["algorithm"])[:4] == name]
    if not mine or name not in _METHODS:
        mine = list(runs)  # a column that names no method
    wanted, count = (number.ours, number.std), number.seeds
    words = f"{number.method} {number.row}"
    if "communication" in words or "reduction" in words:
        column = re.compile("models total" if "communication" in words else " first ")
        return any(_is_of_pair(wanted, column, count, *pair) for pair in product(runs, runs))
    return any(
        wanted in _told(some)
        for run in mine
        for values in run.columns.values()
        if (some := _some(list(values.values()), count))
    )


def _is_of_pair(
    wanted: tuple[str, str], column: re.Pattern[str], count: int, run: Kept, other: Kept
) -> bool:
    """Whether a number compares these two runs of one case, seed by seed."""
    if any(run.made[key] != other.made[key] for key in ("case", "scenario", "dataset")):
        return False
    for name in run.columns.keys() & other.columns.keys():
        if column.search(name):
            sides = [_some(list(one.columns[name].values()), count) for one in (run, other)]
            pairs = list(zip(*sides, strict=False))
            if pairs and wanted in _of_pairs(pairs, run, other):
                return True
    return False


_METHODS = ("ifca", "feda", "fedp", "fese", "flex", "fedg", "lcfl", "loca", "diff", "grad", "cflg")


def _some(values: list[float], count: int) -> list[float]:
    return values[:count] if len(values) >= count else []


def _told(given: Sequence[float]) -> set[tuple[str, str]]:
    """How a page may write the values of some seeds."""
    return _told_of(tuple(given))


@cache
def _told_of(values: tuple[float, ...]) -> set[tuple[str, str]]:
    middle = median(values)
    told = {(written(middle), "") if math.isfinite(middle) else ("not reached", "")}
    if all(map(math.isfinite, values)):
        mean = fmean(values)
        if len(values) == 1:
            return {(written(mean), "")}
        spread = stdev(values) * math.sqrt((len(values) - 1) / len(values))
        small = abs(mean) < 1
        told.add((f"{mean:.3g}", f"{spread:.2g}") if small else (f"{mean:.2f}", f"{spread:.2f}"))
    return told


def written(value: float) -> str:
    """A number without a spread."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _of_pairs(pairs: Sequence[tuple[float, float]], run: Kept, other: Kept) -> set[tuple[str, str]]:
    """Ratios and savings of two runs' seeds, as a page may write them."""
    told: set[tuple[str, str]] = set()
    rounds = float(run.made["rounds"])
    if all(b for _, b in pairs) and all(math.isfinite(a) and math.isfinite(b) for a, b in pairs):
        told |= _told([a / b for a, b in pairs])
        told |= _told([100 * (a / b - 1) for a, b in pairs])
    ends = [(min(a, rounds), min(b, float(other.made["rounds"]))) for a, b in pairs]
    if all(b for _, b in ends):
        told.add((written(median(100 * (1 - a / b) for a, b in ends)), ""))
    return told


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def is_right(number: Number) -> bool:
    """Whether the state of a mean over seeds, or of one seed, follows from what the page has."""
    if not number.seeds or number.state in ("derived", "a setting", "other data", "not yet run"):
        return True
    from scipy.stats import t  # the other reader has it from scipy.special

    printed, ours, n = float(number.printed), float(number.ours), number.seeds
    half_digit = 0.5 * 10.0 ** -len(number.printed.partition(".")[2])
    points = not _is_other_quantity(number)
    margin = max(1.0 if points else 0.05 * abs(printed), half_digit)
    gap, slack = abs(ours - printed), 0.02 if points else 0.02 * abs(printed)
    if n == 1:
        return (number.state == "one seed, within a point") == (gap <= margin + 1e-9)
    if not number.std:
        return True  # a median: its seeds are not on the page
    s = float(number.std) * math.sqrt(n / (n - 1))
    mean_half = float(t.ppf(0.95, n - 1)) * s / math.sqrt(n)
    spread = float(number.spread) if number.spread else None
    wide = s**2 * (1 + 1 / n) if spread is None else (s**2 + spread**2) / n
    half = max(float(t.ppf(0.975, n - 1)) * math.sqrt(wide), half_digit)
    # what lies within the rounding of the page is not judged
    tests = (
        (gap + mean_half - margin, "reproduced", n >= 3),
        (max(gap - half, half - 2 * margin), "consistent", True),
        (gap - half, "cannot tell", True),
    )
    for over, state, allowed in tests:
        if abs(over) <= slack:
            return True
        if over < 0 and allowed:
            return number.state == state
    return number.state in ("cause shown", "conjecture", "outside")


def _is_other_quantity(number: Number) -> bool:
    words = f"{number.method} {number.row}"
    return "discrepancy" in words or "communication" in words


def problems(results: Path = RESULTS) -> tuple[list[str], int]:
    """What is wrong on the pages, a line each, and how many numbers were read."""
    wrong, count, read = [], Counter[str](), 0
    for page in sorted(results.glob("numbers_*.md")):
        runs = kept(results / "runs" / page.stem.removeprefix("numbers_"))
        for number in numbers(page):
            read += 1
            count[number.state] += 1
            where = f"{number.page}, {number.row}, {number.method}: {number.ours}"
            if number.seeds and number.state != "derived" and not is_found(number, runs):
                wrong.append(f"{where} ± {number.std or '–'} is of no kept run")
            if not is_right(number):
                wrong.append(f"{where}: “{number.state}” does not follow")
            if number.bold != (number.state == "reproduced"):
                wrong.append(f"{where}: bold, but {number.state}")
    text = (results / "README.md").read_text()
    head = re.search(r"\*\*(\d+) of (\d+) published results are reproduced\*\*, and (\d+)", text)
    told = [int(one) for one in head.groups()] if head else []
    if told[:1] + told[2:] != [count["reproduced"], count["consistent"]]:
        wrong.append(f"README.md: the score is {told}, the pages have {dict(count)}")
    line = next((one for one in text.splitlines() if one.startswith("| **all** |  | ")), "")
    columns = [int(one or 0) for one in line.replace("*", "").replace(" ", "").split("|")[3:-1]]
    if not columns or columns[0] != sum(columns[1:]) or columns[1] != count["reproduced"]:
        wrong.append(f"README.md: the table of states ends with {columns}")
    return wrong, read


def again(number: int, results: Path = RESULTS, hours: float = 0.01) -> list[str]:
    """Run kept jobs again that took no longer than this; a line for each that differs.

    Their last accuracies must be the kept ones to their six digits, on the same processor.
    """
    import fedclust  # loading takes seconds

    short = [
        (index, made)
        for index in sorted((results / "runs").rglob("jobs.csv"))
        for made in csv.DictReader(index.open(newline=""))
        if float(made["hours"]) <= hours and made["scale"] == "paper"
    ]
    wrong = []
    for index, made in random.sample(short, number):
        words = [word for word in made["command"].split()[2:] if word != "-m"]
        told = next(csv.DictReader((index.parent / made["file"]).open(newline="")))
        words = [word for word in words if not word.startswith(("seeds=", "threads="))]
        result = fedclust.run(*words, f"seeds=[{told['seed']}]", "threads=1")
        ours = float(result.rounds["accuracy"].dropna().iloc[-1]) * 100
        same = f"{ours:.6g}" == told[f"{_FIRST} last"]
        print(f"{'as kept' if same else 'differs'}: {made['command']}, seed {told['seed']}")
        if not same:
            wrong.append(f"{made['command']}: {ours:.6g}, kept {told[f'{_FIRST} last']}")
    return wrong


def main(given: Sequence[str]) -> int:
    """Audit; returns 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--again", type=int, default=0, help="how many kept jobs to run again")
    asked = parser.parse_args(list(given))
    wrong, read = problems()
    wrong += again(asked.again) if asked.again else []
    print("\n".join([*wrong, f"{read} numbers read, {len(wrong)} problems"]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

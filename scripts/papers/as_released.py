"""FlexCFL's Table IV as the paper writes it, and with all rules of its released code at once.

The released code (morningD/FlexCFL, commit ecdf300 of August 2021) differs from the paper's text:

- `flearn/group.py`: IFCA and FeSEM take one participant's update as a cluster's mean
  (`algorithm.aggregation=first_client`);
- a shift is measured without regard to which label is which, against the data at the start
  (`algorithm.shift.distance=released`);
- a pair without classes to swap ends the swaps of its round (`scenario.abort_round=true`);
- `flearn/trainer/groupbase.py`: a release keeps a part of the current data, so that they shrink
  (`scenario.shrink_current=true`), and groups are formed with all data
  (`scenario.complete_start=true`).

Each column is one world: no cell chooses a rule of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from scripts.papers.cells import Cell, Runs, algorithm_of, case_of, in_place, measure, scenario_of
from scripts.papers.rules import Measured, agrees

_ONE_CLIENT = ("flexcfl/table4_one_client", ("algorithm.aggregation=first_client",))
_SHIFT = ("flexcfl/table4_released", ("algorithm.shift.distance=released",))
_OF_METHOD = {
    "ifca_flex": _ONE_CLIENT,
    "fesem": _ONE_CLIENT,
    "flexcfl": _SHIFT,
    "flexcfl_inter5": _SHIFT,
}
_USUAL: tuple[str, tuple[str, ...]] = ("flexcfl/table4", ())
_OF_SCENARIO = {
    "swap_part": ("scenario.abort_round=true",),
    "incremental": ("scenario.complete_start=true", "scenario.shrink_current=true"),
}


def rows(runs: Runs, cells: Sequence[Cell]) -> list[list[str]]:
    """Of every cell that was run both ways: where, method, printed, as written, as released; a
    value that is reproduced or consistent (`scripts.papers.rules.agrees`) has an asterisk.
    """
    found = []
    for cell in cells:
        row = cell.row
        if (row["paper"], row["experiment"], row["metric"]) != ("FlexCFL", "Table IV", "test_acc"):
            continue
        released = measured(runs, cell)
        if cell.measured is None or released is None or cell.measured.stands_in:
            continue
        where = f"{case_of(row)}, {scenario_of(row).replace('_', ' ')}"
        shown = [_shown(cell, one) for one in (cell.measured, released)]
        found.append([where, row["algorithm"], row["mean"], *shown])
    return found


def measured(runs: Runs, cell: Cell) -> Measured | None:
    """A cell with all rules of the released code, of as many seeds; None where it was not run."""
    if cell.measured is None:
        return None
    algorithm, scenario = algorithm_of(cell.row), scenario_of(cell.row)
    experiment, options = _OF_METHOD.get(algorithm, _USUAL)
    wanted = " ".join(sorted((*options, *_OF_SCENARIO.get(scenario, ()))))
    alike = {"experiment": experiment, "options": wanted}
    return measure(cell.row, in_place(runs, cell.row, alike, cell.measured.seeds))


def counts(runs: Runs, cells: Sequence[Cell]) -> tuple[int, int, int]:
    """How many cells were run both ways, and how many agree as written and as released."""
    told = rows(runs, cells)
    return len(told), *(sum(row[at].endswith("*") for row in told) for at in (3, 4))


def _shown(cell: Cell, one: Measured) -> str:
    spread = "" if one.std is None else f" ± {one.std:.2f}"
    return f"{one.value:.2f}{spread}{' *' if agrees(cell.row, one) else ''}"

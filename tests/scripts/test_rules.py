"""The rules of docs/results on rows whose verdict is worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, median, pstdev

import pytest
from write_run import write_run

from fedclust.papers.published import interval, mean_interval
from scripts.papers import evidence, results
from scripts.papers.cells import Cell, judge, matches, read_causes, read_runs
from scripts.papers.rules import (
    ALONE,
    CANNOT_TELL,
    CONJECTURE,
    CONSISTENT,
    DERIVED,
    NOT_PRINTED,
    NOT_RUN,
    OTHER_DATA,
    OUTSIDE,
    REPRODUCED,
    RULES,
    SETTING,
    SHOWN,
    STATES,
    Facts,
    Measured,
    decide,
    median_interval,
)
from scripts.papers.stand_ins import _WORDS, distance, stand_in

KEPT = results.ROOT / "docs" / "results"
CONF = results.ROOT / "conf"
ROW = {"mean": "90.0", "std": "", "unit": "percent", "metric": "test_acc", "variant": ""}


@cache
def kept() -> tuple[Cell, ...]:
    return tuple(judge(read_runs(KEPT, CONF), read_causes(KEPT / "causes.yaml")))


def of(values: Sequence[float], *, by_median: bool = False) -> Measured:
    """What these seeds give."""
    seeds = tuple(map(str, range(len(values))))
    several = len(values) > 1
    if by_median:
        middle = median(values)
        middle = math.nan if math.isinf(middle) else middle
        return Measured(middle, seeds=seeds, ordered=tuple(sorted(values)) if several else ())
    return Measured(fmean(values), pstdev(values) if several else None, seeds)


def state(values: Sequence[float], by_median: bool = False, **row: str) -> str:
    return decide(Facts({**ROW, **row}, of(values, by_median=by_median)))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        # three seeds, s = 0.1: the 90 % interval of the mean is 2.920 * 0.1 / sqrt(3) = 0.1686
        ([90.73, 90.83, 90.93], REPRODUCED),
        ([90.74, 90.84, 90.94], OUTSIDE),  # one more run: 4.303 * 0.1 * sqrt(4 / 3) = 0.497
        # s = 1: the interval of the mean is 1.69, of one more run 4.97: wider than two points
        ([89.0, 90.0, 91.0], CANNOT_TELL),
        ([93.9, 94.9, 95.9], CANNOT_TELL),
        ([94.0, 95.0, 96.0], OUTSIDE),
        # s = 0.4: 1.348 of the mean exceeds half a point; 1.987 of one more run tells something
        ([90.1, 90.5, 90.9], CONSISTENT),
        ([91.5, 91.9, 92.3], CONSISTENT),
        ([91.6, 92.0, 92.4], OUTSIDE),
        ([90.0, 90.0], CONSISTENT),  # two seeds are too few, however near
        ([91.0], ALONE),
        ([91.1], OUTSIDE),
    ],
)
def test_a_mean_over_seeds(values: Sequence[float], wanted: str) -> None:
    assert state(values) == wanted


def test_the_intervals_are_those_of_a_table_of_t() -> None:
    std = 0.1 * (2 / 3) ** 0.5  # s = 0.1 of three seeds
    assert mean_interval(std, 3) == pytest.approx(2.919986 * 0.1 / 3**0.5)
    assert interval(std, 3) == pytest.approx(4.302653 * 0.1 * (4 / 3) ** 0.5)
    # a printed mean and spread of as many runs
    assert interval(std, 3, 0.3) == pytest.approx(4.302653 * ((0.1**2 + 0.3**2) / 3) ** 0.5)
    assert mean_interval(None, 1) is None
    assert interval(None, 1) is None


def test_more_noise_never_reproduces_a_number() -> None:
    """Five seeds around 90.27: once out of the state, no larger spread leads back into it."""
    states = [state([90.27 + s * z for z in (-2, -1, 0, 1, 2)]) for s in (0.01, 0.1, 0.3, 0.6, 2)]
    assert [one == REPRODUCED for one in states] == [True, True, True, False, False]
    assert states[-1] == CANNOT_TELL


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([37.0, 37.0, 38.0, 38.0, 38.0], REPRODUCED),  # from the lowest to the highest of five
        ([37.0, 37.0, 38.0, 38.0, 39.0], CANNOT_TELL),
        ([37.0, 38.0, 38.0, 38.0], CANNOT_TELL),  # the median of four has no such interval
        ([30.0, 38.0, math.inf], CANNOT_TELL),
        ([math.inf, math.inf, 99.0], OUTSIDE),
        ([38.0], ALONE),
        ([39.0], OUTSIDE),
    ],
)
def test_a_median_over_seeds(values: Sequence[float], wanted: str) -> None:
    row = {"mean": "37", "unit": "round", "metric": "first_round_test_acc_ge_90"}
    assert state(values, by_median=True, **row) == wanted


def test_the_interval_of_a_median_is_that_of_coins() -> None:
    """1 - 2 * 0.5⁴ = 0.875 and 1 - 2 * 0.5⁵ = 0.9375; of eight the second ones have 0.930."""
    assert median_interval(range(4)) is None
    assert median_interval(range(5)) == (0, 4)
    assert median_interval(range(7)) == (0, 6)
    assert median_interval(range(8)) == (1, 6)


@pytest.mark.parametrize(
    ("values", "row", "wanted"),
    [
        # printed with a spread of as many runs: 4.303 * sqrt((0.4² + 0.4²) / 3) = 1.405
        ([91.0, 91.4, 91.8], {"std": "0.4"}, CONSISTENT),
        ([91.1, 91.5, 91.9], {"std": "0.4"}, OUTSIDE),
        # a lower bound and a saving are met by more
        ([97.0, 97.0, 97.0], {"variant": "lower bound"}, REPRODUCED),
        ([97.0, 97.0, 97.0], {"metric": "iteration_reduction_to"}, REPRODUCED),
        ([88.9, 88.9, 88.9], {"variant": "lower bound"}, OUTSIDE),
        # 5 % of another quantity
        ([0.80, 0.80, 0.80], {"mean": "0.767", "unit": "L2 norm"}, REPRODUCED),
        ([0.81, 0.81, 0.81], {"mean": "0.767", "unit": "L2 norm"}, OUTSIDE),
        # what rounding takes away
        ([5.4, 5.4, 5.4], {"mean": "5", "unit": "L2 norm"}, REPRODUCED),
        ([89.0, 89.0, 89.0], {"mean": "-1.33", "unit": "percentage points"}, OUTSIDE),
    ],
)
def test_other_rows(values: Sequence[float], row: Mapping[str, str], wanted: str) -> None:
    assert state(values, **row) == wanted


@pytest.mark.parametrize(
    ("row", "value", "wanted"),
    [
        ({"mean": "7850", "unit": "parameters", "metric": "num_parameters"}, 7850, SETTING),
        ({"mean": "7850", "unit": "parameters", "metric": "num_parameters"}, 7851, OUTSIDE),
        ({"mean": "0.03", "unit": "", "metric": "initial_lr"}, 0.03, SETTING),
        ({"mean": "0.03", "unit": "", "metric": "initial_lr"}, 0.0301, OUTSIDE),
        # as published.csv names it; examples are met within 1 %
        ({"mean": "75349", "unit": "samples", "metric": "num_samples_total"}, 75300, SETTING),
        ({"mean": "69035", "unit": "samples", "metric": "num_samples_total"}, 69069, SETTING),
        ({"mean": "69035", "unit": "samples", "metric": "num_samples_total"}, 70000, OUTSIDE),
        # a number that no run gives is not reproduced
        ({"mean": "17500", "unit": "samples", "metric": "train_samples_in"}, 17500, OUTSIDE),
    ],
)
def test_what_was_put_in_is_no_result(row: Mapping[str, str], value: float, wanted: str) -> None:
    assert decide(Facts({**ROW, **row}, Measured(value))) == wanted


def test_a_cause_is_shown_by_the_same_seeds_alone() -> None:
    ours, near = of([95.0, 95.1, 95.2]), of([90.0, 90.1, 90.2])
    facts = Facts(ROW, ours, has_cause=True, shown=near)
    assert decide(facts) == SHOWN
    assert decide(replace(facts, shown=None)) == CONJECTURE
    assert decide(replace(facts, shown=of([90.0, 90.1]))) == CONJECTURE, "fewer seeds"
    assert decide(replace(facts, shown=replace(near, seeds=("5", "6", "7")))) == CONJECTURE
    assert decide(replace(facts, shown=of([85.0, 90.0, 95.0]))) == CONJECTURE, "it cannot tell"
    alone = Facts(ROW, of([95.0]), has_cause=True, shown=of([90.0]))
    assert decide(alone) == CONJECTURE, "one seed shows nothing"


def test_the_rest_is_told_apart_before_it_is_judged() -> None:
    good = of([90.0, 90.0, 90.0])
    assert decide(Facts(ROW | {"mean": ""}, good)) == NOT_PRINTED
    assert decide(Facts(ROW | {"metric": "test_acc_gain"}, good)) == DERIVED
    assert decide(Facts(ROW, None)) == NOT_RUN
    assert decide(Facts(ROW, replace(good, stands_in="digits for letters"))) == OTHER_DATA


@pytest.mark.full
def test_every_rule_decides_on_a_number_that_is_printed() -> None:
    """A rule that no row meets is a mistake in it, as one that asked for `num_samples` was."""
    assert {rule.state for rule in RULES} == set(STATES)
    assert {cell.state for cell in kept()} == set(STATES)
    inputs = {cell.row["metric"] for cell in kept() if cell.state == SETTING}
    assert {"num_samples_total", "num_devices", "num_parameters", "initial_lr"} <= inputs


def judged(root: Path, **wanted: str) -> list[Cell]:
    cells = judge(read_runs(root, CONF), [])
    return [cell for cell in cells if matches(cell.row, wanted)]


SETTING_OF = {"paper": "FlexCFL", "experiment": "Table III", "metric": "test_acc"}


@pytest.mark.full
def test_a_setting_has_one_number_of_seeds_and_more_stand_beside(tmp_path: Path) -> None:
    """FedAvg has seeds 0 to 3, FlexCFL the seeds 1, 2 and 4: both are judged by 1 and 2."""
    for name, seeds, best in (
        ("fedavg", "0 1 2 3", [80.0, 89.0, 90.0, 80.0]),
        ("flexcfl", "1 2 4", [95.0, 96.0, 90.0]),
    ):
        numbers = {"accuracy max": best, "accuracy last": best}
        made = {"case": "MNIST-MCLR", "seeds": seeds}
        write_run(tmp_path, "flexcfl/table3", name, numbers, **made)
        index = tmp_path / "runs" / "flexcfl" / "table3"
        file = sorted(index.glob("job-*.csv"))[-1]
        lines = file.read_text().splitlines()
        named = [
            f"{s},{line.partition(',')[2]}"
            for s, line in zip(seeds.split(), lines[1:], strict=True)
        ]
        file.write_text("\n".join([lines[0], *named]) + "\n")
    fedavg, flexcfl = (
        judged(tmp_path, **SETTING_OF, dataset="MNIST", model="MCLR", algorithm=name, variant="")[0]
        for name in ("FedAvg", "FlexCFL")
    )
    assert fedavg.measured.seeds == flexcfl.measured.seeds == ("1", "2")
    assert (fedavg.measured.value, flexcfl.measured.value) == (89.5, 95.5)
    assert (fedavg.more.value, fedavg.more.n) == (84.75, 4)
    assert (flexcfl.more.n, flexcfl.measured.end) == (3, 95.5)


@pytest.mark.full
def test_made_up_data_are_measured_over_seeds_of_the_data(tmp_path: Path) -> None:
    """One run on each of three data sets; the table's own run, on one of them, does not count."""
    case = {"case": "Synthetic-MCLR", "dataset": "synthetic"}
    fixed = {"accuracy max": [50.0, 50.1, 50.2]}
    write_run(tmp_path, "flexcfl/table3", "fedavg", fixed, **case)
    for seed, best in (("21", [50.0, 99.0]), ("22", [60.0, 99.0]), ("23", [70.0])):
        made = {**case, "options": f"dataset.data_seed={seed}"}
        write_run(tmp_path, "flexcfl/synthetic_seeds", "fedavg", {"accuracy max": best}, **made)
    wanted = {**SETTING_OF, "dataset": "Synthetic(1,1)", "algorithm": "FedAvg"}
    (cell,) = judged(tmp_path, **wanted)
    assert cell.measured.seeds == ("21", "22", "23")
    assert cell.measured.over_data
    assert cell.measured.value == 60.0
    assert cell.measured.std == pytest.approx((200 / 3) ** 0.5)
    assert cell.state == CANNOT_TELL  # 66.9 is printed; 4.303 * 10 * sqrt(4 / 3) = 49.7


@pytest.mark.full
def test_one_curve_is_one_piece_of_evidence(tmp_path: Path) -> None:
    """Ten numbers of one curve, and two methods with equal curves, are one run each."""
    columns = {f"accuracy at {i}": [10.0, 11.0, 12.0] for i in range(1, 18, 2)}
    write_run(
        tmp_path, "cfl_gp/rot8", "fedavg", {**columns, "accuracy last": [34.0] * 3}, rounds="18"
    )
    for name in ("flexcfl", "fedgroup"):
        made = {"case": "MNIST-MCLR", "scenario": "incremental"}
        best = {"accuracy max": [95.0, 95.1, 95.2]}
        write_run(tmp_path, "flexcfl/table4", name, best, **made)
    cells = judge(read_runs(tmp_path, CONF), [])
    run = [cell for cell in cells if cell.measured and cell.measured.n]
    assert evidence.independent([c for c in run if c.row["paper"] == "CFL-GP"]) == (1, 3)
    two = [c for c in run if c.row["experiment"] == "Table IV"]
    assert len(two) == 2
    assert evidence.independent(two) == (1, 3)
    assert [evidence.is_own(cell) for cell in two] == [False, True]


def test_differences_keep_their_sign() -> None:
    """+1 and +3 of one run, −4 of another: runs of +2 and −4, so −1 ± 12.706 * 4.243 / sqrt(2)."""

    def cell(value: float, source: str) -> Cell:
        found = Measured(value, seeds=("0",), sources=frozenset({source}))
        return Cell(ROW, OUTSIDE, found)

    told = evidence.signs([cell(91.0, "a"), cell(93.0, "a"), cell(86.0, "b")])
    assert (told.numbers, told.runs, told.mean, told.above) == (3, 2, -1.0, 2)
    assert told.half == pytest.approx(12.7062 * 18**0.5 / 2**0.5, rel=1e-4)
    assert told.rms == pytest.approx((26 / 3) ** 0.5)
    assert "on the mean −1 points (95 % interval −39.1 to 37.1)" in told.told().replace("+", "")
    other = replace(cell(91.0, "a"), state=OTHER_DATA)
    assert evidence.signs([other]) is None


@pytest.mark.full
def test_savings_and_ratios_of_two_versions_or_machines_are_refused(tmp_path: Path) -> None:
    for at, (commit, machine) in enumerate((("a", "m"), ("b", "m"), ("a", "n"), ("a", "m"))):
        for name, models in (("fedavg", 1000), ("flexcfl", 1262)):
            made = {"case": "MNIST-MCLR", "scenario": "swap_all"}
            made |= {"commit": commit, "machine": machine} if name == "flexcfl" else {}
            made |= {"commit": "a", "machine": "m"} if name == "fedavg" else {}
            folder = tmp_path / str(at)
            write_run(folder, "flexcfl/fig6a", name, {"models total": [models]}, **made)
        for weight, needed in (("0", [100]), ("0.2", [2])):
            made = {"options": f"algorithm.gradient_weight={weight}", "rounds": "500"}
            made |= {"commit": commit, "machine": machine} if needed == [2] else {}
            made |= {"commit": "a", "machine": "m"} if needed == [100] else {}
            numbers = {"purity first 90": needed}
            write_run(folder, "jgl/fig4", "jgl", numbers, case="MNIST-MLP", **made)
        cells = judge(read_runs(folder, CONF), [])
        ratio = {"experiment": "Fig. 6(a)", "metric": "communication_ratio", "algorithm": "FlexCFL"}
        saving = {"paper": "JGL", "experiment": "Abstract / Section I"}
        for wanted in (ratio, saving):
            (cell,) = [one for one in cells if matches(one.row, wanted)]
            assert cell.state == (ALONE if (commit, machine) == ("a", "m") else NOT_RUN)


@pytest.mark.full
def test_one_place_says_what_stands_in_for_what() -> None:
    """No page's code reads the column itself, and every stand-in that was run has words."""
    folder = results.ROOT / "scripts" / "papers"
    readers = {f.name for f in folder.glob("*.py") if 'made["stands_in_for"]' in f.read_text()}
    assert readers == {"stand_ins.py"}
    runs = read_runs(KEPT, CONF).runs
    told = {stand_in(run.made) for run in runs} - {""}
    assert told == set(_WORDS.values())
    nearest = {"stands_in_for": "emnist", "dataset": "emnist_letters"}
    assert 0 == distance({"stands_in_for": "", "dataset": "mnist"}) < distance(nearest)
    assert distance(nearest) < distance(nearest | {"dataset": "mnist"})

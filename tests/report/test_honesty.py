"""What a report must not say, and what it must not leave unsaid."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up import found, job, plain, printed, texts
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedclust.papers.reports import contents, make_report
from fedclust.report import figures, style
from fedclust.report.flow import flow
from fedclust.report.heatmaps import _order
from fedclust.report.outcome import outcome
from fedclust.report.sweep import write_sweep
from fedclust.report.write import Contents

CURVE = [[0.5, 0.5], [0.8, 0.9]]
SIZES = dict.fromkeys(("total", "mean", "std", "min", "max"), 1)
OF_A_SEED = {"clients": 1, "groups": 0, "examples": {"-1": [1]}, "train": SIZES, "test": SIZES}


def rows(report: Contents, name: str) -> list[list[str]]:
    return texts(found(report, name))


def judged(folder: Path, scale: str, *claims: dict[str, Any]) -> list[list[str]]:
    """What is said of claims on a, which is above b."""
    for name, curve in (("a", CURVE), ("b", [[0.1, 0.1], [0.2, 0.2]])):
        plain(folder / name, curve, report={"claims": claims}, scale={"name": scale})
    return rows(contents(folder), "claims")


@pytest.mark.parametrize(
    ("scale", "more"), [("paper", ""), ("smoke", ", not at the published size")]
)
def test_an_order_is_judged_at_every_size(tmp_path: Path, scale: str, more: str) -> None:
    order = {"kind": "order_at_end", "best_to_worst": ["b", "a"]}
    ((_, told, said, _),) = judged(tmp_path, scale, order)
    assert (said, told) == ("does not hold", f"a 85.00 % > b 20.00 %{more}")


def test_a_lead_without_a_size_is_an_order(tmp_path: Path) -> None:
    lead = {"kind": "gain", "left": "a", "right": "b"}
    told = judged(tmp_path, "laptop", {**lead, "points": 0}, {**lead, "points": 50})
    assert [row[2] for row in told] == ["holds", "cannot tell"]


def test_what_a_run_says_of_itself_is_in_the_report(tmp_path: Path) -> None:
    both = "no client changes within 2 rounds"
    for name, remarks in (("a", [both, "nobody is clustered"]), ("b", [both])):
        plain(tmp_path / name, CURVE, status={"remarks": remarks})
    said = contents(tmp_path).banners
    assert both in said
    assert "a: nobody is clustered" in said


@pytest.mark.parametrize(
    ("scale", "value", "verdict"),
    [
        ("paper", 0.8, "holds"),
        ("paper", 0.95, "does not hold"),
        ("laptop", 0.8, "cannot tell"),
        ("laptop", 0.95, "cannot tell"),
    ],
)
def test_a_scaled_run_cannot_judge_a_value(
    tmp_path: Path, scale: str, value: float, verdict: str
) -> None:
    about_value, about_order = judged(
        tmp_path,
        scale,
        {"kind": "at_least", "arm": "a", "value": value},
        {"kind": "order_at_end", "best_to_worst": ["a", "b"]},
    )
    assert about_value[2] == verdict
    assert about_value[1].startswith("85.00 %")
    seeds = {"holds": "2 of 2", "does not hold": "0 of 2", "cannot tell": "–"}
    assert about_value[3] == seeds[verdict]
    assert about_order[2:] == ["holds", "2 of 2"]


@pytest.mark.full
def test_names_that_no_figure_holds_warn_nobody(tmp_path: Path) -> None:
    figure = Figure(figsize=(0.5, 0.5), layout="constrained")
    figure.subplots().set_ylabel("a name that is long\n" * 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.save(tmp_path, "small", "", figure)
    assert (tmp_path / "small.png").is_file()


def test_every_row_says_how_many_seeds_it_has(tmp_path: Path) -> None:
    for name, seeds in (("a", 2), ("b", 1)):
        curve = [row[:seeds] for row in CURVE]
        plain(tmp_path / name, curve)
    report = contents(tmp_path)
    assert [row[-1] for row in rows(report, "table")] == ["2", "1"]
    assert "over the seeds that each row or cell counts" in report.tables[0].notes[1]
    lines = [line.split() for line in printed(tmp_path).splitlines()]
    assert ["a", "*", "85.00", "±", "5.00", "2"] in lines
    assert ["b", "80.00", "1"] in lines


def test_how_something_is_computed_is_no_factor(tmp_path: Path) -> None:
    for name, given in (("a", ["threads=1", "engine=loop"]), ("b", ["threads=2", "max_rows=9"])):
        plain(tmp_path / name, CURVE, overrides=given)
    assert [arm.label for arm in contents(tmp_path).arms] == ["a", "b"]


def test_a_report_in_the_unnamed_folder_is_of_its_newest_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "default"
    for name in ("b", "old", "a"):
        plain(folder / name, CURVE, name="default")
    jobs = [(1, "a", ""), (0, "b", ""), (2, "gone", "num_clusters=0 is not allowed")]
    write_sweep(folder, jobs)
    report = contents(folder)
    assert [arm.label for arm in report.arms] == ["b", "a"]
    assert report.banners == [
        "1 job of other sweeps in this folder is left out: old; name=… gives a sweep a folder of "
        "its own",
        "gone is missing: num_clusters=0 is not allowed",
    ]
    assert [arm.label for arm in contents(folder / "old").arms] == ["old"]


def test_named_sweeps_add_up_in_the_order_given(tmp_path: Path) -> None:
    for name in ("z", "y", "a"):
        plain(tmp_path / name, CURVE)
    write_sweep(tmp_path, [(0, "z", ""), (1, "y", "")])
    report = contents(tmp_path)
    assert [arm.label for arm in report.arms] == ["z", "y", "a"]
    assert report.banners == ["1 job of other sweeps of this name is shown too: a"]


@pytest.mark.parametrize("name", ["default", "mine"])
def test_fewer_seeds_of_the_same_jobs_are_no_other_sweep(tmp_path: Path, name: str) -> None:
    for seeds, extra in ((1, []), (2, []), (2, ["solver.lr=0.5"])):
        for method in ("a", "b"):
            job, curve = tmp_path / f"{method},{seeds},{len(extra)}", [row[:seeds] for row in CURVE]
            plain(job, curve, method, overrides=[f"seeds={seeds}", *extra], name=name, seeds=seeds)
    write_sweep(tmp_path, [(0, "a,2,0", ""), (1, "b,2,0", "")])
    report = contents(tmp_path)
    other = "a,2,1, b,2,1"
    if name == "default":
        assert [arm.label for arm in report.arms] == ["a", "b"]
        assert [row[-1] for row in rows(report, "table")] == ["2", "2"]
        assert report.banners == [
            f"2 jobs of other sweeps in this folder are left out: {other}; name=… gives a sweep a "
            "folder of its own"
        ]
    else:
        assert len(report.arms) == 4
        assert report.banners == [f"2 jobs of other sweeps of this name are shown too: {other}"]


def with_versions(folder: Path, version: str, commit: str) -> None:
    content = {
        "packages": {"fedclust": version, "torch": "2.15.0"},
        "commit": commit,
        "device": "x86_64, 2 threads",
    }
    (folder / "versions.json").write_text(json.dumps(content))


def test_every_page_says_what_made_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        curves = {"accuracy": CURVE, "seconds": [[1.0, 2.0], [3.0, 4.5]]}
        with_versions(plain(tmp_path / name, curves), "0.1.0", "abc1")
    (tmp_path / "multirun.yaml").write_text(
        "hydra: {overrides: {task: ['algorithm=a,b', 'name=my demo']}}\n"
    )
    made = dict(rows(contents(tmp_path), "made"))
    assert made["command"] == "fedclust run -m algorithm=a,b 'name=my demo'"
    assert (made["fedclust"], made["commit"]) == ("0.1.0", "abc1")
    assert made["machine"] == "x86_64, 2 threads"
    assert made["packages"] == "torch 2.15.0"
    assert made["computing time"] == "21.0 seconds of all jobs and seeds"
    assert made["computed on"].endswith("UTC")
    page = make_report(tmp_path).read_text()
    assert "algorithm=a,b" in page
    assert "abc1" in page
    assert not any("different versions" in banner for banner in contents(tmp_path).banners)
    with_versions(tmp_path / "b", "0.2.0", "abc1")
    assert contents(tmp_path).banners == [
        "computed by different versions (fedclust): a: 0.1.0; b: 0.2.0"
    ]
    write_sweep(tmp_path, [(0, "b", "")])
    made = dict(rows(contents(tmp_path), "made"))
    assert made["command"].endswith("'name=my demo'; by a command before it: a")


def swapped(folder: Path) -> None:
    """Four clients in two clusters; after the first of three rounds clients 1 and 2 swap groups."""
    curves: dict[str, Any] = {
        "accuracy": [[0.5]] * 3,
        "num_clusters": [[2.0]] * 3,
        "churn": [[float("nan")], [0.5], [0.0]],
        "num_clusters_found": [[2.0], [float("nan")], [float("nan")]],
    }
    plain(folder, curves, "a")
    group = [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1]]
    label = [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1]]
    table = [
        {"seed": 0, "round": t, "client": i, "group": group[t][i], "label": label[t][i]}
        for t in range(3)
        for i in range(4)
    ]
    pd.DataFrame(table).to_parquet(folder / "clients.parquet")
    (folder / "arrays" / "seed=0").mkdir(parents=True)
    np.save(folder / "arrays" / "seed=0" / "distance.npy", np.zeros((4, 4)))


def test_flow_shows_the_group_of_the_round(tmp_path: Path) -> None:
    swapped(tmp_path / "a")
    (arm,) = contents(tmp_path).arms
    figure = flow(arm)
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    first = [bar for bar in bars if bar.get_x() == min(one.get_x() for one in bars)]
    # every cluster holds one group in every round: two bars per column, each half of the clients
    assert len(bars) == 6
    assert [round(bar.get_height(), 3) for bar in first] == [0.5, 0.5]
    colours = [to_hex(bar.get_facecolor()).upper() for bar in first]
    assert colours == [style.group_colour(0), style.group_colour(1)]
    limits = {axes.get_xlim() for axes in figure.axes}
    assert len(limits) == 1, "rounds stand below each other in all panels"


def test_distances_are_ordered_by_the_groups_when_they_were_measured(tmp_path: Path) -> None:
    swapped(tmp_path / "a")
    (arm,) = contents(tmp_path).arms
    order, group, label = _order(arm, 4)
    assert order.tolist() == [0, 1, 2, 3]
    assert group.tolist() == label.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("digest", ["1", "2"])
def test_jobs_that_met_other_data_are_told(tmp_path: Path, digest: str) -> None:
    for name, curve, one in (("a", CURVE, "1"), ("b", [[0.1, 0.1], [0.2, 0.3]], digest)):
        plain(tmp_path / name, curve)
        data = {"the examples": one, "the partition of seed 0": "3"}
        (tmp_path / name / "federation.json").write_text(
            json.dumps({"parameters": 1, "seeds": {}, "data": data})
        )
    report = contents(tmp_path)
    told = [line for line in report.banners if "different data" in line]
    line = (
        "the jobs met different data (the examples): a | b; differences between them may come from "
        "the data"
    )
    assert told == ([line] if digest == "2" else [])
    notes = " ".join(note for table in report.tables for note in table.notes)
    assert ("all arms use the same data" in notes) == (digest == "1")


@pytest.mark.full
def test_jobs_that_differ_in_their_seeds_are_not_compared(tmp_path: Path) -> None:
    """A table is scaled for every seed, so jobs with other seeds have other examples."""

    def said(name: str, *jobs: tuple[str, tuple[int, ...], str, str]) -> list[str]:
        for number, (arm, seeds, examples, part) in enumerate(jobs):
            place, given = tmp_path / name / f"{arm}{number}", {"seeds": list(seeds)}
            job(place, arm, seeds=seeds, rounds=2, config=given, overrides=[f"seeds={seeds}"])
            data = {"the examples": examples}
            data |= {f"the partition of seed {seed}": f"{part}{seed}" for seed in seeds}
            about = {
                "parameters": 1,
                "seeds": {str(seed): OF_A_SEED for seed in seeds},
                "data": data,
            }
            (place / "federation.json").write_text(json.dumps(about))
        return [line for line in contents(tmp_path / name).banners if "different data" in line]

    one = [("ifca", (seed,), f"of {seed}", "p") for seed in range(3)]
    assert said("one", *one) == []
    assert said("both", *one, *(("lcfl", *rest) for _, *rest in one)) == []
    assert said("whole", *one, ("lcfl", (0, 1, 2), "of all", "p")) == []
    (line,) = said("examples", *one, ("lcfl", (2,), "another", "p"))
    assert "different data (the examples): ifca | lcfl;" in line
    (line,) = said("partition", *one, ("lcfl", (0, 1, 2), "of all", "q"))
    assert "different data (the partition of seed 0): ifca | lcfl;" in line


@pytest.mark.parametrize("changed", [False, True])
def test_seeds_that_met_other_files_of_data_or_code_are_told(tmp_path: Path, changed: bool) -> None:
    """Two commands, for two seeds each, give one arm."""
    for first, digest in ((0, "a"), (2, "b" if changed else "a")):
        place, seeds = tmp_path / f"mine{first}", (first, first + 1)
        job(place, "ifca", seeds=seeds, rounds=2, overrides=[f"seeds={list(seeds)}"])
        data = {"the examples": f"as scaled for {seeds}", "the examples of all seeds": digest}
        about = {"parameters": 1, "seeds": dict.fromkeys(map(str, seeds), OF_A_SEED), "data": data}
        (place / "federation.json").write_text(json.dumps(about))
        used = {"user_files": {"mine.py": digest}}
        (place / "versions.json").write_text(json.dumps(used))
    report = contents(tmp_path)
    assert [len(arm.jobs) for arm in report.arms] == [2]
    told = [line for line in report.banners if "mine.py" in line or "different data" in line]
    both = "ifca seeds=0,1 | ifca seeds=2,3"
    lines = [
        f"the jobs met different data (the examples of all seeds): {both}; differences between "
        "them may come from the data",
        f"mine.py was changed between these jobs: {both}; they ran different code",
    ]
    assert told == (lines if changed else [])


def test_a_job_that_a_budget_ended_says_how_far_it_came(tmp_path: Path) -> None:
    last = {"accuracy": np.array([0.5])}
    config = {"seeds": [0], "rounds": 30, "stop": {"hours": 0.1}}
    (tmp_path / "status.json").write_text('{"rounds_done": 2}')
    assert "(1 seed, 2 of 30 rounds, as stop.… says)" in outcome(tmp_path, last, config, "is done")
    (tmp_path / "status.json").write_text('{"rounds_done": 30}')
    assert "(1 seed, 30 rounds)" in outcome(tmp_path, last, config, "is done")

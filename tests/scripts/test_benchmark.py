"""The page of the benchmark, from real runs at smoke scale with a method from outside among
them.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from fedclust.__main__ import main
from fedclust.report.spec import Spec
from scripts.papers import benchmark, benchmark_runs

SMOKE = ("experiment=benchmark", "scale=smoke", "dataset=digits", "progress=false", "threads=1")


def rows(text: str, first: str) -> dict[str, list[str]]:
    """The lines of the Markdown table whose head begins with a word, by their first cell."""
    lines = text[text.index(f"| {first} |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {line[0]: line[1:] for line in cells}


def _score(scores: Sequence[Mapping[str, str]], title: str, method: str, seed: int) -> float:
    wanted = {"federation": title, "method": method, "seed": str(seed)}
    (value,) = (float(one["accuracy"]) for one in scores if wanted.items() <= one.items())
    return value


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")  # the reports of the runs; the page has its own
def test_a_method_from_outside_is_a_row_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    two = "case=benchmark/rotation,benchmark/drift"
    main(["run", *SMOKE, two])
    own = str(root / "examples" / "own_algorithm")
    main(["run", *SMOKE, two, "algorithm=server_momentum", "--config-dir", own])
    runs, target = tmp_path / "outputs" / "benchmark-smoke", tmp_path / "docs" / "page.md"
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    text = target.read_text()
    board = rows(text, "method")
    assert set(board) == {"ifca", "fedavg", "server_momentum"}
    assert board["server_momentum"][-3:-1] == ["1", "1"]  # sends and trains as FedAvg
    assert board["ifca"][-3:-1] == ["2.5", "1"]  # four models down and one up
    assert board["fedavg"][:-3] == ["–"] * len(board["fedavg"][:-3])
    assert "Not in the tables: label permutation (not run)." in text
    assert rows(text, "shift")["drift"][4].endswith(" of 2")
    data = (target.with_suffix("") / "data.md").read_text()
    assert "- **server_momentum**: " in data
    with (target.with_suffix("") / "scores.csv").open(newline="") as file:
        scores = list(csv.DictReader(file))
    assert len(scores) == 2 * 4 * 2  # federations, methods, seeds
    worst = min(
        100 * np.mean([_score(scores, title, "server_momentum", s) for s in (0, 1)])
        - 100 * np.mean([_score(scores, title, "fedavg", s) for s in (0, 1)])
        for title in ("rotation", "drift")
    )
    shown = float(board["server_momentum"][-4].replace("−", "-"))
    assert shown == pytest.approx(worst, abs=0.051)
    # an unfinished federation is not in the tables
    job = next(runs.glob("ifca,case=benchmark_drift*"))
    status = (job / "status.json").read_text()
    (job / "status.json").write_text(status.replace('"done"', '"interrupted"'))
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    assert "drift (1 job left)" in target.read_text()
    assert set(rows(target.read_text(), "shift")) == {"rotation"}
    # nor is there a leaderboard before the first one is complete
    job = next(runs.glob("ifca,case=benchmark_rotation*"))
    (job / "status.json").write_text(status.replace('"done"', '"interrupted"'))
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    assert "no leaderboard" in target.read_text().replace("\n", " ")
    assert set(rows(target.read_text(), "shift")) == {"rotation", "drift"}
    assert "| ifca |" not in target.read_text()
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")  # the reports of the runs; the page has its own
def test_tuned_methods_have_a_table_of_their_own_beside_the_default_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    two = "case=benchmark/rotation,benchmark/drift"
    main(["tune", *SMOKE, two, "trials=2", "tuning_seeds=[1000]"])
    main(["run", *SMOKE, two])
    runs, target = tmp_path / "outputs" / "benchmark-smoke", tmp_path / "docs" / "page.md"
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    before = target.read_text()
    data = target.with_suffix("") / "data.md"
    assert "Tuned on validation data" not in data.read_text()
    main(["run", *SMOKE, two, "tuned=outputs/benchmark-smoke-tuning"])
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    text = data.read_text()
    head = "## Tuned on validation data"
    assert rows(target.read_text(), "method") == rows(before, "method")
    assert "the rounds of 2 whole trials" in text.replace("\n", " ")
    assert "| no inputs |" in text
    tuned = rows(text[text.index(head) :].partition("Gain by federation")[0], "method")
    assert set(tuned) == {"ifca", "fedavg"}
    for name, cells in tuned.items():
        best = [
            yaml.safe_load(file.read_text())
            for file in (tmp_path / "outputs" / "benchmark-smoke-tuning").rglob("best.yaml")
            if file.parent.name.startswith(name)
        ]
        rates = sorted(one["values"]["solver.lr"] for one in best)
        assert cells[5] == f"{rates[0]:.2g} to {rates[-1]:.2g}"
        if all(one["trial"] == 0 for one in best):
            assert cells[2] == "0.0"
            assert cells[4] == "0.0 to 0.0"
    # where a method was not tuned, the federation is not in the table
    job = next(runs.glob("ifca,case=benchmark_drift*tuned*"))
    status = (job / "status.json").read_text()
    (job / "status.json").write_text(status.replace('"done"', '"interrupted"'))
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    told = (
        "in 1 federation with the same budget: the rounds of 2 whole trials on 1 seed in rotation"
    )
    assert told in data.read_text().replace("\n", " ")
    assert set(rows(target.read_text(), "shift")) == {"rotation", "drift"}
    # tuned jobs alone are the leaderboard
    for job in runs.iterdir():
        if "case=" in job.name and "tuned" not in job.name:
            shutil.rmtree(job)
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    assert head not in data.read_text()
    assert "the settings that its search found" in target.read_text().replace("\n", " ")
    capsys.readouterr()


def test_runs_of_another_experiment_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert benchmark.main([str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def _arms(scores: Mapping[str, Sequence[float]]) -> dict[str, SimpleNamespace]:
    """Jobs with an accuracy for every seed."""
    return {
        name: SimpleNamespace(
            name=name,
            by_seed=lambda _, values=values: dict(enumerate(values)),
            last=lambda _, values=values: np.array(values),
        )
        for name, values in scores.items()
    }


def test_near_copies_are_counted_once_and_groups_help_where_the_oracle_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = {"oracle": [0.9, 0.9], "copy": [0.704, 0.696], "fedavg": [0.7, 0.7], "own": [0.8, 0.8]}
    # in the second federation the oracle is behind, and the copy half a point away
    second = {"oracle": [0.5, 0.5], "copy": [0.605, 0.595], "fedavg": [0.6, 0.6], "own": [0.6, 0.6]}
    federations = [
        benchmark_runs.Federation(title, title, "", _arms(scores), ())  # type: ignore[arg-type]
        for title, scores in (("rotation", first), ("mixture", second))
    ]
    found = benchmark_runs.Results(Spec(), (), federations, "paper")
    assert found.helped == ["rotation"]
    assert found.families == {"fedavg": ["fedavg", "copy"], "own": ["own"]}
    monkeypatch.setattr(benchmark_runs, "relative", lambda _, arms: [arm.name for arm in arms])
    assert found.at_a_glance == ["oracle", "fedavg", "own"]  # of rotation alone
    assert benchmark._points(found.complete, "own") == [
        pytest.approx([10, 10]),
        pytest.approx([0, 0]),
    ]

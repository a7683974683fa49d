"""The page of the benchmark, from real runs at smoke scale with a method from outside among
them.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
import yaml

from fedclust.__main__ import main
from scripts.papers import benchmark

SMOKE = ("experiment=benchmark", "scale=smoke", "dataset=digits", "progress=false", "threads=1")


def rows(text: str, first: str) -> dict[str, list[str]]:
    """The lines of the Markdown table whose head begins with a word, by their first cell."""
    lines = text[text.index(f"| {first} |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {line[0]: line[1:] for line in cells}


@pytest.mark.slow
def test_a_method_from_outside_is_a_row_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    two = "case=benchmark/rotation,benchmark/drift"
    main(["run", *SMOKE, two])
    own = str(root / "examples" / "own_algorithm")
    main(["run", *SMOKE, two, "algorithm=server_momentum", "--config-dir", own])
    runs, target = tmp_path / "outputs" / "benchmark-smoke", tmp_path / "docs" / "page.md"
    with (runs / "report" / "relative.csv").open(newline="") as file:
        shares = {row["arm"]: row for row in csv.DictReader(file)}
    assert set(shares) == {"server_momentum", "ifca", "fedavg"}
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    text = target.read_text()
    board = rows(text, "method")
    assert set(board) == {"oracle", "ifca", "fedavg", "server_momentum"}
    assert float(board["server_momentum"][4]) == pytest.approx(
        100 * float(shares["server_momentum"]["mean"]), abs=0.06
    )
    assert board["server_momentum"][6:8] == ["1", "1"]  # sends and trains as FedAvg
    assert board["ifca"][6:8] == ["2.5", "1"]  # four models down and one up
    assert "Not in the tables: label permutation (not run)." in text
    assert "- **server_momentum**: " in text
    assert rows(text, "shift")["drift"][3].endswith(" of 2")
    with (target.with_suffix("") / "scores.csv").open(newline="") as file:
        scores = list(csv.DictReader(file))
    assert len(scores) == 2 * 4 * 2  # federations, methods, seeds
    assert (target.with_suffix("") / "at_a_glance.png").stat().st_size > 5_000
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
    assert "Tuned on validation data" not in before
    main(["run", *SMOKE, two, "tuned=outputs/benchmark-smoke-tuning"])
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    text = target.read_text()
    head = "## Tuned on validation data"
    assert rows(text, "method") == rows(before, "method")
    assert "with the rounds of 2 whole trials" in text.replace("\n", " ")
    tuned = rows(text[text.index(head) :], "method")
    assert set(tuned) == {"ifca", "fedavg"}
    board = rows(text, "method")
    for name, cells in tuned.items():
        assert cells[1] == board[name][0].strip("*")
        assert cells[3] == board[name][4]
        best = [
            yaml.safe_load(file.read_text())
            for file in (tmp_path / "outputs" / "benchmark-smoke-tuning").rglob("best.yaml")
            if file.parent.name.startswith(name)
        ]
        rates = sorted(one["values"]["solver.lr"] for one in best)
        assert cells[7] == f"{rates[0]:.2g} to {rates[-1]:.2g}"
        if all(one["trial"] == 0 for one in best):
            assert cells[4] == "0.0"
            assert cells[6] == "0.0 to 0.0"
    # where a method was not tuned, the federation is not in the table
    job = next(runs.glob("ifca,case=benchmark_drift*tuned*"))
    status = (job / "status.json").read_text()
    (job / "status.json").write_text(status.replace('"done"', '"interrupted"'))
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    assert "in 1 federation (rotation)" in target.read_text().replace("\n", " ")
    assert set(rows(target.read_text(), "shift")) == {"rotation", "drift"}
    # tuned jobs alone are the leaderboard
    for job in runs.iterdir():
        if "case=" in job.name and "tuned" not in job.name:
            shutil.rmtree(job)
    assert benchmark.main([str(runs), "--to", str(target)]) == 0
    assert head not in target.read_text()
    assert "the settings that its search found" in target.read_text().replace("\n", " ")
    capsys.readouterr()


def test_runs_of_another_experiment_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert benchmark.main([str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1

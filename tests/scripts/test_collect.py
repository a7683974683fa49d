"""Numbers of finished jobs in files small enough for a repository."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import yaml

from fedclust.helpers.errors import UserError
from scripts.papers import collect_results, paper_page
from scripts.papers.collect_results import collect_runs

ACCURACY = ([0.5, 0.96, 0.88, 0.86], [0.2, 0.7, 0.86, 0.9])  # of two seeds, by round


def write_job(folder: Path, seeds: list[int], **config: object) -> None:
    """A job of four rounds in which everybody is served from the second on."""
    folder.mkdir(parents=True)
    lines = ["seed,round,metric,value"]
    for seed in seeds:
        for t, value in enumerate(ACCURACY[seed]):
            lines.append(f"{seed},{t},accuracy,{value}")
            lines.append(f"{seed},{t},served,{float(t >= 2)}")
            lines += [f"{seed},{t},models_down,3", f"{seed},{t},models_up,2"]
            lines += [f"{seed},{t},discrepancy,{t}", f"{seed},{t},seconds,900"]
    (folder / "rounds.csv").write_text("\n".join(lines) + "\n")
    whole = {
        "name": "flexcfl/table3",
        "rounds": 4,
        "seeds": seeds,
        "choices": {"algorithm": "fedavg", "dataset": "mnist", "scenario": "static"},
        "overrides": ["experiment=flexcfl/table3", "case=flexcfl/femnist_mclr", f"seeds={seeds}"],
        "report": {"case": "FEMNIST-MCLR", "dataset": "emnist"},
        "scale": {"name": "paper"},
        **config,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(whole))
    (folder / "status.json").write_text(json.dumps({"state": "done", "rounds": 4}))
    (folder / "versions.json").write_text(json.dumps({"device": "two cores", "commit": None}))
    (folder / "campaign.json").write_text(json.dumps({"commit": "abc", "command": "fedclust run"}))


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def claims_alone(folder: Path) -> Path:
        (folder / "report").mkdir(exist_ok=True)
        (folder / "report" / "claims.csv").write_text("claim,measured,verdict,seeds\n")
        return folder / "report" / "report.html"

    monkeypatch.setattr(collect_results, "make_report", claims_alone)


def collected(folder: Path, runs: str = "runs") -> Path | None:
    """Where numbers of the jobs below `runs` are kept now."""
    return collect_runs(folder / runs, folder / "docs", "paper")


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_a_line_per_seed_and_one_per_job(tmp_path: Path) -> None:
    write_job(tmp_path / "runs" / "a", [0, 1])
    target = collected(tmp_path)
    assert target == tmp_path / "docs" / "runs" / "flexcfl" / "table3"
    (made,) = read(target / "jobs.csv")
    assert (made["case"], made["stands_in_for"], made["seeds"]) == ("FEMNIST-MCLR", "emnist", "0 1")
    assert (made["commit"], made["machine"], made["hours"]) == ("abc", "two cores", "2.0000")
    seeds = read(target / made["file"])
    assert [seed["accuracy last"] for seed in seeds] == ["86", "90"]
    # the 96 of the first seed came before everybody was served
    assert [seed["accuracy max"] for seed in seeds] == ["88", "90"]
    assert [seed["accuracy first 85"] for seed in seeds] == ["2", "3"]
    assert [seed["accuracy first 95"] for seed in seeds] == ["2", "never"]
    assert [seed["models total"] for seed in seeds] == ["20", "20"]
    assert [seed["discrepancy variance"] for seed in seeds] == ["1.25", "1.25"]


def test_a_second_way_of_testing_is_no_method_of_its_own(tmp_path: Path) -> None:
    choices = {"algorithm": "last_local", "algorithm@algorithm.base": "ifca", "dataset": "mnist"}
    overrides = ["experiment=lcfl/table2", "algorithm=last_local", "algorithm@algorithm.base=ifca"]
    whole = {"name": "lcfl/table2", "choices": choices, "overrides": overrides}
    write_job(tmp_path / "runs" / "a", [0], **whole)
    target = collected(tmp_path)
    (made,) = read(target / "jobs.csv")
    assert (made["algorithm"], made["options"]) == ("ifca", "")


def test_jobs_of_single_seeds_become_one_line(tmp_path: Path) -> None:
    write_job(tmp_path / "runs" / "a", [0])
    write_job(tmp_path / "runs" / "b", [1])
    target = collected(tmp_path)
    (made,) = read(target / "jobs.csv")
    assert made["seeds"] == "0 1"
    assert "seeds" not in made["file"]


def test_seeds_that_were_collected_before_stay(tmp_path: Path) -> None:
    """Where they are of the same job: another number of rounds is another result."""
    write_job(tmp_path / "one" / "a", [0], hash="h0")
    write_job(tmp_path / "two" / "a", [1], hash="h1")
    for source in ("one", "two", "two", "one"):
        target = collected(tmp_path, source)
    (made,) = read(target / "jobs.csv")
    assert (made["seeds"], made["hash"], made["commit"]) == ("0 1", "h0 h1", "abc")
    assert made["hours"] == "2.0000"
    assert [seed["accuracy last"] for seed in read(target / made["file"])] == ["86", "90"]
    write_job(tmp_path / "three" / "a", [1], rounds=8)
    collected(tmp_path, "three")
    assert [line["seeds"] for line in read(target / "jobs.csv")] == ["1"]


def test_what_was_collected_elsewhere_stays_and_nothing_changes_twice(tmp_path: Path) -> None:
    write_job(tmp_path / "one" / "a", [0])
    overrides = ["experiment=flexcfl/table3", "case=flexcfl/mnist_mclr", "algorithm.mu=0.1"]
    write_job(tmp_path / "two" / "a", [0], overrides=overrides)
    for source in ("one", "two", "one"):
        target = collected(tmp_path, source)
    lines = read(target / "jobs.csv")
    assert [line["options"] for line in lines] == ["algorithm.mu=0.1", ""]
    assert all((target / line["file"]).is_file() for line in lines)


def test_a_figure_of_fewer_jobs_does_not_take_the_place_of_one_of_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_results, "_main_figure", lambda figures, _: figures)
    monkeypatch.setattr(collect_results, "small", lambda figures: figures.parts[-3].encode())
    about = {"name": "flexcfl/fig4", "overrides": ["experiment=flexcfl/fig4"]}
    mu = ["experiment=flexcfl/fig4", "algorithm.mu=0.1"]
    other = {"name": "flexcfl/fig4", "overrides": mu, "algorithm": {"mu": 0.1}}
    write_job(tmp_path / "one" / "a", [0], **about)
    write_job(tmp_path / "two" / "a", [0], **other)
    write_job(tmp_path / "both" / "a", [0], **about)
    write_job(tmp_path / "both" / "b", [0], **other)
    for source, drawn in (("one", "one"), ("two", "one"), ("both", "both"), ("one", "both")):
        target = collected(tmp_path, source)
        assert target is not None
        assert (target / "figure.png").read_text() == drawn
        caption = " ".join(paper_page._drawn_of(target / "jobs.csv"))
        is_said = "Not drawn, as run later: fedavg algorithm.mu=0.1." in caption
        assert is_said == (source == "two")


@pytest.mark.parametrize(
    "unfit", [{"state": "running"}, {"state": "done", "scale": "laptop"}], ids=["running", "small"]
)
def test_only_finished_jobs_of_the_scale_are_collected(
    tmp_path: Path, unfit: dict[str, str]
) -> None:
    write_job(tmp_path / "runs" / "a", [0], scale={"name": unfit.get("scale", "paper")})
    (tmp_path / "runs" / "a" / "status.json").write_text(json.dumps({"state": unfit["state"]}))
    assert collected(tmp_path) is None
    assert not (tmp_path / "docs").exists()


def test_a_run_of_a_modified_tree_is_not_collected(tmp_path: Path) -> None:
    write_job(tmp_path / "runs" / "a", [0])
    (tmp_path / "runs" / "a" / "campaign.json").write_text(
        json.dumps({"commit": "abc-dirty", "command": ""})
    )
    with pytest.raises(UserError, match=r"=abc-dirty is not allowed: a run of committed code"):
        collected(tmp_path)
    assert not (tmp_path / "docs").exists()


def test_statements_of_other_cases_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def collected(case: str, overrides: list[str], *claims: str) -> list[tuple[str, str]]:
        def judged(folder: Path) -> Path:
            lines = ["claim,measured,verdict,seeds", *claims, ""]
            (folder / "report").mkdir(exist_ok=True)
            (folder / "report" / "claims.csv").write_text("\n".join(lines))
            return folder / "report" / "report.html"

        monkeypatch.setattr(collect_results, "make_report", judged)
        shutil.rmtree(tmp_path / case, ignore_errors=True)
        write_job(
            tmp_path / case / "a",
            [0],
            report={"case": case, "dataset": "mnist"},
            overrides=["experiment=flexcfl/table3", *overrides],
        )
        target = collect_runs(tmp_path / case, tmp_path / "docs", "paper")
        return [(row["claim"], row["measured"]) for row in read(target / "claims.csv")]

    linear, perceptron = ["case=flexcfl/mnist_mclr"], ["case=flexcfl/mnist_mlp"]
    assert collected("MNIST-MCLR", linear, "A leads B,1,holds,5") == [("A leads B", "1")]
    assert collected("MNIST-MCLR", linear, "A leads B,2,holds,5") == [("A leads B", "2")]
    found = collected("MNIST-MLP", perceptron, "A leads B,3,holds,5", "C leads B,4,holds,5")
    assert found == [
        ("A leads B [MNIST-MCLR]", "2"),
        ("A leads B [MNIST-MLP]", "3"),
        ("C leads B [MNIST-MLP]", "4"),
    ]
    found = collected("MNIST-MCLR", linear, "A leads B,5,holds,5")
    assert ("A leads B [MNIST-MCLR]", "5") in found
    assert len(found) == 3

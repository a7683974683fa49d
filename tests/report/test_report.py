"""The report of made-up sweeps whose right answers are known."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import zlib
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up import found, job, plain, printed, texts
from omegaconf import OmegaConf

from fedclust.helpers.errors import ConfigError, DataError, RunFolderError
from fedclust.launch.sweep import notes, report_sweep
from fedclust.papers.published import Published
from fedclust.papers.reports import contents, make_report
from fedclust.report.curves import draw
from fedclust.report.formats import plus_minus
from fedclust.report.page import Page, render
from fedclust.report.write import experiments


def table(folder: Path, name: str) -> list[dict[str, str]]:
    """The records of one table, without drawing figures."""
    return list(csv.DictReader(io.StringIO(found(contents(folder), name).csv())))


def embedded_fonts(pdf: bytes) -> list[set[str]]:
    """The names of the tables of every TrueType font in a PDF."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    fonts = [zlib.decompress(x) for x in streams if x[:1] == b"x"]
    return [
        {font[at : at + 4].decode() for at in range(12, 12 + 16 * int.from_bytes(font[4:6]), 16)}
        for font in fonts
        if font[:4] == b"\0\1\0\0"
    ]


@pytest.mark.full
@pytest.mark.figures
def test_the_whole_report_of_a_sweep(sweep: Path) -> None:
    page = make_report(sweep)
    folder = sweep / "report"
    assert page == folder / "report.html"
    for table in ("table", "claims", "recovery", "cost", "over_rounds", "settings"):
        for ending in ("md", "csv", "tex"):
            assert (folder / f"{table}.{ending}").stat().st_size > 50
    figures = {p.name for p in (folder / "figures").iterdir()}
    expected = ("accuracy", "train_loss", "purity", "accuracy_bytes", "contingency", "distance")
    expected += ("flow_lcfl", "flow_ifca")
    assert {f"{name}.{ending}" for name in expected for ending in ("png", "pdf")} == figures
    fonts = embedded_fonts((folder / "figures" / "accuracy.pdf").read_bytes())
    assert len(fonts) >= 2
    for tables in fonts:
        assert {"glyf", "hmtx"} < tables
        assert not {"GDEF", "GPOS", "GSUB", "MATH"} & tables  # not read, and slow to cut down
    text = page.read_text()
    assert re.findall(r"<(?:link|script |iframe)", text) == []
    assert set(re.findall(r"src=\W*(\w+)", text)) == {"data"}
    assert set(re.findall(r"href=(\W*)", text)) == {"#"}
    assert "http" not in re.sub(r"data:image[^\"]*", "", text)
    order = ["class=table", "<figure", "class=claims", "id=figures"]  # the curve beside the table
    assert sorted(order, key=text.index) == order
    assert text.count("<figure") == len(figures) / 2


@pytest.mark.full
@pytest.mark.figures
def test_reporting_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    job(tmp_path, "fedavg", seeds=(0, 1), rounds=2)
    files = []
    for _ in range(2):
        make_report(tmp_path)
        files.append({p: p.read_bytes() for p in (tmp_path / "report").rglob("*") if p.is_file()})
    assert files[0] == files[1]


@pytest.mark.full
def test_cells_are_mean_and_population_std_with_the_published_number(sweep: Path) -> None:
    records = {(r["arm"], r["column"]): r for r in table(sweep, "table")}
    assert [arm for arm, column in records if column == "round 5"] == [
        "lcfl",
        "ifca",
        "fedavg",
        "local",
    ]
    rounds = pd.read_csv(sweep / "algorithm=ifca" / "rounds.csv")
    measured = 100 * rounds.query("round == 9 and metric == 'accuracy'")["value"].to_numpy()
    assert len(measured) == 3
    cell = records["ifca", "round 10"]
    assert float(cell["mean"]) == pytest.approx(np.mean(measured))
    assert float(cell["std"]) == pytest.approx(np.std(measured))
    assert (cell["n"], cell["published"], cell["published_std"]) == ("3", "94.04", "0.23")
    assert float(cell["difference"]) == pytest.approx(np.mean(measured) - 94.04)
    said = Published(94.04, 0.23).agrees(measured)
    assert cell["agrees"] == ("" if said is None else str(said))
    markdown = contents(sweep).tables[0].markdown()
    assert f"{np.mean(measured):.2f} ± {np.std(measured):.2f}" in markdown
    assert "paper 94.04 ± 0.23" in markdown


@pytest.mark.full
def test_claims_are_measured_and_judged(sweep: Path) -> None:
    verdicts = {r["claim"]: (r["verdict"], r["seeds"]) for r in table(sweep, "claims")}
    assert verdicts["lcfl equals fedavg through round 3"] == ("holds", "3 of 3")
    assert verdicts["lcfl > ifca > fedavg > local at the end (accuracy)"] == (
        "cannot tell",
        "2 of 3",
    )
    assert verdicts["lcfl ends with purity of at least 1.000"] == ("holds", "3 of 3")
    assert verdicts["ifca ends with purity of at least 1.000"] == ("cannot tell", "1 of 3")


@pytest.mark.full
@pytest.mark.parametrize(
    ("config", "smaller"),
    [
        ({}, "solver.lr"),
        (
            {"privacy": {"_target_": "fedclust.updates.privacy.ClientDP", "noise": 5.0}},
            "privacy.noise or solver.lr",
        ),
    ],
)
def test_a_loss_that_explodes_is_told(tmp_path: Path, config: dict[str, Any], smaller: str) -> None:
    job(tmp_path / "a", "lcfl", rounds=2)
    job(tmp_path / "b", "ifca", rounds=2, loss=1e200, config=config)
    make_report(tmp_path)
    (banner,) = contents(tmp_path).banners
    assert banner == f"ifca: the training loss ends at 5e+199; a smaller {smaller} may help"


@pytest.mark.filterwarnings("error")
def test_epsilon_stands_beside_the_score_of_a_private_job(tmp_path: Path) -> None:
    scores = {"accuracy": [[0.5, 0.6], [0.7, 0.8]]}
    for name, spent in {"a": [[2.0, 2.0], [3.25, 3.25]], "b": [[1.0, 1.0], [7.5, inf]]}.items():
        curves = {**scores, "epsilon": spent}
        plain(tmp_path / name, curves)
    plain(tmp_path / "c", scores)
    main = found(contents(tmp_path), "table")
    assert main.columns == ("arm", "last (round 2)", "epsilon", "seeds")
    assert [row[2].text for row in main.rows] == ["3.25", "7.50 to inf", "–"]
    assert "epsilon: of differential privacy in the last round, for one seed." in main.notes
    spent = {one["arm"]: one["mean"] for one in main.records if one["metric"] == "epsilon"}
    assert spent == {"a": 3.25, "b": inf}
    lines = [line.split() for line in printed(tmp_path).splitlines()]
    assert ["arm", "accuracy", "%", "epsilon", "seeds"] in lines
    ends = [line[-4:] for line in lines if "±" in line and "mean" not in line]
    assert ends == [["±", "5.00", "3.25", "2"], ["7.50", "to", "inf", "2"], ["±", "5.00", "–", "2"]]


def test_epsilon_of_several_settings_is_a_line_of_each_that_is_private(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for alpha, spent in {"1": {"epsilon": [[4.0]]}, "2": {}}.items():
            given = ["partition=dirichlet", f"partition.alpha={alpha}"]
            plain(
                tmp_path / f"{name}-{alpha}", {"accuracy": [[0.5]], **spent}, name, overrides=given
            )
    main = found(contents(tmp_path), "table")
    assert texts(main) == [
        ["alpha=1", "50.00", "50.00"],
        ["alpha=1, epsilon", "4.00", "4.00"],
        ["alpha=2", "50.00", "50.00"],
    ]


@pytest.mark.full
def test_claims_end_the_run(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for claim in table(sweep, "claims"):
        mark = {"holds": "✓", "does not hold": "✗", "cannot tell": "?"}[claim["verdict"]]
        seen = f"{claim['verdict']} ({claim['measured']}; {claim['seeds']} seeds)"
        said = f"{mark} {claim['claim']}: {seen}"
        assert said in printed(sweep)
    monkeypatch.setattr("fedclust.report.terminal._MOST_CLAIMS", 2)
    claims = table(sweep, "claims")
    holding = sum(claim["verdict"] == "holds" for claim in claims)
    assert f"{holding} of {len(claims)} claims hold; the report lists them" in printed(sweep)


@pytest.mark.full
def test_recovery_in_plain_words(sweep: Path) -> None:
    text = printed(sweep)
    assert "ifca merges true groups in 2 of 3 seeds" in text
    assert "(purity 0.75, 0.75, 1.00)" in text
    assert "lcfl recovers the true groups exactly in 3 of 3 seeds" in text
    assert "fedavg: all clients are in one cluster" in text
    assert "local: every client has its own model" in text
    rows = {r["arm"]: r for r in table(sweep, "recovery")}
    assert (rows["ifca"]["pure_seeds"], rows["lcfl"]["pure_seeds"]) == ("1", "3")
    assert float(rows["fedavg"]["ari"]) == 0.0


@pytest.mark.full
def test_costs_are_totals_over_rounds(sweep: Path) -> None:
    rows = {r["arm"]: r for r in table(sweep, "cost")}
    assert float(rows["ifca"]["models_down"]) == 12 * 40 * 4
    assert float(rows["ifca"]["bytes"]) == 4 * 1000 * 12 * 40 * 5
    assert float(rows["fedavg"]["gradient_steps"]) == 12 * 400
    assert float(rows["local"]["bytes"]) == 0
    assert float(rows["lcfl"]["seconds"]) == pytest.approx(3.0)


@pytest.mark.full
def test_settings_show_what_differs(sweep: Path) -> None:
    rows = {r["key"]: r["value"] for r in table(sweep, "settings")}
    assert rows["algorithm.num_clusters"] == "4"
    assert rows["algorithm.lr"] == "lcfl, fedavg, local: 0.02; ifca: 0.03"


@pytest.mark.full
def test_a_scaled_run_says_so_everywhere_and_agrees_with_nothing(tmp_path: Path) -> None:
    report = {"published": "LCFL/Table II", "rounds": [5, 30, 60]}
    job(tmp_path / "a", "lcfl", config={"report": report, "scale": {"name": "laptop"}})
    page = make_report(tmp_path)
    warning = "scaled run (laptop): compare orderings, not values"
    assert warning in page.read_text()
    for name in ("table", "recovery", "cost", "over_rounds", "settings"):
        assert warning in (page.parent / f"{name}.md").read_text()
        assert warning in (page.parent / f"{name}.tex").read_text()
    assert warning in printed(tmp_path)
    table = (page.parent / "table.md").read_text()
    assert "paper, full size, round 5 | paper, full size, round 30" in table
    assert "| 89.66 ± " in table
    assert "−" not in table  # no difference
    assert "✓" not in table
    assert "✗" not in table
    assert "last (round 12)" in table
    lines = [line.split() for line in printed(tmp_path).splitlines()]
    assert "paper, full size, round 60" in " ".join(lines[1])
    assert lines[2][-4:] == ["97.90", "±", "0.08", "3"]  # no difference


def test_unfinished_and_failed_jobs_are_reported_and_named(tmp_path: Path) -> None:
    running = {"state": "running", "rounds_done": 6, "rounds": 12}
    job(tmp_path / "a", "lcfl", rounds=6, status=running)
    lost = {"0": "ok", "1": "ok", "2": "loss is nan in round 3, client 7"}
    job(tmp_path / "b", "ifca", seeds=(0, 1), status={"seeds": lost})
    job(tmp_path / "c", "fedavg", status={"state": "failed", "error": "OSError: disk full"})
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "config.yaml").write_text("name: demo\n")
    banners = contents(tmp_path).banners
    assert "lcfl is not finished (running, 6 of 12 rounds)" in banners
    assert (
        "ifca: seed 2 failed and is left out of all numbers: loss is nan in round 3, client 7"
        in banners
    )
    assert "fedavg failed after 12 of 12 rounds: OSError: disk full" in banners
    assert "d has no results yet" in banners
    text = printed(tmp_path)
    assert all(banner in text for banner in banners)
    rows = found(contents(tmp_path), "table").rows
    beside = {row[0].text: [cell.detail for cell in row[1:]] for row in rows}
    assert any("after 6 rounds" in detail for detail in beside["lcfl"])
    assert not any("after" in detail for detail in beside["ifca"])


@pytest.mark.full
def test_a_running_job_may_be_writing_its_last_line(tmp_path: Path) -> None:
    folder = job(tmp_path / "a", "lcfl")
    whole = contents(folder).tables[0].csv()
    with (folder / "rounds.csv").open("a") as file:
        file.write("0,12,accuracy,0.")
    assert contents(folder).tables[0].csv() == whole


def test_one_job_folder_is_a_report_too_even_with_one_seed_and_without_a_report_node(
    tmp_path: Path,
) -> None:
    folder = job(tmp_path / "job", "fedavg", seeds=(4,), rounds=3)
    page = make_report(folder)
    table = (page.parent / "table.md").read_text()
    assert re.search(r"\| fedavg \| \d\d\.\d\d \|", table)
    assert "over 1 seed." in table
    assert "demo" in page.read_text()


@pytest.mark.full
def test_jobs_of_one_algorithm_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    for size in (40, 80, 120):
        for name in ("lcfl", "ifca"):
            overrides = [f"partition.num_clients={size}", "rounds=4"]
            job(tmp_path / f"{name}{size}", name, rounds=4, clients=size, overrides=overrides)
    said = contents(tmp_path)
    expected = [
        f"{name}, num_clients={size}" for size in (40, 80, 120) for name in ("ifca", "lcfl")
    ]
    assert [arm.label for arm in said.arms] == expected
    headline = said.tables[0]
    assert headline.columns == ("setting", "ifca", "lcfl")
    assert [row[0].text for row in headline.rows] == [
        f"num_clients={size}" for size in (40, 80, 120)
    ]
    assert [record["arm"] for record in headline.records] == expected


@pytest.mark.full
def test_many_arms_are_drawn_in_panels(tmp_path: Path) -> None:
    for size in (8, 12, 16):
        for name in ("lcfl", "ifca", "fedavg"):
            given = {"clients": size, "overrides": [f"partition.num_clients={size}"]}
            job(tmp_path / f"{name}{size}", name, seeds=(0,), rounds=4, **given)
    figure = draw(contents(tmp_path).arms, ["accuracy"], "round")
    assert [axes.get_title() for axes in figure.axes] == [
        f"num_clients={size}" for size in (8, 12, 16)
    ]
    assert [len(axes.lines) for axes in figure.axes] == [3, 3, 3]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg", "ifca", "lcfl"]


def test_the_maximum_ignores_rounds_before_everybody_is_served(tmp_path: Path) -> None:
    folder = job(
        tmp_path / "job", "fedavg", seeds=(0,), rounds=3, config={"report": {"score": "max"}}
    )
    lines = ["seed,round,metric,value"]
    for t, (served, value) in enumerate([(0.5, 0.99), (1.0, 0.7), (0.9, 0.8), (1.0, 0.6)]):
        lines += [f"0,{t},accuracy,{value}", f"0,{t},served,{served}"]
    (folder / "rounds.csv").write_text("\n".join(lines) + "\n")
    row = contents(folder).tables[0].records[0]
    assert (row["column"], row["mean"]) == ("best over rounds", pytest.approx(80.0))


@pytest.mark.full
def test_unsound_published_options_are_in_the_header(tmp_path: Path) -> None:
    switched = {"algorithm": {"aggregation": "first_client", "cluster_choice": "train_loss"}}
    job(tmp_path / "a", "ifca", config=switched)
    job(tmp_path / "b", "lcfl")
    (banner,) = contents(tmp_path).banners
    assert (
        "algorithm.aggregation=first_client: a cluster takes over the model of one participant"
        in banner
    )
    assert banner.endswith("(ifca)")


def test_a_done_job_whose_rounds_are_cut_off_is_said(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", "fedavg", rounds=4)
    lines = (folder / "rounds.csv").read_text().splitlines(keepends=True)
    (folder / "rounds.csv").write_text(
        "".join(line for line in lines if not line.startswith(("0,3", "1,3", "2,3")))
    )
    assert "ends after 3 of 4 rounds" in make_report(folder).read_text()


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a folder"):
        make_report(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match="holds no job"):
        make_report(tmp_path)
    folder = job(tmp_path / "job", "fedavg", rounds=2)
    (folder / "rounds.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"rounds\.csv cannot be read[^\n]*$"):
        make_report(folder)


def test_a_report_node_with_a_mistake_is_named(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", "fedavg", rounds=2)
    whole = (folder / "config.yaml").read_text()
    mistakes = {
        "report.titel": {"titel": "x"},
        "report.metric": {"metric": "acc"},
        "report.score": {"score": "median"},
        "report.published=LCFL/Table IX": {"published": "LCFL/Table IX"},
        "kind=bigger": {"claims": [{"kind": "bigger"}]},
        "reaches.at": {"claims": [{"kind": "reaches", "arm": "lcfl", "at": 3}]},
        "reaches is incomplete": {"claims": [{"kind": "reaches", "arm": "lcfl"}]},
    }
    for message, node in mistakes.items():
        (folder / "config.yaml").write_text(whole + OmegaConf.to_yaml({"report": node}))
        with pytest.raises(ConfigError, match=re.escape(message)):
            contents(folder)


def test_the_callback_reports_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "a", "fedavg", seeds=(0,), rounds=2)
    with notes() as noted:
        report_sweep(tmp_path, noted)
        assert noted.not_run() == {}
    assert (tmp_path / "report" / "report.html").is_file()
    assert "all clients are in one cluster" in capsys.readouterr().out


def test_the_report_of_a_report_does_not_grow(sweep: Path) -> None:
    (sweep / "report").mkdir()
    (sweep / "report" / "config.yaml").write_text("name: x\n")
    jobs = {str(arm.run.folder.relative_to(sweep)) for arm in contents(sweep).arms}
    assert jobs == {f"algorithm={name}" for name in ("lcfl", "ifca", "fedavg", "local")}
    status = json.loads((sweep / "algorithm=lcfl" / "status.json").read_text())
    assert status["state"] == "done"


def test_a_copy_of_an_experiment_beside_it_is_one_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        job(tmp_path / name / "job", "fedavg", rounds=2, config={"name": name})
    shutil.copytree(tmp_path / "one", tmp_path / "one-backup")
    there = {folder.name: len(jobs) for folder, jobs in experiments(tmp_path).items()}
    assert there == {"one": 1, "two": 1, "one-backup": 1}


def test_runs_that_differ_in_what_is_no_part_of_their_name(tmp_path: Path) -> None:
    for where, threads in (("x/job", 1), ("y/job", 2), ("z/job", 1)):
        job(tmp_path / where, "fedavg", rounds=2, config={"threads": threads})
    rows = {row["key"]: row["value"] for row in table(tmp_path, "settings")}
    assert rows["threads"] == "fedavg (job): 1; fedavg (job): 2"


def test_the_round_of_best_validation_is_chosen_by_validation_alone(tmp_path: Path) -> None:
    curves = {
        "accuracy": [[0.5, 0.9], [0.6, 0.3], [0.9, 0.4], [0.7, 0.5]],
        "validation_accuracy": [[0.9, 0.9], [0.7, 0.8], [0.6, 0.6], [0.7, 0.8]],
        "served": [[0.5, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]],
    }
    for score in ("last", "validation"):
        folder = tmp_path / score
        plain(folder / "job", curves, "x", report={"score": score})
        means = {row["column"]: float(row["mean"]) for row in table(folder, "table")}
        # seed 0 is first served in full in its second round, which ties with the fourth
        assert means == pytest.approx({"last (round 4)": 60.0, "at best validation": 75.0})
    assert list(means) == ["at best validation", "last (round 4)"]
    assert "mean of last 4" in found(contents(tmp_path / "last"), "over_rounds").columns
    assert "validated accuracy" in printed(tmp_path / "validation")
    assert "75.0" in printed(tmp_path / "validation")


def test_an_arm_without_validation_examples_says_what_it_lacks(tmp_path: Path) -> None:
    plain(tmp_path / "job", [[0.5], [0.6]], "x", report={"score": "validation"})
    page = make_report(tmp_path).read_text()
    assert "the run set no validation examples aside; validation=0.2 takes a fifth" in page


@pytest.mark.full
def test_both_main_tables_show_how_well_groups_are_found(sweep: Path) -> None:
    """Purity and ARI of the terminal's table stand in that of the report, its Markdown, CSV and
    LaTeX, and the recovery of the groups directly below.
    """
    report = contents(sweep)
    main, below = report.tables[:2]
    assert main.columns[:1] + main.columns[-3:] == ("arm", "purity", "ARI", "seeds")
    assert below.name == "recovery"
    arm = next(arm for arm in report.arms if arm.label == "ifca")
    row = next(row for row in main.rows if row[0].text == "ifca")
    assert row[-3].text == plus_minus(arm.last("purity")) == "0.83 ± 0.12"
    assert row[-2].text == plus_minus(arm.last("ari"))
    records = [one for one in main.records if one["arm"] == "ifca" and one["metric"] == "purity"]
    assert [(one["n"], one["mean"]) for one in records] == [(3, pytest.approx(5 / 6))]
    assert "| purity" in main.markdown()
    heads = printed(sweep).splitlines()[1].split()
    assert heads[:5] == ["arm", "accuracy", "%", "purity", "ARI"]
    page = render(Page(title="demo", subtitle="", banners=(), tables=report.tables, pictures=()))
    assert page.index("id=table>") < page.index("id=recovery>") < page.index("id=claims>")

"""Sweeps over federations: which overrides name an arm, which a setting, and what is drawn and
printed.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from made_up import found, plain

from fedclust.core.federation import build, summary
from fedclust.datasets.digits import Digits
from fedclust.helpers.errors import ConfigError
from fedclust.papers.reports import all_contents, contents, spec_of
from fedclust.partitions.rotated import Rotated
from fedclust.report import figures
from fedclust.report.arms import arms, path_ends
from fedclust.report.curves import draw
from fedclust.report.group_recovery import words
from fedclust.report.runs import Run
from fedclust.report.spec import FigureSpec
from fedclust.report.write import Contents, make_report

CASES = {
    "mnist_mclr": ("MNIST-MCLR", "mnist", "mclr"),
    "femnist_mlp": ("FEMNIST-MLP", "mnist", "mlp512"),
}


def test_paths_are_told_apart_by_the_shortest_end() -> None:
    assert path_ends(["/d/2025/a.csv", "/d/2024/a.csv", "/d/2024/b.csv", "x", "[a/b]"]) == {
        "/d/2025/a.csv": "2025/a.csv",
        "/d/2024/a.csv": "2024/a.csv",
        "/d/2024/b.csv": "b.csv",
    }
    assert path_ends(["a.csv", "d/a.csv", "'d/a b.csv'"]) == {
        "d/a.csv": "d/a.csv",
        "'d/a b.csv'": "a b.csv",
    }


def test_arms_on_files_of_long_paths_are_named_by_the_files() -> None:
    deep = "/data/" + "of_a_hospital/" * 8
    given = [f"{deep}a.csv", f"{deep}b.csv"]
    runs = [
        Run(Path(one), {"overrides": [f"dataset.path={one}"], "choices": {}}, {}, {})
        for one in given
    ]
    assert [arm.label for arm in arms(runs)] == [f"{one}, path={one}" for one in ("a.csv", "b.csv")]


def test_a_key_whose_end_is_another_key_is_named_whole() -> None:
    given = [[f"model.norm={norm}", f"model.width={width}"] for norm, width in (("a", 1), ("b", 2))]
    runs = [Run(Path(), {"overrides": one, "choices": {}}, {}, {}) for one in given]
    assert [arm.label for arm in arms(runs)] == ["model.norm=a, width=1", "model.norm=b, width=2"]


def curve(top: float, rounds: int = 6) -> list[list[float]]:
    return [[top * (t + 1) / rounds, top * (t + 1) / rounds + 0.01] for t in range(rounds)]


CLAIMS = [
    {"kind": "gain", "left": "flexcfl", "right": "fedavg", "points": 8, "score": "max"},
    {"kind": "at_least", "arm": "fedavg", "value": 0.1, "setting": "MNIST-MCLR, swap all"},
]


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """Two cases, two scenarios, two algorithms; FEMNIST is made of MNIST."""
    for case, (title, dataset, model) in CASES.items():
        for scenario in ("swap_all", "swap_part"):
            for algorithm, top in (("fedavg", 0.7), ("flexcfl", 0.8)):
                report: dict[str, Any] = {
                    "published": "FlexCFL/Table IV",
                    "score": "max",
                    "case": title,
                    "figure": {"rows": ["accuracy", "train_loss"]},
                    "claims": CLAIMS,
                }
                if title.startswith("FEMNIST"):
                    report["dataset"] = "emnist"
                chosen = {"dataset": dataset, "model": model, "scenario": scenario}
                plain(
                    tmp_path / f"{case}-{scenario}-{algorithm}",
                    {"accuracy": curve(top), "train_loss": curve(1 - top)},
                    algorithm,
                    choices={**chosen, "case": f"flexcfl/{case}"},
                    overrides=[f"case=flexcfl/{case}", f"scenario={scenario}"],
                    report=report,
                )
    return tmp_path


SETTINGS = [
    f"{case}, {scenario}"
    for case in ("FEMNIST-MLP", "MNIST-MCLR")
    for scenario in ("swap all", "swap part")
]


@pytest.mark.full
def test_cases_and_scenarios_are_settings_in_words(grid: Path) -> None:
    arms = contents(grid).arms
    assert [(arm.setting, arm.name) for arm in arms] == [
        (setting, name) for setting in SETTINGS for name in ("fedavg", "flexcfl")
    ]
    assert arms[0].label == "fedavg, FEMNIST-MLP, swap all"


def test_what_comes_with_a_case_is_not_said_again(tmp_path: Path) -> None:
    """A data set given by path for one of the cases; two model widths within the other."""
    for name, case, overrides in (
        ("a", "cfl_mgd/cifar10", ["dataset=npz", "dataset.path=/somewhere/cifar10.npz"]),
        ("b", "cfl_mgd/mnist", ["model.hidden=[50]"]),
        ("c", "cfl_mgd/mnist", ["model.hidden=[100]"]),
    ):
        plain(
            tmp_path / name,
            curve(0.9),
            "ifca",
            choices={"case": case, "dataset": "npz" if name == "a" else "mnist"},
            overrides=[f"case={case}", *overrides],
            report={"case": case[8:]},
        )
    settings = [arm.setting for arm in all_contents(tmp_path)[0].arms]
    assert set(settings) == {"cifar10", "mnist, hidden=[50]", "mnist, hidden=[100]"}


def test_options_of_the_method_are_part_of_the_name(tmp_path: Path) -> None:
    for case in ("jgl/mnist_mlp", "jgl/mnist_cnn"):
        for weight in (None, "0.5", "0"):
            given = [f"algorithm.gradient_weight={weight}"] if weight else []
            plain(
                tmp_path / f"{case[4:]}{weight}",
                curve(0.5),
                "jgl",
                choices={"case": case},
                overrides=[f"case={case}", *given],
                algorithm={"gradient_weight": float(weight or 0.2)},
            )
    names = [f"jgl λ (gradient_weight)={weight}" for weight in ("0", "0.2", "0.5")]
    assert [(a.setting, a.name) for a in contents(tmp_path).arms] == [
        (setting, name) for setting in ("mnist_cnn", "mnist_mlp") for name in names
    ]


def test_the_headline_has_settings_by_arms_with_the_cells_of_the_paper(grid: Path) -> None:
    headline = contents(grid).tables[0]
    assert headline.columns == ("setting", "fedavg", "flexcfl")
    sides = [row[0].text for row in headline.rows]
    assert [side for side in sides if ", paper, full size" not in side] == SETTINGS
    paper = {side: row[1:] for side, row in zip(sides, headline.rows, strict=True)}
    # FEMNIST's are of other data: in a row of their own, without a difference
    assert [[cell.text for cell in paper[f"{s}, paper, full size"]] for s in SETTINGS[:2]] == [
        ["80.3", "86.6"],
        ["82.1", "73.4"],
    ]
    assert [[cell.detail.partition(",")[0] for cell in paper[s]] for s in SETTINGS] == [
        ["", ""],
        ["", ""],
        ["paper 89.9", "paper 95.1"],
        ["paper 89.2", "paper 91.7"],
    ]
    assert [[cell.strong for cell in paper[s]] for s in SETTINGS] == [[False, True]] * 4


def test_a_stand_in_is_named_and_agrees_with_nothing(grid: Path) -> None:
    said = contents(grid)
    assert [
        banner for banner in said.banners if banner.startswith("mnist stands in for emnist (fetch")
    ]
    for row in said.tables[0].rows:
        judged = {cell.good for cell in row[1:]}
        assert judged == ({None} if row[0].text.startswith("FEMNIST") else {False})
    records = said.tables[0].records
    assert all(("agrees" in r) != ("FEMNIST" in r["arm"]) for r in records)


def test_claims_are_checked_where_they_belong(grid: Path) -> None:
    said = [(row[0].text, row[2].text) for row in found(contents(grid), "claims").rows]
    gain = "flexcfl leads fedavg by +8 points by the best round"
    # FEMNIST is made of MNIST there, so its values say nothing of the paper's
    assert said[:4] == [
        (f"{gain} [{setting}]", "cannot tell" if setting.startswith("FEMNIST") else "does not hold")
        for setting in SETTINGS
    ]
    assert said[4:] == [
        ("fedavg ends with accuracy of at least 10.00 % [MNIST-MCLR, swap all]", "holds")
    ]


@pytest.mark.full
def test_panels_are_metrics_by_settings(grid: Path) -> None:
    figure = draw(contents(grid).arms, ["accuracy", "train_loss"], "round")
    assert len(figure.axes) == 8
    assert [axes.get_title() for axes in figure.axes[:4]] == SETTINGS
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "test accuracy (%)", "", "", "", "training loss\nnats per example", "", "", "",
    ]  # fmt: skip
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg", "flexcfl"]
    assert all(len(axes.lines) == 2 for axes in figure.axes)


@pytest.mark.full
def test_names_of_axes_do_not_run_into_each_other(grid: Path) -> None:
    metrics = ["accuracy", "train_loss_first_epoch", "train_loss", "accuracy_client_mean"]
    arms = contents(grid).arms
    figure = draw(arms, [m for m in metrics if any(a.curve(m) for a in arms)], "round")
    figure.draw_without_rendering()
    labels = [axes.yaxis.label for axes in figure.axes if axes.get_ylabel()]
    spans = [label.get_window_extent() for label in labels]
    assert len(spans) > 1
    assert all(below.y1 <= above.y0 for above, below in pairwise(spans))


@pytest.mark.full
def test_one_metric_keeps_the_shape_of_two_choices(grid: Path) -> None:
    figure = draw(contents(grid).arms, ["accuracy"], "round")
    assert len({round(axes.get_position().x0, 2) for axes in figure.axes}) == 4
    arms = contents(grid).arms
    five = [
        *arms,
        *(type(a)(a.run, a.name, a.setting.replace("FEMNIST", "Synthetic")) for a in arms[:4]),
    ]
    figure = draw(five, ["accuracy"], "round")
    # scenarios side by side
    assert len({round(axes.get_position().x0, 2) for axes in figure.axes}) == 2
    assert len(figure.axes) == 6


def test_the_asked_axis_counts_models(tmp_path: Path) -> None:
    sent = {"models_down": [[3.0, 3.0]] * 4, "models_up": [[2.0, 2.0]] * 4}
    curves = {"accuracy": curve(0.5, 4), **sent}
    plain(tmp_path / "a", curves, "ifca", report={"figure": {"x": "models"}})
    said = contents(tmp_path)
    figure = draw(said.arms, ["accuracy"], "models")
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), [5, 10, 15, 20])
    names = [name for name, _, made in figures._lines(said.spec, said.arms) if made is not None]
    assert names == ["accuracy_models", "accuracy"]


def test_one_outlier_leaves_the_panel_readable(tmp_path: Path) -> None:
    loss = {"a": [[1.0], [0.5], [0.4]], "b": [[1.1], [0.6], [0.5]], "c": [[1.0], [400.0], [9e4]]}
    for name, values in loss.items():
        plain(tmp_path / name, {"train_loss": values})
    figure = draw(contents(tmp_path).arms, ["train_loss"], "round")
    low, high = figure.axes[0].get_ylim()
    assert low >= 0
    assert 1.1 < high < 2
    assert figure.axes[0].texts[0].get_text() == "↑ up to 9e+04"


def test_a_steep_curve_is_no_outlier(tmp_path: Path) -> None:
    for name in ("a", "b"):
        values = [[2.3 * 0.8**t] for t in range(60)]
        plain(tmp_path / name, {"train_loss": values})
    figure = draw(contents(tmp_path).arms, ["train_loss"], "round")
    assert figure.axes[0].get_ylim()[1] > 2.3
    assert not figure.axes[0].texts


def test_figures_of_single_runs_are_of_the_first_setting(grid: Path) -> None:
    said = contents(grid)
    assert {arm.setting for arm in figures.first_settings(said.arms, 1)} == {SETTINGS[0]}
    assert figures.first_settings(said.arms, 9) == list(said.arms)
    captions = [caption for _, caption, _ in figures._matrices(said.spec, said.arms)]
    assert all(caption.endswith("The first setting only.") for caption in captions)


def test_a_seed_that_failed_late_is_left_out(tmp_path: Path) -> None:
    values = [[0.5, 0.9], [0.6, 0.9], [0.7, np.nan]]
    status = {"seeds": {"0": "ok", "1": "loss is nan in round 2"}}
    plain(tmp_path / "a", values, "ifca", status=status)
    said = contents(tmp_path)
    assert said.tables[0].records[0]["mean"] == pytest.approx(70)
    assert said.tables[0].records[0]["n"] == 1
    assert (
        "ifca: seed 1 failed and is left out of all numbers: loss is nan in round 2" in said.banners
    )


def test_an_unfinished_arm_is_not_the_best_and_ends_no_claim(tmp_path: Path) -> None:
    claims = [{"kind": "order_at_end", "best_to_worst": ["c", "a"]}]
    config = {"report": {"claims": claims, "order": ["a", "b", "c"]}}
    for name, top, state in (("a", 0.5, "done"), ("b", 0.4, "done"), ("c", 0.9, "running")):
        plain(tmp_path / name, curve(top), **config, state=state)
    said = contents(tmp_path)
    assert [row[1].strong for row in said.tables[0].rows] == [True, False, False]
    assert said.tables[1].rows[0][1].text == "not run to the end"


def table_one(folder: Path) -> Contents:
    for classes in ("1", "3"):
        plain(
            folder / classes,
            {"accuracy": [[0.80], [0.86], [0.90]], "discrepancy": [[0.5], [0.7], [0.9]]},
            "fedavg",
            choices={"dataset": "mnist", "model": "mclr"},
            overrides=[f"partition.classes_per_client={classes}"],
            partition={"classes_per_client": int(classes)},
            report={"published": "FlexCFL/Table I", "score": "max"},
        )
    return contents(folder)


def test_statistics_over_rounds_stand_beside_the_printed_ones(tmp_path: Path) -> None:
    table = found(table_one(tmp_path), "over_rounds")
    first, second = table.records
    assert (first["best published"], second["best published"]) == (87.9, 90.9)
    assert (first["median published"], second["median published"]) == (79.3, 87.0)
    assert (first["first ≥ 85 %"], first["first ≥ 85 % published"]) == (2, 39)
    assert (first["discrepancy"], first["discrepancy published"]) == (pytest.approx(0.7), 0.767)
    assert first["its variance"] == pytest.approx(np.var([0.5, 0.7, 0.9]))
    assert (first["its variance published"], second["its variance published"]) == (0.11, 0.073)
    assert {cell.good for row in table.rows for cell in row[-3:]} == {None}


def test_the_federation_table(tmp_path: Path) -> None:
    fed = build(Digits().load(), Rotated(num_clients=20, num_rotations=4), 0)
    choices = {"dataset": "mnist", "model": "mclr"}
    report = {"published": "FlexCFL/Table II"}
    job = plain(tmp_path / "a", curve(0.5), "fedavg", choices=choices, report=report)
    (job / "federation.json").write_text(
        json.dumps({"parameters": 7850, "seeds": {"0": summary(fed)}})
    )
    tables = {table.name: table for table in contents(tmp_path).tables}
    (row,) = tables["federation"].records
    assert (row["clients"], row["groups"], row["parameters"]) == (20, 4, 7850)
    assert row["train"] == int(fed.train.count.sum())
    assert row["train mean"] == pytest.approx(row["train"] / 20)
    assert row["examples"] == row["train"] + int(fed.test.count.sum())
    classes = torch.stack(
        [fed.pool.y[fed.train.of_client(i)].bincount(minlength=10) for i in range(20)]
    ).double()
    apart = classes / classes.sum(1, keepdim=True) - classes.sum(0) / classes.sum()
    assert row["label skew"] == pytest.approx(float(apart.abs().sum(1).mean()) / 2)
    assert row["train median"] == pytest.approx(np.quantile(fed.train.count, 0.5))
    assert row["test first quartile"] == pytest.approx(np.quantile(fed.test.count, 0.25))
    cells = dict(zip(tables["federation"].columns, tables["federation"].rows[0], strict=True))
    assert (cells["parameters"].detail, cells["parameters"].good) == ("paper 7,850", True)
    assert (cells["clients"].detail, cells["clients"].good) == ("paper 1,000", False)
    counts = np.array([[int(r[str(c)]) for c in range(10)] for r in tables["classes"].records])
    assert counts.shape == (4, 10)
    assert counts.sum() == row["train"]
    # every rotation holds the whole data set, each image once
    np.testing.assert_array_equal(counts, counts[:1].repeat(4, axis=0))


@pytest.mark.full
@pytest.mark.figures
def test_a_folder_of_several_experiments_gets_one_page(tmp_path: Path) -> None:
    for name in ("table3", "table4"):
        for algorithm in ("fedavg", "ifca"):
            config = {"name": f"flexcfl/{name}", "report": {"title": f"FlexCFL {name}"}}
            plain(tmp_path / name / algorithm, curve(0.5, 2), **config)
    said = all_contents(tmp_path)
    assert [one.folder for one in said] == [tmp_path / "table3", tmp_path / "table4"]
    text = make_report(tmp_path, said).read_text()
    for name in ("table3", "table4"):
        assert (tmp_path / name / "report" / "report.html").is_file()
        assert f'<a href="../{name}/report/report.html">FlexCFL {name}</a>' in text
    assert text.count("<figure") == 2
    assert "mixed" not in text


def test_mistakes_in_the_figure_node_are_named() -> None:
    for node, message in (
        ({"rows": ["acc"]}, "report.figure.rows=acc is not allowed"),
        (
            {"x": "time"},
            "report.figure.x=time is not allowed: round, models, bytes or simulated_seconds",
        ),
        ({"row": []}, "report.figure.row is not allowed"),
    ):
        with pytest.raises(ConfigError, match=message):
            spec_of({"report": {"figure": node}})
    assert spec_of({}).figure == FigureSpec(rows=(), x="round")


def test_a_purity_just_below_one_is_not_shown_as_one(tmp_path: Path) -> None:
    job = plain(
        tmp_path / "a",
        {"accuracy": [[0.5, 0.5]], "purity": [[0.9999, 1.0]], "num_clusters": [[2, 2]]},
    )
    rows = [
        {"seed": seed, "round": 0, "client": i, "group": i % 2, "label": i % 2}
        for seed in (0, 1)
        for i in range(6)
    ]
    pd.DataFrame(rows).to_parquet(job / "clients.parquet")
    (arm,) = contents(tmp_path).arms
    assert words(arm).endswith("(purity 0.999, 1.00)")

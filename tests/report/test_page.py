"""The page and the figures: what a browser and a printer need, checked without either."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from made_up import found, plain, texts

from fedclust.papers.reports import contents
from fedclust.report import figures, style
from fedclust.report.curves import draw
from fedclust.report.figures import Picture
from fedclust.report.heatmaps import classes
from fedclust.report.page import Page, render
from fedclust.report.panels import bars, heat, multiples
from fedclust.report.pivot import pivots
from fedclust.report.table import Cell, Table

CSS = files("fedclust.report").joinpath("page.css").read_text(encoding="utf-8")
SCRIPT = files("fedclust.report").joinpath("page.js").read_text(encoding="utf-8")
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (800).to_bytes(4, "big") * 2


def table(name: str, rows: int = 3, columns: int = 3, *, folded: bool = False) -> Table:
    return Table(
        name=name,
        title=f"Title of {name}",
        columns=tuple(f"column {i}" for i in range(columns)),
        rows=tuple(tuple(Cell(text=f"{r}.{c}") for c in range(columns)) for r in range(rows)),
        records=(),
        folded=folded,
    )


def page(*tables: Table) -> str:
    picture = Picture("curve", "What is drawn", PNG)
    both = [picture, Picture("other", "Another one", PNG)]
    return render(Page(title="T", subtitle="S", banners=[], tables=tables, pictures=both))


def test_figures_stand_before_long_tables() -> None:
    text = page(table("table"), table("claims", rows=99), table("settings", folded=True))
    order = ["<nav", "id=table", "<figure", "id=claims", "id=settings"]
    assert sorted(order, key=text.index) == order


def test_the_first_figure_stands_beside_the_first_table() -> None:
    text = page(table("table"), table("cost"))
    pair = text[text.index("<div class=pair>") : text.index("id=figures")]
    assert ["id=table" in pair, 'id="curve"' in pair, 'id="other"' in pair] == [True, True, False]
    noted = replace(table("table"), notes=("What it means.",)).html()
    assert noted.index("How to read this") < noted.index("What it means.")
    assert "<details" not in table("table").html()


def test_the_table_of_contents_links_every_section() -> None:
    text = page(table("table"), table("cost"), table("settings", folded=True))
    links = re.findall(r"<li><a href=#(\w+)>", text)
    assert links == ["table", "figures", "cost", "settings"]
    assert links == re.findall(r"<section(?: class=\w+)? id=(\w+)", text)


@pytest.mark.parametrize(("columns", "blocks"), [(4, 1), (17, 1), (27, 3), (64, 6)])
def test_every_column_is_on_the_page_in_blocks_that_fit(columns: int, blocks: int) -> None:
    text = table("table", columns=columns).html()
    parts = text.split("</table>")[:-1]
    assert len(parts) == blocks
    heads = [re.findall(r"<th scope=col>column (\d+)</th>", part) for part in parts]
    assert max(map(len, heads)) <= 17
    assert all(head[0] == "0" for head in heads)  # every block says which row is which
    assert [int(i) for head in heads for i in head[1:]] == list(range(1, columns))
    cells = [re.findall(r">1\.(\d+)<", part) for part in parts]
    assert cells == heads


def test_nothing_has_a_fixed_width_and_print_hides_nothing() -> None:
    wide = re.findall(r"(?<![-\w])(?:min-)?width: (\d+)px", CSS)
    assert wide == []
    printed = CSS[CSS.index("@media print") :]
    assert ".scroll { overflow: visible; }" in printed
    assert re.search(r"th, td[^{]*\{ white-space: normal;", printed)
    assert "details::details-content { content-visibility: visible" in printed
    hidden = [one.strip() for one in re.findall(r"([^{}]+)\{ display: none; \}", printed)]
    assert hidden == ["nav", "details.notes summary"]
    assert "overflow: hidden" not in CSS
    assert "@media (prefers-color-scheme: dark)" in CSS


def test_the_page_is_whole_without_its_script_and_asks_no_network() -> None:
    text = page(table("table"), table("settings", folded=True))
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert script.strip() == SCRIPT.strip()
    assert not re.search(r"fetch|import|XMLHttp|https?:|\.src|innerHTML|eval", script)
    bare = text.replace(script, "")
    for i in range(3):
        assert bare.count(f">{i}.2<") == 2
    assert "http" not in bare
    assert "url(" not in CSS


def test_a_method_has_its_colour_in_every_report(tmp_path: Path) -> None:
    groups = (("lcfl", "ifca", "fedavg", "mine"), ("fedavg", "mine"), ("ifca", "fedprox", "lcfl"))
    colours: dict[str, set[str]] = {}
    for place, names in enumerate(groups):
        for name in names:
            folder = tmp_path / str(place) / name
            plain(folder, [[0.5], [0.6]], name)
        looks = style.looks(contents(tmp_path / str(place)).arms)
        assert len({(str(v["color"]), str(v["linestyle"])) for v in looks.values()}) == len(names)
        for name, look in looks.items():
            colours.setdefault(name, set()).add(look["color"])
    assert {len(seen) for seen in colours.values()} == {1}
    assert len({next(iter(colours[name])) for name in ("lcfl", "ifca", "fedavg")}) == 3


def test_no_two_looks_are_alike() -> None:
    looks = [style.line(i) for i in range(48)]
    assert len({(k["color"], str(k["linestyle"]), k["marker"]) for k in looks}) == 48


@pytest.mark.full
def test_many_arms_have_a_panel_each(tmp_path: Path) -> None:
    for i in range(9):
        plain(tmp_path / str(i), [[0.1 * i], [0.1 * i + 0.05]], f"m{i}")
    report = contents(tmp_path)
    lines = {name: figure for name, _, figure in figures._lines(report.spec, report.arms)}
    figure = lines["accuracy"]
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in panels] == [f"m{i}" for i in range(9)]
    for i, axes in enumerate(panels):
        behind, shown = axes.lines  # nine faint curves are one line with gaps
        assert np.isnan(np.asarray(behind.get_ydata(), dtype=float)).sum() == 9
        np.testing.assert_allclose(shown.get_ydata(), [10 * i, 10 * i + 5])
    assert multiples(report.arms, "purity", "round") is None


def test_two_rounds_have_two_ticks(tmp_path: Path) -> None:
    plain(tmp_path / "a", [[0.5], [0.6]])
    figure = draw(contents(tmp_path).arms, ["accuracy"], "round")
    assert figure.axes[0].get_xticks().tolist() == [1, 2]


def test_bands_stay_within_what_the_metric_can_be(tmp_path: Path) -> None:
    curves = {
        "accuracy": [[1.0, 0.5], [1.0, 0.9]],
        "purity": [[0.0, 0.9]] * 2,
        "ari": [[-1, 1]] * 2,
    }
    plain(tmp_path / "a", curves)
    for metric, low, high in (("accuracy", 50, 100), ("purity", 0, 0.9), ("ari", -1, 1)):
        figure = draw(contents(tmp_path).arms, [metric], "round")
        heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
        assert heights.min() == pytest.approx(low)
        assert heights.max() == pytest.approx(high)


def test_a_single_round_is_drawn_as_bars(tmp_path: Path) -> None:
    for name, values in (("a", [0.5, 0.7]), ("b", [0.9, 0.9])):
        plain(tmp_path / name, [values])
    report = contents(tmp_path)
    figure = bars(report.arms, "accuracy")
    assert [round(bar.get_width(), 6) for bar in figure.axes[0].patches] == [60, 90]
    assert [round(text.get_position()[0]) for text in figure.axes[0].texts] == [70, 90]
    made = [(name, caption) for name, caption, f in figures._lines(report.spec, report.arms) if f]
    assert [name for name, _ in made] == ["accuracy"]
    assert "Bars: mean over seeds" in made[0][1]


def test_a_grid_over_two_options_is_a_pivot_and_a_heat_map(tmp_path: Path) -> None:
    for k in (2, 10, 4):
        for rate in ("0.1", "0.01"):
            given = [f"num_clusters={k}", f"solver.lr={rate}"]
            curve = [[0.1], [k / 20 + float(rate)]]
            plain(tmp_path / f"{k}-{rate}", curve, "ifca", overrides=given)
    report = contents(tmp_path)
    (pivot,) = pivots(report.arms)
    assert (pivot.down, pivot.across) == ("num_clusters", "lr")
    assert (pivot.rows, pivot.columns) == (("2", "4", "10"), ("0.01", "0.1"))
    np.testing.assert_allclose(pivot.means("accuracy"), [[11, 20], [21, 30], [51, 60]])
    made = found(report, "grid")
    assert made.columns == ("", "lr=0.01", "lr=0.1")
    assert [cell.text for cell in made.rows[2]] == ["num_clusters=10", "51.00", "60.00"]
    assert [[cell.strong for cell in row] for row in made.rows][2] == [False, False, True]
    figure = heat([pivot], "accuracy")
    assert [text.get_text() for text in figure.axes[0].texts] == [
        "11",
        "20",
        "21",
        "30",
        "51",
        "60",
    ]


def test_a_grid_names_default_and_tuned(tmp_path: Path) -> None:
    for k in (2, 4):
        for values in ("null", "searched"):
            given = [f"num_clusters={k}", f"tuned={values}"]
            plain(tmp_path / f"{k}-{values}", [[0.1], [0.5]], "ifca", overrides=given)
    report = contents(tmp_path)
    (pivot,) = pivots(report.arms)
    assert (pivot.columns, pivot.across) == (("default", "tuned"), "tuned")
    made = found(report, "grid")
    assert made.columns == ("", "default", "tuned")


def test_without_true_groups_clusters_are_described(tmp_path: Path) -> None:
    curves = {
        "accuracy": [[0.5], [0.6]],
        "num_clusters": [[3], [2]],
        "largest_cluster": [[2], [3]],
        "smallest_cluster": [[1], [1]],
        "empty": [[0], [1]],
        "churn": [[np.nan], [0.25]],
    }
    plain(tmp_path / "a", curves, "ifca")
    report = contents(tmp_path)
    made = found(report, "clusters")
    assert [cell.text for cell in made.rows[0]] == ["ifca", "2.0", "3.0", "1.0", "1.0", "0.250"]
    assert "Churn: clients that changed their cluster" in made.notes[0]
    assert "recovery" not in {t.name for t in report.tables}
    drawn = [name for name, _, f in figures._lines(report.spec, report.arms) if f]
    assert drawn == ["accuracy", "num_clusters", "churn"]


def test_the_classes_of_every_cluster_are_shares(tmp_path: Path) -> None:
    folder = plain(tmp_path / "a", {"accuracy": [[0.5]], "num_clusters": [[2]]}, "ifca")
    numbers = {"total": 8, "mean": 2.0, "std": 0.0, "min": 2, "max": 2}
    seed = {
        "clients": 4,
        "groups": 0,
        "train": numbers,
        "test": numbers,
        "classes": numbers,
        "examples": {"-1": [4, 4]},
        "client_examples": [[2, 0], [2, 2], [0, 1], [0, 1]],
    }
    (folder / "federation.json").write_text(json.dumps({"parameters": 1, "seeds": {"0": seed}}))
    pd.DataFrame(
        {"seed": 0, "round": 0, "client": range(4), "group": -1, "label": [0, 0, 3, 3]}
    ).to_parquet(folder / "clients.parquet")
    figure = classes(contents(tmp_path).arms)
    (image,) = figure.axes[0].images
    np.testing.assert_allclose(image.get_array(), [[4 / 6, 2 / 6], [0, 1]])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["0", "3"]


def test_terms_are_explained_where_they_are_used(tmp_path: Path) -> None:
    curves = {name: [[0.5], [0.6]] for name in ("accuracy", "purity", "ari", "nmi")}
    plain(tmp_path / "a", curves)
    tables = {t.name: " ".join(t.notes) for t in contents(tmp_path).tables}
    assert "Test accuracy: correct test examples of all clients" in tables["table"]
    for words in ("Purity: clients in", "ARI: adjusted Rand", "NMI: mutual information"):
        assert words in tables["recovery"]


def test_versions_that_are_no_mapping_are_not_known(tmp_path: Path) -> None:
    plain(tmp_path / "a", [[0.5]])
    (tmp_path / "a" / "versions.json").write_text(json.dumps({"packages": [1]}))
    values = dict(texts(found(contents(tmp_path), "made")))
    assert values["fedclust"] == values["commit"] == "not known"


@pytest.mark.full
def test_titles_of_experiments_say_nothing_that_a_command_can_change(root: Path) -> None:
    """How many rounds, seeds, clients or federations a report shows follows from its jobs."""
    counts = re.compile(
        r"\b(\d+|two|three|four|five|eight|ten|every|all)\b[^,:]*\b"
        r"(rounds?|seeds?|clients|kinds|angles|federations|method)\b|\bm = "
    )
    for file in sorted((root / "conf" / "experiment").rglob("*.yaml")):
        title = str(yaml.safe_load(file.read_text(encoding="utf-8"))["report"]["title"])
        assert not counts.search(title), f"{file.stem}: {title}"

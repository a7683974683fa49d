"""Shares of what knowing the groups gives, on made-up runs; the figure that shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from made_up import found, plain, scored, texts
from matplotlib.figure import Figure

from fedclust.papers.reports import contents
from fedclust.report import diagrams
from fedclust.report.comparison import overall
from fedclust.report.relative import Relative, explained, relative, relative_table
from fedclust.report.write import Contents


def swept(folder: Path, cases: Mapping[str, Mapping[str, Sequence[float]]]) -> Contents:
    """The report on a job per case and method with these scores of the seeds."""
    return [scored(folder, methods, case) for case, methods in cases.items()][-1]


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


TWO = {
    "one": {
        "oracle": [0.8, 0.8],
        "fedavg": [0.4, 0.4],
        "a": [0.6, 0.84],
        "b": [0.2, 0.4],
    },
    "two": {"fedavg": [0.5, 0.5], "a": [0.6, 0.6], "b": [0.5, 0.5], "late": [0.5, 0.5]},
}


def test_scores_are_divided_by_the_oracles_or_fedavgs(tmp_path: Path) -> None:
    report = swept(tmp_path, TWO)
    shown = relative(report.spec, report.arms)
    assert shown.settings == ("one", "two")
    assert shown.knowing == ("oracle", "fedavg")
    assert shown.names == ("a", "fedavg", "b", "late")  # late did not run everywhere
    assert shown.base.tolist() == pytest.approx([80, 50])
    shares = np.array([[0.9, 1.2], [0.5, 1.0], [0.375, 1.0], [np.nan, 1.0]])
    assert shown.shares == pytest.approx(shares, nan_ok=True)
    assert shown.means == pytest.approx(np.array([1.05, 0.75, 0.6875, np.nan]), nan_ok=True)
    assert shown.common.tolist() == pytest.approx([0.5, 1.0])


def test_the_table_marks_what_is_below_one_model_for_all(tmp_path: Path) -> None:
    report = swept(tmp_path, TWO)
    table = found(report, "relative")
    assert texts(table) == [
        ["a", "105", "90", "120"],
        ["fedavg", "75", "50", "100"],
        ["b", "69", "38 ▾", "100"],
        ["late", "–", "–", "100"],
    ]
    assert "two has no oracle" in table.notes[0]
    assert table.records[0]["one"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    "cases",
    [
        {"one": {"fedavg": [0.4], "a": [0.6]}, "two": {"fedavg": [0.4], "a": [0.6]}},
        {"one": {"oracle": [0.4], "a": [0.6]}},
    ],
    ids=["without an oracle", "of one federation"],
)
def test_there_is_nothing_to_show(
    tmp_path: Path, cases: dict[str, dict[str, Sequence[float]]]
) -> None:
    report = swept(tmp_path, cases)
    assert relative(report.spec, report.arms) is None
    assert relative_table(report.spec, report.arms) is None


def test_tuned_beside_default_is_held_against_the_oracle_with_defaults(tmp_path: Path) -> None:
    for case in ("f0", "f1"):
        for name, kind, score in (
            ("oracle", "null", 0.8),
            ("oracle", "best", 0.9),
            ("fedavg", "null", 0.4),
            ("fedavg", "best", 0.6),
        ):
            plain(
                tmp_path / f"{case}{name}{kind}",
                [[0.1, 0.1], [score, score]],
                name,
                case=case,
                overrides=[f"tuned={kind}"],
                tuned=None if kind == "null" else kind,
            )
    report = contents(tmp_path)
    shown = relative(report.spec, report.arms)
    assert shown.names == ("oracle tuned", "fedavg tuned", "fedavg default")
    np.testing.assert_allclose(shown.shares[:, 0], [1.125, 0.75, 0.5])
    np.testing.assert_allclose(shown.common, 0.5)
    assert "the oracle's, with default settings, in the same" in explained(shown)
    over = overall(report.spec, report.arms)
    assert over.reference == "fedavg default"


def test_the_oracle_alone_is_divided_by_nothing(tmp_path: Path) -> None:
    for case in ("f0", "f1"):
        for name, state in (("oracle", "done"), ("mine", "failed")):
            plain(tmp_path / f"{case}{name}", [[0.5, 0.6]], name, case=case, state=state)
    report = contents(tmp_path)
    assert relative(report.spec, report.arms) is None


def test_the_figure_prints_every_share_and_is_white_at_the_oracles(tmp_path: Path) -> None:
    report = swept(tmp_path, TWO)
    shown = relative(report.spec, report.arms)
    figure = diagrams.at_a_glance(shown)
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(shown.names)
    assert {"one", "two", "90", "120", "38▾", "105", "mean"} <= set(labels(figure))
    image = axes.images[0]
    colours = image.cmap(image.norm(np.array([0.5, 1.0, 1.5])))[:, :3]
    assert min(colours[1]) > 0.95
    assert colours[0][0] > colours[0][2] + 0.4  # orange
    assert colours[2][2] > colours[2][0] + 0.1  # purple


@pytest.mark.full
def test_forty_methods_stay_legible() -> None:
    names = tuple(f"method_{i}" for i in range(41))
    shares = np.linspace(1.1, 0.4, 410).reshape(41, 10)
    shown = Relative(
        names=names,
        settings=tuple(f"shift {i}" for i in range(10)),
        knowing=("oracle",) * 10,
        base=np.full(10, 90.0),
        shares=shares,
        lacks=np.zeros(shares.shape, dtype=bool),
        common=np.full(10, 0.5),
    )
    figure = diagrams.at_a_glance(shown)
    figure.canvas.draw()
    boxes = [t.get_window_extent() for t in figure.axes[0].get_yticklabels()]
    assert all(a.y0 >= b.y1 for a, b in pairwise(boxes))  # none overlaps
    assert all(box.x0 >= 0 for box in boxes)
    assert len(labels(figure)) == 410 + 41 + 10 + 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("best", "marked"), [(0.9, ["50 %", "100 %"]), (1.2, ["50 %", "100 %", "140 %"])]
)
def test_the_bar_has_no_colours_that_no_cell_has(
    best: float, marked: list[str], tmp_path: Path
) -> None:
    # shares of 0.5 and less: the colours reach from 0.5 to 1.5
    low = {"oracle": [0.8], "fedavg": [0.32], "b": [0.32], "a": [0.8 * best]}
    report = swept(tmp_path, {"one": low, "two": low | {"a": [0.8 * (2 * best - 1)]}})
    shown = relative(report.spec, report.arms)
    bar = diagrams.at_a_glance(shown).axes[1]
    assert [label.get_text() for label in bar.get_yticklabels()] == marked
    low_end, high_end = bar.get_ylim()
    assert low_end == pytest.approx(0.5)
    assert high_end == pytest.approx(max(1.05, 2 * best - 1))


def test_a_method_that_lost_seeds_is_marked_at_a_glance(tmp_path: Path) -> None:
    lost = {**TWO, "one": {**TWO["one"], "a": [0.6]}}
    report = swept(tmp_path, lost)
    table = found(report, "relative")
    cells = {row[0]: row[1:] for row in texts(table)}
    assert cells["a"] == ["97 †", "75 †", "120"]
    assert cells["b"] == ["69", "38 ▾", "100"]
    assert "†: some seeds that others have are missing." in table.notes[0]
    shown = relative(report.spec, report.arms)
    assert {"97 †", "75†"} <= set(labels(diagrams.at_a_glance(shown)))


def test_the_rule_says_that_an_arm_without_all_seeds_is_not_the_best(tmp_path: Path) -> None:
    report = swept(tmp_path, {"one": {"a": [0.9], "b": [0.5, 0.6]}, "two": {"a": [0.5, 0.5]}})
    note = found(report, "table").notes[-1]
    assert "Bold: the best mean of those that have all seeds." in note

"""The comparison of a report on made-up runs: what is bold, what is said, what is kept silent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import found, plain, printed, scored, texts
from refusals import refused

from fedclust.helpers.errors import ConfigError
from fedclust.papers.reports import contents, spec_of
from fedclust.report import diagrams, figures
from fedclust.report.against_best import Standing, rule, silence, standings
from fedclust.report.arms import settings_of
from fedclust.report.comparison import _small, overall
from fedclust.report.headline import score_column, standing
from fedclust.report.statistics.paired import paired
from fedclust.report.unserved import leaving_out
from fedclust.report.write import Contents

TEN = range(10)


def names(report: Contents) -> set[str]:
    return {table.name for table in report.tables}


@pytest.mark.parametrize("cases", [("",), ("one", "two")])
def test_a_metric_without_a_better_direction_ranks_nobody(
    tmp_path: Path, cases: Sequence[str]
) -> None:
    for name, norm in (("a", 1.0), ("b", 2.0)):
        curves = {"mean_update_norm": [[norm] * 10]}
        report = {"metric": "mean_update_norm"}
        for case in cases:
            plain(tmp_path / f"{name}{case}", curves, name, case=case, report=report)
    report = contents(tmp_path)
    assert not {"comparison", "overall"} & names(report)
    table = found(report, "table")
    assert not any(cell.strong for row in table.rows for cell in row)
    assert not any("best" in note for note in table.notes)
    assert overall(report.spec, report.arms) is None


def test_what_is_not_significantly_below_the_best_is_bold_with_it(tmp_path: Path) -> None:
    best = [0.90 + 0.001 * s for s in TEN]
    level = [v + (0.02 if s % 2 else -0.03) for s, v in enumerate(best)]  # now ahead, now behind
    below = [v - 0.02 for v in best]  # behind in every seed
    close = [v - 0.004 for v in best]  # behind in every seed, by less than half a point
    report = scored(tmp_path, {"best": best, "level": level, "below": below, "close": close})
    table = found(report, "table")
    bold = {row[0].text: row[1].strong for row in table.rows}
    assert bold == {"best": True, "level": True, "below": False, "close": True}
    assert "Bold: the best mean, and all that are less than 0.5 points" in table.notes[-1]
    rows = {row[0]: row[1:] for row in texts(found(report, "comparison"))}
    assert rows["best"] == ["best", "–", "–", "–", "the best mean"]
    assert rows["below"][::2] == ["−2.00", "10", "below the best"]
    # 2 / 1024 is the smallest of three p values, twice: times 3
    assert rows["below"][3] == rows["close"][3] == "0.006"
    assert rows["level"][4] == rows["close"][4] == "no difference shown"
    assert "**90.45 ± 0.29**" in table.markdown()
    assert r"\textbf{90.05 $\pm$ 0.29}" in table.latex()
    spread = 100 * np.std(level)
    assert f"<strong>{100 * np.mean(level):.2f} ± {spread:.2f}</strong>" in table.html()
    shown = printed(tmp_path, force_terminal=True, color_system="standard")
    assert "\x1b[1m90.45 ± 0.29\x1b[0m" in shown
    assert "\x1b[1m88.45" not in shown
    assert "Bold: the best mean, and all" in shown
    rows = printed(tmp_path, width=200).splitlines()
    marked = {row.split()[0] for row in rows if "±" in row and "* " in row}
    assert marked == {"best", "level", "close"}
    assert any(row.startswith("*: the best mean, and all") for row in rows)


def test_a_p_value_is_never_shown_as_a_smaller_one() -> None:
    shown = {0.0625: "0.063", 0.125: "0.125", 0.0501: "0.051", 0.05: "0.050", 1.0: "1.000"}
    assert {p: _small(p) for p in shown} == shown
    assert _small(3 * 0.1) == "0.300"  # 0.30000000000000004
    four = Standing("untold", 1, against=paired(np.arange(4.0)))
    assert "smallest p value that 4 seeds can give is 0.125, and" in silence([four])


def test_five_seeds_say_that_they_are_too_few(tmp_path: Path) -> None:
    report = scored(tmp_path, {"a": [0.9] * 5, "b": [0.5] * 5})
    assert [row[1].strong for row in found(report, "table").rows] == [True, False]
    said = (
        "Whether the other is worse cannot be told: the smallest p value that 5 seeds can give is "
        "0.0625, and significance in one comparison takes 6 seeds."
    )
    assert found(report, "table").notes[-1] == f"Bold: the best mean. {said}"
    table = found(report, "comparison")
    assert table.columns == ("arm", "difference", "95 % interval", "common seeds")
    assert texts(table)[1] == ["b", "−40.00", "−40.00 to −40.00", "5"]
    assert said in table.notes
    assert "p" not in {key for record in table.records for key in record}
    assert not any("federations" in note for note in table.notes)  # of what one lacks


def test_arms_without_common_seeds_are_not_compared(tmp_path: Path) -> None:
    plain(tmp_path / "a", [[0.9, np.nan]])
    plain(tmp_path / "b", [[np.nan, 0.5]])
    report = contents(tmp_path)
    assert "comparison" not in names(report)
    assert found(report, "table").notes[-1].endswith("they share no seed with it.")
    plain(tmp_path / "alone" / "c", [[0.9, 0.8]])
    assert "comparison" not in names(contents(tmp_path / "alone"))


def test_one_missing_seed_is_left_out_of_its_pair_alone() -> None:
    scores = {"a": dict.fromkeys(TEN, 0.9), "b": dict.fromkeys(TEN, 0.8), "c": {0: 0.1, 11: 0.2}}
    one = standings(scores, "accuracy")
    assert (one["b"].verdict, one["c"].verdict) == ("below", "untold")
    assert (one["b"].against.n, one["c"].against.n) == (10, 1)
    assert one["c"].against.mean == pytest.approx(-80)
    assert "smallest p value that 1 seed can give is 1," in rule(list(one.values()), "accuracy")[0]


def test_an_arm_that_lost_seeds_is_never_the_best() -> None:
    scores = {"a": dict.fromkeys(range(3), 0.99), "b": dict.fromkeys(TEN, 0.9)}
    scores |= {"c": dict.fromkeys(TEN, 0.8)}
    one = standings(scores, "accuracy")
    assert [one[k].verdict for k in "abc"] == ["untold", "best", "below"]
    most = {"a": dict.fromkeys(TEN, 0.99), "b": dict.fromkeys((*TEN, 99), 0.9)}
    one = standings(most, "accuracy")
    assert [one[k].verdict for k in "ab"] == ["untold", "best"]
    assert rule(list(one.values()), "accuracy")[0].endswith("cannot be told from it.")


def test_equal_means_are_bold_together_and_a_lower_loss_is_better() -> None:
    losses = {"a": {0: 1.0, 1: 3.0}, "b": {0: 3.0, 1: 1.0}, "c": {0: 9.0, 1: float("inf")}}
    one = standings(losses, "test_loss")
    assert [one[k].verdict for k in "abc"] == ["best", "best", "untold"]
    assert (one["c"].against.n, one["c"].against.mean) == (1, 8.0)
    assert standings({"a": {0: 1.0}, "b": {}}, "accuracy") == {}


def federations(tmp_path: Path, number: int, seeds: int) -> Contents:
    shift = {"a": 0.05, "b": 0.03, "fedavg": 0.0, "c": -0.02}
    for f in range(number):
        seeds_of = {
            name: [0.5 + 0.1 * f + gain + 0.001 * s for s in range(seeds)]
            for name, gain in shift.items()
        }
        report = scored(tmp_path, seeds_of, f"f{f}")
    return report


@pytest.mark.full
def test_over_six_federations_ranks_are_joined_by_bars(tmp_path: Path) -> None:
    report = federations(tmp_path, 6, 3)
    table = found(report, "overall")
    assert [row[:2] for row in texts(table)] == [
        ["a", "1.00"],
        ["b", "2.00"],
        ["c", "4.00"],
        ["fedavg", "3.00"],
    ]
    # CD = 2.569 √(4 · 5 / 36) = 1.915
    assert [row[1].strong for row in table.rows] == [True, True, False, False]
    assert "differ significantly where they are 1.91 or more apart" in table.notes[0]
    assert texts(table)[0][2:] == ["+5.00", "+5.00 to +5.00", "100 %"]
    assert texts(table)[3][2:] == ["+0.00", "–", "–"]
    one = overall(report.spec, report.arms)
    assert one is not None
    drawn = {name: figure for name, _, figure in figures._comparisons(report.spec, report.arms)}
    figure = drawn["critical_difference"]
    said = [text.get_text().strip() for text in figure.axes[0].texts]
    assert "a  1.00" in said
    assert "4.00  c" in said
    assert "critical difference 1.91" in said
    thick = [line for line in figure.axes[0].lines if line.get_linewidth() == 3]
    assert [line.get_xdata()[0] < 1.01 + i for i, line in enumerate(thick)] == [True] * 3
    profiles = drawn["profiles"]
    lines = {line.get_label(): line for line in profiles.axes[0].lines}
    x, y = lines["b"].get_xdata(), lines["b"].get_ydata()
    assert set(y[x < 2.9]) == {100}
    assert set(y[x > 3.1]) == {0}


def test_two_federations_have_ranks_and_say_what_is_missing(tmp_path: Path) -> None:
    report = federations(tmp_path, 2, 2)
    table = found(report, "overall")
    assert "95 % interval" not in table.columns
    assert "needs at least 3 federations; there are 2." in table.notes[0]
    assert not any(cell.strong for row in table.rows for cell in row)
    one = overall(report.spec, report.arms)
    assert one is not None
    assert diagrams.critical_difference(one) is None
    rows = {row[0]: row[1:] for row in texts(found(report, "comparison"))}
    assert rows["f0"] == ["best", "−2.00", "−7.00", "−5.00"]


def test_a_method_that_is_missing_in_one_federation_is_named(tmp_path: Path) -> None:
    scored(tmp_path, {"a": [0.5], "b": [0.6], "d": [0.7]}, "f0")
    report = scored(tmp_path, {"a": [0.5], "b": [0.6]}, "f1")
    table = found(report, "overall")
    assert texts(table) == [["a", "2.00", "50.00"], ["b", "1.00", "60.00"]]
    assert table.columns[2] == "IQM of test accuracy (%)"
    left_out = "Not run in every federation, in all of its seeds and for all clients that others "
    assert table.notes[-1] == f"{left_out}serve, and left out: d."


def test_a_federation_that_ran_for_other_rounds_is_not_another_one(tmp_path: Path) -> None:
    def add(case: str, rounds: int, every: int) -> None:
        for name, score in (("fedavg", 0.5), ("ifca", 0.6)):
            curve = [[0.1] * 2] * (rounds - 1) + [[score + 0.01 * rounds] * 2]
            typed = [f"rounds={rounds}", f"eval_every={every}"]
            folder = tmp_path / f"{name}{case}{rounds}{every}"
            more = {"rounds": rounds, "eval_every": every}
            plain(folder, curve, name, case=case, overrides=typed, **more)

    for rounds, every in ((2, 1), (4, 1), (4, 2)):
        add("f0", rounds, every)
    report = contents(tmp_path)
    assert len(settings_of(report.arms)) == 3
    assert overall(report.spec, report.arms) is None
    assert "overall" not in names(report)
    add("f1", 4, 1)
    report = contents(tmp_path)
    one = overall(report.spec, report.arms)
    assert one is not None
    assert (len(one.settings), len(one.again)) == (2, 2)
    assert one.means[0].tolist() == pytest.approx([54, 64])  # the longest of the first federation
    assert any(one.again[0] in note for note in found(report, "overall").notes)
    # one method that ran for longer takes the place of no comparison
    typed = ["rounds=6", "eval_every=1"]
    curve = [[0.1] * 2] * 5 + [[0.9] * 2]
    plain(tmp_path / "more", curve, "fedavg", case="f0", overrides=typed, rounds=6, eval_every=1)
    report = contents(tmp_path)
    one = overall(report.spec, report.arms)
    assert one is not None
    assert (len(one.settings), len(one.again)) == (2, 3)


def test_a_column_of_seeds_that_ended_apart_names_no_round(tmp_path: Path) -> None:
    nan = float("nan")
    plain(tmp_path / "a", [[0.5, 0.5], [0.6, nan]])
    report = contents(tmp_path)
    assert score_column(report.spec, report.arms).title == "last"
    plain(tmp_path / "more" / "b", [[0.5, 0.5], [0.6, 0.6]])
    report = contents(tmp_path / "more")
    assert score_column(report.spec, report.arms).title == "last (round 2)"


def serving(folder: Path, name: str, score: float, served: float, case: str = "") -> None:
    """Nine seeds of one method, which serves a part of the clients at the end."""
    curves = {
        "accuracy": [[0.5] * 9, [score + 0.001 * seed for seed in range(9)]],
        "served": [[1.0] * 9, [*[1.0] * 8, served]],
    }
    plain(folder / f"{name}{case}", curves, name, case=case)


def test_an_arm_that_leaves_clients_out_is_not_compared(tmp_path: Path) -> None:
    for name, score, served in (("fedavg", 0.6, 1.0), ("ifca", 0.7, 1.0), ("skip", 0.9, 0.5)):
        serving(tmp_path, name, score, served)
    report = contents(tmp_path)
    rows = {row[0]: row for row in texts(found(report, "comparison"))}
    assert rows["ifca"][1] == "best"
    assert rows["fedavg"][-1] == "below the best"
    assert rows["skip"][1:] == ["–", "–", "–", "–", "serves fewer clients"]
    strong = [row[0].text for row in found(report, "table").rows if row[1].strong]
    assert strong == ["ifca"]
    line = (
        "skip gives some clients no model (label −1) that other arms serve, and is tested on 50 %"
    )
    assert [one for one in report.banners if one.startswith(line)]
    told = " ".join(printed(tmp_path).split())
    assert "1 arm serves fewer clients than others, and is not compared." in told
    assert line in told


def test_arms_that_serve_the_same_clients_are_compared(tmp_path: Path) -> None:
    for name, score in (("fedavg", 0.6), ("ifca", 0.7)):
        serving(tmp_path, name, score, 0.5)
    report = contents(tmp_path)
    assert {row[-1] for row in texts(found(report, "comparison"))} == {
        "the best mean",
        "below the best",
    }
    assert not [one for one in report.banners if "no model" in one]


def test_an_arm_that_ended_before_clients_arrived_leaves_nobody_out(tmp_path: Path) -> None:
    plain(tmp_path / "long", {"accuracy": [[0.5]] * 3, "served": [[0.5], [0.5], [1.0]]}, rounds=3)
    plain(tmp_path / "short", {"accuracy": [[0.5]] * 2, "served": [[0.5], [0.5]]}, rounds=2)
    plain(tmp_path / "skip", {"accuracy": [[0.5]] * 3, "served": [[0.4]] * 3}, rounds=3)
    report = contents(tmp_path)
    assert leaving_out(report.arms) == {"skip": 0.4}


def test_a_method_that_leaves_clients_out_has_no_rank(tmp_path: Path) -> None:
    for case in ("f0", "f1"):
        for name, score in (("fedavg", 0.6), ("ifca", 0.7), ("skip", 0.9)):
            serving(tmp_path, name, score, 0.5 if (name, case) == ("skip", "f1") else 1.0, case)
    report = contents(tmp_path)
    one = overall(report.spec, report.arms)
    assert one is not None
    assert (set(one.names), one.left_out) == ({"fedavg", "ifca"}, ("skip",))


def test_a_method_that_lost_a_seed_has_no_rank(tmp_path: Path) -> None:
    for f in (0, 1):
        for name in ("fedavg", "a", "lost"):
            score, seeds = (0.9, {"0": "bad", "1": "ok"}) if name == "lost" else (0.6, {})
            job = tmp_path / f"{f}{name}"
            plain(job, [[0.5, score]], name, case=f"f{f}", status={"seeds": seeds})
    report = contents(tmp_path)
    one = overall(report.spec, report.arms)
    assert (sorted(one.names), one.left_out) == (["a", "fedavg"], ("lost",))


def test_an_unfinished_run_is_not_compared(tmp_path: Path) -> None:
    for name, state in (("a", "done"), ("b", "done"), ("c", "running")):
        plain(tmp_path / name, [[0.5, 0.5]], state=state)
    report = contents(tmp_path)
    column = score_column(report.spec, report.arms)
    assert set(standing(report.arms, column, "accuracy")) == {"a", "b"}


def clients(folder: Path, correct: Sequence[int], seed: int = 0) -> None:
    pd.DataFrame(
        {
            "seed": seed,
            "round": 1,
            "client": range(len(correct)),
            "group": [i % 2 for i in range(len(correct))],
            "label": 0,
            "test_count": 50,
            "correct": list(correct),
        }
    ).to_parquet(folder / "clients.parquet")


def test_fairness_is_of_single_clients(tmp_path: Path) -> None:
    curves = {"accuracy": [[0.5], [0.6]], "num_clusters": [[1], [1]]}
    for name, correct in (("fedavg", [10, 40] * 5), ("local", [25] * 10)):
        clients(plain(tmp_path / name, curves), correct)
    table = found(contents(tmp_path), "fairness")
    assert table.columns == (
        "arm",
        "std over clients (points)",
        "worst tenth (%)",
        "worst group (%)",
        "hurt against local (%)",
    )
    assert texts(table) == [
        ["fedavg", "30.00", "20.00", "20.00", "50.00"],
        ["local", "0.00", "50.00", "50.00", "–"],
    ]
    assert "Hurt: percentage of clients that are more than 2 points below" in table.notes[0]
    assert len(table.notes) == 1


def test_hurt_is_against_training_alone_with_the_same_kind_of_settings(tmp_path: Path) -> None:
    curves = {"accuracy": [[0.5], [0.6]], "num_clusters": [[1], [1]]}
    for name, kind, correct in (
        ("fedavg", "null", [35] * 10),
        ("fedavg", "best", [35] * 10),
        ("local", "null", [25] * 10),
        ("local", "best", [45] * 10),
    ):
        folder = tmp_path / f"{name}{kind}"
        tuned = None if kind == "null" else kind
        plain(folder, curves, name, overrides=[f"tuned={kind}"], tuned=tuned)
        clients(folder, correct)
    table = {row[0]: row for row in texts(found(contents(tmp_path), "fairness"))}
    assert table["fedavg default"][-1] == "0.00"
    assert table["fedavg tuned"][-1] == "100.00"


def test_hurt_is_against_training_alone_with_the_same_local_work(tmp_path: Path) -> None:
    curves = {"accuracy": [[0.5], [0.6]], "num_clusters": [[1], [1]]}
    for name, lr in (("fedavg", 0.1), ("fedavg", 0.03), ("local", 0.1)):
        folder, solver = tmp_path / f"{name}{lr}", {"lr": lr}
        typed = [f"solver.lr={lr}"] if lr == 0.03 else []
        plain(folder, curves, name, overrides=typed, solver=solver)
        clients(folder, [25] * 10 if name == "local" else [20] * 10)
    table = {row[0]: row for row in texts(found(contents(tmp_path), "fairness"))}
    assert table["fedavg lr=0.1"][-1] == "100.00"
    assert table["fedavg lr=0.03"][-1] == "–"


def test_without_rows_of_clients_there_is_no_fairness(tmp_path: Path) -> None:
    assert "fairness" not in names(scored(tmp_path, {"a": [0.5], "b": [0.6]}))


def test_rounds_bytes_and_steps_to_a_target(tmp_path: Path) -> None:
    fast = [[0.1, 0.1], [0.8, 0.1], [0.8, 0.8], [0.8, 0.8], [0.8, 0.8], [0.8, 0.8]]
    slow = [[0.5, 0.5]] * 6
    for name, curve in (("fast", fast), ("slow", slow)):
        spent = {"bytes": [[1000, 1000]] * 6, "gradient_steps": [[10, 10]] * 6}
        plain(tmp_path / name, {"accuracy": curve, **spent}, report={"target": {"value": 0.75}})
    table = found(contents(tmp_path), "target")
    # means of three from round 3 on: seed 0 0.57 0.8 0.8 0.8, seed 1 0.33 0.57 0.8 0.8
    assert texts(table) == [
        ["fast", "75.00 %", "2 of 2", "4.5", "4.5 kB", "45"],
        ["slow", "75.00 %", "0 of 2", "> 6", "> 6 kB", "> 60"],
    ]
    assert table.records[0]["rounds"] == 4.5
    assert table.records[1]["rounds"] == ""


def test_a_seed_that_failed_does_not_reach_the_target(tmp_path: Path) -> None:
    seeds = {"0": "ok", "1": "ok", "2": "diverged"}
    report = {"target": {"value": 0.75}}
    plain(tmp_path / "a", [[0.8, 0.8, np.nan]] * 4, report=report, status={"seeds": seeds})
    table = found(contents(tmp_path), "target")
    assert [texts(table)[0][2], texts(table)[0][3]] == ["2 of 3", "3"]


def test_a_target_can_be_what_an_arm_ends_with(tmp_path: Path) -> None:
    report = {"target": {"arm": "fedavg", "share": 0.5}}
    for name, curve in (("fedavg", [[0.6]] * 3), ("a", [[0.31]] * 3), ("b", [[0.29]] * 3)):
        plain(tmp_path / name, curve, report=report)
    table = found(contents(tmp_path), "target")
    assert [row[1:4] for row in texts(table)] == [
        ["30.00 %", "1 of 1", "3"],
        ["30.00 %", "0 of 1", "> 3"],
        ["30.00 %", "1 of 1", "3"],
    ]
    assert "Target: 50 % of what fedavg has at its end" in table.notes[0]


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"target": {}}, "report.target={value: None, arm: None} is not allowed: one of value"),
        ({"target": {"value": 0.5, "arm": "a"}}, "report.target={value: 0.5, arm: a} is not"),
        ({"target": {"arm": "a", "share": 2}}, "report.target.share=2 is not allowed: in (0, 1]"),
        ({"target": {"goal": 1}}, "report.target.goal is not allowed: one of arm, share, value"),
        ({"target": 0.9}, "report.target=0.9 is not allowed: a mapping"),
        (
            {"metric": "num_clusters", "target": {"value": 1}},
            "with a metric of which more, or",
        ),
    ],
)
def test_a_target_that_cannot_be_is_one_line(report: dict[str, object], message: str) -> None:
    with refused(ConfigError) as error:
        spec_of({"report": report})
    assert message in str(error.value)


def test_folders_with_former_names_say_the_same() -> None:
    claim = {"left": "a", "right": "b", "metric": "accuracy"}
    reduction = {"value": 0.8, "percent": 10}
    former = {
        "iterations": [5, 10],
        "figure": {"x": "iteration"},
        "claims": [
            {"kind": "equal_until", "iteration": 3, **claim},
            {"kind": "fewer_iterations", **claim, **reduction},
        ],
    }
    present = {
        "rounds": [5, 10],
        "figure": {"x": "round"},
        "claims": [
            {"kind": "equal_until", "round": 3, **claim},
            {"kind": "fewer_rounds", **claim, **reduction},
        ],
    }
    assert spec_of({"report": former}) == spec_of({"report": present})
    assert spec_of({"report": present}).rounds == (5, 10)

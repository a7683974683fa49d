"""Claims that were added after a run, or of runs whose seeds came later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from write_run import write_run

from fedclust.helpers.errors import ConfigError
from scripts.papers import prose, results
from scripts.papers.campaign import read_list
from scripts.papers.cells import read_runs
from scripts.papers.later_claims import verdicts

CONF = results.ROOT / "conf"
LIST = results.ROOT / "scripts" / "papers" / "campaign.yaml"

Numbers = Mapping[str, Sequence[float]]


def kept(root: Path, experiment: str, methods: Mapping[str, Numbers], **made: str) -> Any:
    """The runs of an experiment once these were kept."""
    for algorithm, numbers in methods.items():
        write_run(root, experiment, algorithm, numbers, **made)
    return read_runs(root, CONF).of(experiment)


LEAD = {"kind": "gain", "left": "flexcfl", "right": "fedavg", "metric": "accuracy", "score": "max"}


@pytest.mark.parametrize(
    ("points", "other", "verdict", "seeds"),
    [
        (4, "", "holds", "2 of 2"),  # 2.95 and 3.05 points; one more run lies within ± 1.10
        (4.2, "", "does not hold", "0 of 2"),
        (-1, "", "does not hold", "0 of 2"),
        (0, "", "holds", "2 of 2"),
        (4, "emnist", "cannot tell", "–"),
    ],
)
def test_a_lead_claimed_after_the_run(
    tmp_path: Path, points: float, other: str, verdict: str, seeds: str
) -> None:
    case = {"case": "MNIST-MCLR", "scenario": "swap_all", "stands_in_for": other}
    methods = {"flexcfl": (90.95, 93.05), "fedavg": (88.0, 90.0)}
    numbers = {name: {"accuracy max": values} for name, values in methods.items()}
    runs = kept(tmp_path, "flexcfl/table4", numbers, **case)
    claim = {**LEAD, "points": points, "text": "It leads"}
    for setting in ("", "MNIST", "MNIST, swap all"):
        (row,) = verdicts({**claim, "setting": setting}, runs)
        assert (row["verdict"], row["seeds"]) == (verdict, seeds)
        assert row["measured"].startswith("flexcfl leads fedavg by +3.00 points")
        assert row["claim"].endswith("[MNIST-MCLR, swap all]")
    assert not verdicts({**claim, "setting": "MNIST, swap part"}, runs)
    assert not verdicts({**claim, "right": "ifca"}, runs)


def test_a_claim_is_told_in_every_part_of_the_grid_and_of_no_variant(tmp_path: Path) -> None:
    methods = {"flexcfl": {"accuracy max": (91.0, 93.0)}, "fedavg": {"accuracy max": (88.0, 90.0)}}
    made = {"scenario": "drift", "options": "scenario.table=one"}
    runs = kept(tmp_path, "flexcfl/table4", methods, **made)
    claim = {**LEAD, "points": 0, "text": "It leads"}
    (row,) = verdicts(claim, runs, ("scenario.table", "algorithm"))
    assert (row["claim"], row["seeds"]) == ("It leads [table=one]", "2 of 2")
    assert not verdicts(claim, runs, ("algorithm",))
    # what two machines have run is said
    runs[0].made["machine"] = "another"
    (row,) = verdicts(claim, runs, ("scenario.table",))
    assert row["measured"].endswith("; runs of two machines")


def test_a_lead_is_told_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    """In whichever order; seed 2 has a method alone."""
    best = {"flexcfl": ("0 1", (92.45, 93.55)), "fedavg": ("2 1 0", (10.0, 90.0, 89.0))}
    for algorithm, (seeds, values) in best.items():
        numbers = {"accuracy max": values}
        write_run(tmp_path, "flexcfl/table4", algorithm, numbers, case="a", seeds=seeds)
    runs = read_runs(tmp_path, CONF).of("flexcfl/table4")
    (row,) = verdicts({**LEAD, "points": 3.5, "text": "It leads"}, runs)
    assert row["measured"].startswith("flexcfl leads fedavg by +3.50 points")
    assert (row["verdict"], row["seeds"]) == ("holds", "2 of 2")


@pytest.mark.parametrize(
    ("early", "late", "verdict", "seeds"),
    [
        ((88.0, 88.0), (95.0, 95.0), "holds", "2 of 2"),
        ((88.0, 91.0), (95.0, 95.0), "cannot tell", "1 of 2"),  # behind on the mean
        ((88.0, 88.0), (95.0, 92.0), "cannot tell", "1 of 2"),
        ((92.0, 92.0), (95.0, 95.0), "does not hold", "0 of 2"),
    ],
)
def test_overtaking_is_told_from_the_values_at_the_printed_rounds(
    tmp_path: Path, early: Sequence[float], late: Sequence[float], verdict: str, seeds: str
) -> None:
    at = ("accuracy_last_local at 5", "accuracy_last_local at 10")
    methods = {"lcfl": (early, late), "ifca": ((90.0, 90.0), (94.0, 94.0))}
    numbers = {name: dict(zip(at, values, strict=True)) for name, values in methods.items()}
    runs = kept(tmp_path, "lcfl/table2", numbers)
    claim = {
        "kind": "overtakes",
        "left": "last_local base=lcfl",
        "right": "last_local base=ifca",
        "metric": "accuracy_last_local",
        "between": [5, 10],
        "text": "It overtakes",
    }
    (row,) = verdicts(claim, runs)
    assert (row["claim"], row["verdict"], row["seeds"]) == ("It overtakes", verdict, seeds)
    assert not verdicts({**claim, "between": [5, 15]}, runs)  # which is not kept


def order(*best_to_worst: str, metric: str = "accuracy") -> dict[str, Any]:
    return {
        "kind": "order_at_end",
        "metric": metric,
        "best_to_worst": list(best_to_worst),
        "text": "They end so",
    }


@pytest.mark.parametrize(
    ("made", "metric", "verdict"),
    [
        ({}, "accuracy", "one seed"),
        ({}, "train_loss", "one seed"),  # of which less is better
        ({"stands_in_for": "emnist"}, "accuracy", "cannot tell"),
        ({"stands_in_for": "emnist"}, "train_loss", "cannot tell"),
        ({"options": "num_clusters=2"}, "accuracy", None),  # another experiment
        ({"command": "fedclust run experiment=cfl_mgd/table2 rounds=15"}, "accuracy", None),
        ({"seeds": "1"}, "accuracy", None),  # not the seeds of the others
    ],
)
def test_an_order_at_the_end_is_told_from_the_last_values(
    tmp_path: Path, made: dict[str, str], metric: str, verdict: str | None
) -> None:
    for name, last in (("cfl_mgd", 3.0), ("ifca", 2.0), ("fedavg", 1.0)):
        values = {"accuracy last": [last], "train_loss last": [last]}
        changed = made if name == "fedavg" or "stands_in_for" in made else {}
        write_run(tmp_path, "cfl_mgd/table2", name, values, case="MNIST", **changed)
    runs = read_runs(tmp_path, CONF).of("cfl_mgd/table2")
    rows = verdicts(order("cfl_mgd", "ifca", "fedavg", metric=metric), runs)
    assert [(row["claim"], row["verdict"]) for row in rows] == (
        [("They end so [MNIST]", verdict)] if verdict else []
    )
    if metric == "accuracy" and verdict:
        said = "cfl_mgd 3.00 % > ifca 2.00 % > fedavg 1.00 %"
        assert rows[0]["measured"].startswith(said)


@pytest.mark.parametrize(
    ("fedavg", "commits", "verdict"),
    [
        (80.0, ("a", "b"), "one seed"),
        (80.1, ("a", "a"), "one seed"),
        (80.1, ("a", "b"), "cannot tell"),  # which may round otherwise
    ],
)
def test_equality_is_told_from_the_last_round_it_is_claimed_of(
    tmp_path: Path, fedavg: float, commits: tuple[str, str], verdict: str
) -> None:
    for name, value, commit in zip(("lcfl", "fedavg"), (80.0, fedavg), commits, strict=True):
        write_run(tmp_path, "lcfl/table2", name, {"accuracy at 5": [value]}, commit=commit)
    claim = {"kind": "equal_until", "left": "lcfl", "right": "fedavg", "metric": "accuracy"}
    claim |= {"round": 5, "tolerance": 0, "text": "They are equal"}
    (row,) = verdicts(claim, read_runs(tmp_path, CONF).of("lcfl/table2"))
    assert (row["claim"], row["verdict"]) == ("They are equal", verdict)
    assert not verdicts({**claim, "round": 6}, read_runs(tmp_path, CONF).of("lcfl/table2"))


@pytest.mark.full
def test_more_seeds_replace_what_a_report_said(tmp_path: Path) -> None:
    for name, last in (("cfl_mgd", (95.0, 90.0, 90.0)), ("ifca", (94.0, 91.0, 91.0))):
        values = {"train_loss last": last}
        write_run(tmp_path, "cfl_mgd/table2", name, values, case="MNIST", seeds="0 1 2")
    said = "CFL-MGD ends with a lower training loss than IFCA"
    file = tmp_path / "runs" / "cfl_mgd" / "table2" / "claims.csv"

    def told(where: str) -> tuple[str, str]:
        found = prose.prose(tmp_path, CONF, read_list(LIST), read_runs(tmp_path, CONF))
        rows = [row for row in found if row["where"] == where and row["claim"].startswith(said)]
        return rows[0]["verdict"], rows[0]["seeds"]

    for seeds, wanted in (
        ("1 of 1", "2 of 3"),
        ("0 of 3", "2 of 3"),
        ("0 of 4", "0 of 4"),
        ("–", "–"),
    ):
        file.write_text(
            f"claim,measured,verdict,seeds\n{said},cfl_mgd < ifca,does not hold,{seeds}\n"
        )
        assert told("cfl_mgd/table2")[1] == wanted
    # Figure 4 is these runs again, Figure 3 those of other data
    assert told("cfl_mgd/fig4") == ("cannot tell", "2 of 3")
    assert told("cfl_mgd/fig3") == (results.NOT_RUN, "")


def test_mixed_clusters_are_said_where_a_verdict_rests_on_them(tmp_path: Path) -> None:
    ends = {"lcfl": (95.7, 100.0), "ifca": (95.0, 75.0), "fedavg": (93.6, 25.0)}
    numbers = {n: {"accuracy last": [a], "purity last": [p]} for n, (a, p) in ends.items()}
    runs = kept(tmp_path, "lcfl/table2", numbers)
    (row,) = verdicts(order("lcfl", "ifca", "fedavg"), runs)
    assert row["measured"].endswith("fedavg 93.60 %; ifca mixes clusters, purity 0.75")
    assert row["verdict"] == "one seed"


@pytest.mark.parametrize(
    ("verdict", "seeds", "other", "wanted"),
    [
        ("holds", "1 of 1", "", "one seed"),
        ("holds", "2 of 5", "", "cannot tell"),
        ("does not hold", "2 of 5", "", "cannot tell"),
        ("does not hold", "1 of 5", "", "does not hold"),
        ("holds", "4 of 5", "", "holds"),
        ("holds", "5 of 5", "emnist", "cannot tell"),
        ("holds", "–", "", "holds"),
    ],
)
def test_what_a_report_said_is_judged_by_todays_rule(
    tmp_path: Path, verdict: str, seeds: str, other: str, wanted: str
) -> None:
    numbers = {"lcfl": {"accuracy last": [1.0]}}
    runs = kept(tmp_path, "lcfl/fig2", numbers, stands_in_for=other)
    row = {"claim": "It leads", "measured": "1", "verdict": verdict, "seeds": seeds}
    assert prose._strict(row, runs)["verdict"] == wanted


def test_a_run_of_a_modified_tree_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "lcfl/fig2", "lcfl", {"accuracy last": [1.0]}, commit="abc1234-dirty")
    with pytest.raises(ConfigError, match=r"abc1234-dirty.*a run of committed code"):
        read_runs(tmp_path, CONF)


@pytest.mark.parametrize(
    ("firsts", "measured", "verdict", "seeds"),
    [
        ((14.0, 12.0, 15.0), "round 14 in the median seed", "holds", "3 of 3"),
        ((16.0, 12.0, 17.0), "round 16 in the median seed", "cannot tell", "2 of 3"),
        ((17.0, 18.0, 19.0), "round 18 in the median seed", "does not hold", "0 of 3"),
        ((15.0, float("inf"), float("inf")), "not in the median seed", "cannot tell", "1 of 3"),
    ],
)
def test_a_round_to_a_value_is_that_of_the_median_seed(
    tmp_path: Path, firsts: tuple[float, ...], measured: str, verdict: str, seeds: str
) -> None:
    numbers = {"lcfl": {"accuracy_last_local first 90": firsts}}
    runs = kept(tmp_path, "lcfl/fig2", numbers, seeds="0 1 2")
    about = {"arm": "last_local base=lcfl", "metric": "accuracy_last_local", "value": 0.9}
    (row,) = verdicts({"kind": "reaches", **about, "round": 15}, runs)
    assert row["measured"].startswith(measured)
    assert (row["verdict"], row["seeds"]) == (verdict, seeds)


def test_a_value_at_the_end_is_that_of_all_seeds(tmp_path: Path) -> None:
    numbers = {"lcfl": {"accuracy last": (96.0, 99.0)}}
    runs = kept(tmp_path, "lcfl/fig2", numbers, seeds="0 1")
    for value, verdict, seeds in ((0.95, "holds", "2 of 2"), (0.97, "cannot tell", "1 of 2")):
        (row,) = verdicts({"kind": "at_least", "arm": "lcfl", "value": value}, runs)
        assert row["measured"] == "97.50 %"
        assert (row["verdict"], row["seeds"]) == (verdict, seeds)

"""Accuracies that another program measured, as arms of a report."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up import job, plain
from refusals import refused

import fedclust
from fedclust.commands import report as command
from fedclust.helpers.errors import ConfigError
from fedclust.launch.checks import check_report
from fedclust.metrics import METRICS, Meaning
from fedclust.papers.reports import all_contents
from fedclust.report.outside import _measured, read_measured
from fedclust.report.runs import Run

SEEDS, CLIENTS, TESTED, LAST = (0, 1, 2), 40, 50, 11
COLUMNS = ["arm", "seed", "round", "client", "correct", "count"]


def right(seed: int, t: int, client: int) -> int:
    return (client + 3 * seed + t) % (TESTED + 1)


def table(arms: tuple[str, ...] = ("flower",), rounds: tuple[int, ...] = (3, LAST)) -> pd.DataFrame:
    places = itertools.product(arms, SEEDS, rounds, range(CLIENTS))
    rows = [(arm, s, t, c, right(s, t, c), TESTED) for arm, s, t, c in places]
    return pd.DataFrame(rows, columns=COLUMNS)


def saved(folder: Path, rows: pd.DataFrame) -> Path:
    file = folder / "measured.csv"
    rows.to_csv(file, index=False)
    return file


@pytest.mark.full
def test_an_arm_by_hand(sweep: Path, tmp_path: Path) -> None:
    """Sums over clients, paired by seed; nothing is said of cost and clusters."""
    (made,) = all_contents(sweep, saved(tmp_path, table()))
    (arm,) = (arm for arm in made.arms if arm.outside)
    assert arm.label == "flower (outside)"
    assert [one.outside for one in made.arms] == [False] * 4 + [True]
    want = {s: sum(right(s, LAST, c) for c in range(CLIENTS)) / CLIENTS / TESTED for s in SEEDS}
    assert arm.by_seed("accuracy") == pytest.approx(want)
    assert arm.by_seed("accuracy_client_mean") == pytest.approx(want)
    early = arm.curve("accuracy")
    assert early.rounds.tolist() == [3, LAST]
    assert early.at(3)[1] == pytest.approx(sum(right(1, 3, c) for c in range(40)) / 2000)
    tables = {one.name: one for one in made.tables}
    costs = {record["arm"]: record for record in tables["cost"].records}
    assert costs[arm.label] == {"arm": arm.label, "rounds": LAST + 1, "the server reads": ""}
    assert costs["ifca"]["the server reads"] == "sums by cluster"
    row = next(row for row in tables["cost"].rows if row[0].text == arm.label)
    assert [cell.text for cell in row[1:]] == ["–"] * 9
    recovered = {record["arm"]: record for record in tables["recovery"].records}
    assert not {"purity", "ari", "num_clusters"} & set(recovered[arm.label])
    fair = {record["arm"]: record for record in tables["fairness"].records}
    spread = [np.std([right(s, LAST, c) / TESTED for c in range(CLIENTS)]) for s in SEEDS]
    assert fair[arm.label]["std over clients"] == pytest.approx(100 * np.mean(spread))
    (against,) = (r for r in tables["comparison"].records if r["arm"] == arm.label)
    best = next(one for one in made.arms if one.name == "lcfl").by_seed("accuracy")
    assert against["difference"] == pytest.approx(100 * np.mean([want[s] - best[s] for s in SEEDS]))
    assert against["n"] == 3
    assert "outside" not in "".join(str(r) for r in tables["settings"].records)
    (told,) = (line for line in made.banners if "another program" in line)
    assert "flower (outside)" in told
    assert not any("different versions" in line for line in made.banners)


@pytest.mark.full
def test_an_arm_that_ends_early_is_not_held_against_whole_runs(sweep: Path, tmp_path: Path) -> None:
    (made,) = all_contents(sweep, saved(tmp_path, table(("a", "b"), (0, 3))))
    arms = [arm for arm in made.arms if arm.outside]
    assert [arm.name for arm in arms] == ["a (outside)", "b (outside)"]
    assert not any(arm.finished for arm in arms)
    lines = [line for line in made.banners if "is not finished" in line]
    assert lines[0] == "a (outside) is not finished (measured elsewhere, 4 of 12 rounds)"


def test_clients_of_other_sizes_by_hand() -> None:
    """10 of 20 and 30 of 80 are 40 %, and 43.75 % in the mean; who is not tested does not count."""
    rows = pd.DataFrame(
        {"seed": 0, "round": 2, "client": [0, 1, 2], "correct": [10, 30, 0], "count": [20, 80, 0]}
    ).assign(group=-1, test_count=0)
    job = Run(Path("job"), {"rounds": 3}, {}, {})
    run = _measured(Path("x.csv"), "a", rows, [job])
    assert {name: curve.values.item() for name, curve in run.curves.items()} == {
        "accuracy": 0.4,
        "accuracy_client_mean": 0.4375,
    }
    assert run.rounds == 3


@pytest.mark.full
def test_a_figure_and_frames_have_the_arm(sweep: Path, tmp_path: Path) -> None:
    result = fedclust.load(sweep, outside=saved(tmp_path, table()))
    rows = result.rounds[result.rounds["arm"] == "flower (outside)"]
    assert len(rows) == 6
    assert rows["bytes"].isna().all()
    clients = result.clients[result.clients["arm"] == "flower (outside)"]
    assert clients["label"].unique().tolist() == [-1]
    assert (clients["correct"] == [right(*p) for p in clients[COLUMNS[1:4]].to_numpy()]).all()
    assert "flower (outside)" in {t.get_text() for t in result.figure().legends[0].get_texts()}


def changed(place: int, **values: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.astype(object)
        for name, value in values.items():
            rows.loc[place, name] = value
        return rows

    return change


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: rows.drop(columns=["count", "seed"]), "seed, count is missing"),
        (lambda rows: rows.assign(auroc=0.5), "nothing reads the column auroc"),
        (lambda rows: rows[:0], "it holds no row"),
        (changed(0, correct="0.9"), "line 2: correct='0.9' is no whole number"),
        (changed(1, client=-1), "line 3: client='-1' is no whole number"),
        (changed(0, arm=" "), "line 2: arm='' is no name"),
        (changed(4, correct=51), "line 6: correct=51 of count=50"),
        (changed(1, client=0), "line 3: arm flower, seed 0, round 3, client 0 occurs twice"),
        (changed(0, seed=9), "line 2: seed=9, and no job has this seed: 0, 1, 2"),
        (changed(0, round=12), "line 2: round=12, and no job was evaluated in this round: "),
        (
            lambda rows: rows[rows["round"] == LAST].assign(round=12),
            "round=12, and no job was evaluated in this round: ",
        ),
        (lambda rows: rows.assign(arm="x" * 81), "line 2: arm=xxxxxxxxxxxxxxxxxxxx… has over 80"),
        (
            lambda rows: rows[(rows["seed"] != 1) | (rows["round"] != 3)],
            "seeds 0 and 1 differ in 3",
        ),
        (changed(3, client=40), "line 5: client=40, and no job has this client: 0, 1, 2"),
        (changed(2, count=60), "line 4: count=60, and the client has 50 test examples"),
        (lambda rows: rows.drop(index=[5, 7]), "arm flower, seed 0, round 3 lacks 5, 7"),
    ],
)
def test_what_does_not_fit_is_one_line(
    sweep: Path, tmp_path: Path, change: Callable[..., pd.DataFrame], says: str
) -> None:
    """And nothing has been written."""
    file = saved(tmp_path, change(table()))
    with refused(ConfigError, r"^report\.outside=") as error:
        command.command([str(sweep), f"report.outside={file}"])
    assert says in str(error.value)
    assert not (sweep / "report").exists()


def test_scores_but_accuracy_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(METRICS, "rmse", Meaning("an error", "", "lower", "Error"))
    file = saved(tmp_path, table())
    own = {"report": {"metric": "purity"}}
    job(tmp_path / "purity/fedavg", "fedavg", rounds=1, config=own)
    with pytest.raises(ConfigError, match=r"^report\.metric=purity is not allowed: accuracy or"):
        all_contents(tmp_path / "purity", file)
    plain(tmp_path / "other/a", {"rmse": [[0.5]], "rmse_client_mean": [[0.5]]}, "fedavg")
    with pytest.raises(ConfigError, match="judged by rmse"):
        all_contents(tmp_path / "other", file)


def test_several_federations_are_reported_each_by_itself(tmp_path: Path) -> None:
    for size in ("20", "40"):
        size_of = [f"partition.num_clients={size}"]
        job(tmp_path / f"jobs/{size}", "fedavg", rounds=1, overrides=size_of)
    with pytest.raises(ConfigError, match="one federation; the folder has 2 settings"):
        all_contents(tmp_path / "jobs", saved(tmp_path, table()))


def test_the_key_of_a_job_is_checked_before_it_runs(tmp_path: Path) -> None:
    config = {"report": {"outside": str(tmp_path / "none.csv")}}
    with pytest.raises(ConfigError, match=r"^report\.outside=.*none\.csv is .* no such file$"):
        check_report(config)
    check_report({"report": {"outside": str(saved(tmp_path, table()))}})


@pytest.mark.full
def test_a_path_may_be_seen_from_the_folder(sweep: Path) -> None:
    saved(sweep, table())
    (made,) = all_contents(sweep, "measured.csv")
    assert sum(arm.outside for arm in made.arms) == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["a", "b", "report.outside=x.csv"], "a file for one folder, not 2"),
        (["a", "report.metric=purity"], "report.outside is the one key of fedclust report"),
        (["a", "report.outside="], "report.outside='' is not allowed: a CSV file"),
    ],
)
def test_what_the_command_does_not_take(given: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        command.command(given)


def test_an_arm_with_a_comma_stands_in_quotes(tmp_path: Path) -> None:
    file = saved(tmp_path, table(("flower, lr=1",)))
    assert set(read_measured(file)["arm"]) == {"flower, lr=1"}
    file.write_text(file.read_text().replace('"', ""))
    with pytest.raises(ConfigError, match="a name with a comma stands in quotes"):
        read_measured(file)


def test_a_file_that_is_no_csv_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_bytes(b'a,"b\n\xff\xfe')
    with pytest.raises(ConfigError, match=r"cannot be read as CSV: [^\n]*$"):
        read_measured(file)

"""Every experiment runs end to end on the real data in seconds, and its report says what it
found.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from cli.conftest import Cli, rounds_of

from fedclust.config.tree import CONF
from fedclust.launch.scales import scales_of

EXPERIMENTS = sorted(
    str(f.relative_to(CONF / "experiment").with_suffix(""))
    for f in (CONF / "experiment").rglob("*.yaml")
)
SMOKE = [name for name in EXPERIMENTS if "smoke" in scales_of(CONF / "experiment" / f"{name}.yaml")]
# of each folder the first has its figures as files, and is run twice; the figures of the others are
# made and not drawn, and that a finished job is not run again does not depend on the experiment
WHOLE = {name.rpartition("/")[0]: name for name in reversed(SMOKE)}.values()


OF_A_TABLE = {"advise": ("dataset.client=client",)}  # which column of one's own names the client


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("experiment", SMOKE)
def test_every_experiment_at_smoke_scale(
    fedclust: Cli,
    tmp_path: Path,
    every_data_root: Path,
    experiment: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if experiment not in WHOLE:
        request.getfixturevalue("sketched")
    given = (f"experiment={experiment}", "scale=smoke", "progress=false")
    given += OF_A_TABLE.get(experiment, ())
    fedclust.done("run", *given, f"data.root={every_data_root}")
    report = tmp_path / "outputs" / f"{experiment}-smoke" / "report"
    assert "compare orderings, not values" in (report / "table.md").read_text()
    assert (report / "report.html").stat().st_size > (50_000 if experiment in WHOLE else 10_000)
    assert list((report / "figures").glob("*.png"))
    if experiment not in WHOLE:
        return
    monkeypatch.setattr("fedclust.report.write.draw", lambda *_: [])  # the slowest part, once
    again = fedclust.done("run", *given, f"data.root={every_data_root}")
    assert "is done already" in again.err


@pytest.mark.slow
def test_lcfl_table_2_has_its_structure(fedclust: Cli, tmp_path: Path, data_root: Path) -> None:
    fedclust.done(
        "run", "experiment=lcfl/table2", "scale=smoke", "progress=false", f"data.root={data_root}"
    )
    folder = tmp_path / "outputs" / "lcfl" / "table2-smoke"
    accuracy = {}
    for arm in ("lcfl", "fedavg"):
        job = folder / f"last_local,algorithm_algorithm.base={arm}"
        rounds = pd.read_csv(job / "rounds.csv", dtype=str)
        wanted = rounds["metric"].isin(["accuracy", "accuracy_last_local"])
        rounds = rounds[wanted & (rounds["round"].astype(int) < 5)]
        accuracy[arm] = rounds.sort_values(["metric", "seed", "round"])["value"].tolist()
    assert accuracy["lcfl"] == accuracy["fedavg"], "LCFL is FedAvg through its warm-up, bit by bit"
    table = (folder / "report" / "table.md").read_text()
    assert "89.66" in table, "the published value stands beside ours"
    claims = (folder / "report" / "claims.md").read_text()
    assert next(line for line in claims.splitlines() if "warm-up" in line).count("holds") == 1


@pytest.mark.slow
def test_the_quickstart_finds_the_rotations(fedclust: Cli, tmp_path: Path) -> None:
    done = fedclust.done("run", "experiment=quickstart", "progress=false", "rounds=7", "seeds=2")
    folder = tmp_path / "outputs/quickstart/lcfl,rounds=7,seeds=2"
    for metric in ("purity", "ari"):
        assert rounds_of(folder, metric)[:, 6].tolist() == [1.0, 1.0]
    one_model = folder.with_name("fedavg,rounds=7,seeds=2")
    ours, theirs = (rounds_of(job, "accuracy").unstack()[range(5)] for job in (folder, one_model))
    assert ours.equals(theirs), "LCFL is FedAvg through its warm-up"
    assert "lcfl" in done.out or "lcfl" in done.err

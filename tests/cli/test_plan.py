"""fedclust plan: what the first rounds say of all, and what is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import Cli

from fedclust.commands.plan import Probe, _duration, _rounds

pytestmark = pytest.mark.full
TINY = ("partition.num_clients=8", "partition.examples_per_client=20", "seeds=2", "rounds=40")


def test_a_sweep_is_planned_by_method_and_nothing_is_left(fedclust: Cli, tmp_path: Path) -> None:
    told = ("-m", *TINY, "algorithm=fedavg,ifca", "solver.lr=0.1,0.01,0.001")
    said = fedclust.done("plan", *told).out
    rows = [line.split("│") for line in said.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in row[1:4]] for row in rows]
    assert cells == [["fedavg", "3", "2 x 40"], ["ifca", "3", "2 x 40"]]
    assert "of memory on this machine" in " ".join(said.split())
    assert not (tmp_path / "outputs").exists()


def test_what_run_refuses_is_refused(fedclust: Cli) -> None:
    refused = fedclust("plan", *TINY, "algorithm=ifca", "num_clusters=0")
    assert refused.status == 2
    assert "num_clusters=0 is not allowed" in refused.err
    refused = fedclust("plan", "algorithm=nonsense")
    assert refused.status == 2


def test_a_job_that_fails_at_once_says_so(fedclust: Cli) -> None:
    refused = fedclust("plan", "dataset=csv", "dataset.path=nowhere.csv", "dataset.client=a")
    assert refused.status == 2
    assert "nowhere.csv" in refused.err


def test_rounds_with_and_without_a_test_are_told_apart(tmp_path: Path) -> None:
    lines = ["seed,round,metric,value"]
    for seed in (0, 1):
        for t, seconds in enumerate((5.0, 3.0, 1.0, 3.5)):
            lines.append(f"{seed},{t},seconds,{seconds}")
            lines += [f"{seed},{t},test_loss,0.5"] if t % 2 else []
    file = tmp_path / "rounds.csv"
    file.write_text("\n".join(lines))
    assert _rounds(file) == ([10.0, 2.0], [6.0, 7.0])
    probe = Probe(start=4.0, plain=2.0, tested=6.0, gigabytes=1.0)
    assert probe.seconds(rounds=10, eval_every=4) == pytest.approx(4 + 7 * 2 + 3 * 6)
    assert [_duration(x) for x in (89, 600, 6000)] == ["89 s", "10 min", "1.7 h"]

"""Every command ends with what came out and where."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli.conftest import Cli

from fedclust.launch.sweep import notes
from fedclust.metrics import METRICS, Meaning
from fedclust.report.outcome import outcome

SMALL = ("rounds=2", "partition.num_clients=8", "solver.epochs=1", "model=linear")


@pytest.mark.full
@pytest.mark.parametrize("progress", ["true", "false"])
def test_a_job_ends_with_its_folder_and_its_final_numbers(
    fedclust: Cli, tmp_path: Path, progress: str
) -> None:
    job = ("run", *SMALL, "algorithm=fedavg", "seeds=2", "hydra.run.dir=job")
    done = fedclust.done(*job, f"progress={progress}")
    rounds = pd.read_csv(tmp_path / "job" / "rounds.csv").query("round == 1")
    last = 100 * rounds.query("metric == 'accuracy'")["value"].to_numpy()
    assert len(set(last)) == 2
    numbers = (
        f"test accuracy {last.mean():.2f} ± {last.std():.2f} %, purity 0.25 ± 0.00, "
        "ARI 0.00 ± 0.00 (2 seeds, 2 rounds)"
    )
    assert done.err.splitlines()[-1] == f"job is done: {numbers}"
    again = fedclust(*job, f"progress={progress}")
    assert again.err.splitlines()[-1] == f"job is done already: {numbers}"
    if progress == "false":
        assert done.err.count("\n") == again.err.count("\n") == 1


@pytest.mark.full
@pytest.mark.parametrize(("progress", "ends"), [("true", 0), ("false", 2)])
def test_jobs_of_a_sweep_end_so_where_no_rounds_are_shown(
    fedclust: Cli, progress: str, ends: int
) -> None:
    sweep = ("run", "-m", *SMALL, "algorithm=fedavg,local", "name=two", f"progress={progress}")
    done = fedclust(*sweep)
    lines = [line for line in done.err.splitlines() if " is done: test accuracy " in line]
    assert len(lines) == ends, done.err
    assert all(line.startswith("outputs/two/") for line in lines)
    assert done.out.splitlines()[-1] == "report: outputs/two/report/report.html"
    assert fedclust(*sweep).err.count(" is done already: test accuracy ") == 2


def test_the_score_of_the_task_and_failed_seeds_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "mae", Meaning("mean error", "days", "lower", "MAE"))
    both = np.array([2.0, 4.0])
    last = {"bytes": both, "mae": both, "mae_client_mean": both}
    told = outcome(Path("a/b"), last, {"seeds": [0, 1, 2], "rounds": 1}, "is done")
    assert told == "a/b is done: MAE 3.000 ± 1.000 (2 of 3 seeds, 1 round)"


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ([2.0, 3.0], "; worse than a guess without inputs, 2.500 ± 0.500"),
        ([3.0, 3.5], ""),
        (None, ""),  # of a run from before it was kept
    ],
)
def test_a_job_that_a_guess_beats_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: list[float] | None, words: str
) -> None:
    monkeypatch.setitem(METRICS, "mae", Meaning("mean error", "days", "lower", "MAE"))
    last = {"mae": np.array([2.0, 4.0]), "mae_client_mean": np.array([1.0, 1.0])}
    seeds = dict(enumerate([{}, {}] if kept is None else [{"mae": one} for one in kept]))
    about = {"seeds": {seed: {"trivial": one} for seed, one in seeds.items()}}
    (tmp_path / "federation.json").write_text(json.dumps(about))
    config = {"seeds": [0, 1], "rounds": 1}
    done = f"{tmp_path} is done: MAE 3.000 ± 1.000 (2 seeds, 1 round)"
    assert outcome(tmp_path, last, config, "is done") == done + words
    for losses, why in (
        ((4, 3, 2, 1), ": the training loss still falls, so more rounds"),
        ((4, 2, 1, 1), ": the training loss falls no more, so the inputs"),
        ((4, 3, 2), ""),
    ):
        rows = [f"{seed},{t},train_loss,{x}" for seed in (0, 1) for t, x in enumerate(losses)]
        (tmp_path / "rounds.csv").write_text("\n".join(["seed,round,metric,value", *rows]))
        said = outcome(tmp_path, last, config, "is done")
        assert said.startswith(done + words + why * bool(words))
        assert (": the training" in said) == bool(why and words)
    (tmp_path / "federation.json").write_text('{"seeds": [1]}')  # damaged
    assert outcome(tmp_path, last, config, "is done") == done


@pytest.mark.full
@pytest.mark.parametrize("progress", ["true", "false"])
def test_what_holds_of_several_jobs_of_a_sweep_is_said_once(fedclust: Cli, progress: str) -> None:
    """Of the data and of a value for nobody once in all, of a method once by its name."""
    rows = np.arange(48)
    table = {"x": (rows % 7) / 2, "y": rows % 2, "c": rows // 12}
    pd.DataFrame(table).to_csv("mine.csv", index=False)
    data = ("dataset=csv", "dataset.path=mine.csv", "dataset.label=y", "dataset.client=c")
    idle = ("common.release_every=2",)
    sweep = ("-m", "algorithm=lcfl,local,fedavg", "rounds=1,2", "model=linear", "name=six")
    done = fedclust("run", *sweep, *data, *idle, f"progress={progress}", "participation=0.5")
    assert len(re.findall(" is done: ", done.err)) == (6 if progress == "false" else 0), done.err
    told = Counter(line.strip() for line in done.err.splitlines() if "warning: " in line)
    assert set(told.values()) == {1}, done.err
    lines = sorted(told)
    assert sum("common.release_every has no effect" in line for line in lines) == 1
    assert sum("lcfl: no clusters were formed" in line for line in lines) == 2, (
        "another line by rounds"
    )
    assert sum("local: participation=0.5 has no effect" in line for line in lines) == 1
    if progress == "true":
        assert done.err.count("classes") == 1, done.err


def test_each_place_where_jobs_print_gets_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "a").open("w") as a, (tmp_path / "b").open("w") as b, notes() as noted:
        said = []
        for place in (a, a, b, b):
            monkeypatch.setattr("sys.stderr", place)
            said += [noted.is_new("12 columns"), noted.is_new("others")]
        monkeypatch.undo()
    assert said == [True, True, False, False] * 2
    assert noted.is_new("too late for notes")

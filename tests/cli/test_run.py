"""The commands a user types."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml
from cli.conftest import Cli, config_of, put, rounds_of
from PIL import Image

from fedclust.helpers.errors import Interrupted
from fedclust.launch.typed import job_folder
from fedclust.runtime import run
from fedclust.runtime.folder import RunFolder

TINY = ("progress=false", "partition.num_clients=8", "rounds=6", "solver.epochs=1")
FILES = (
    *("config.yaml", "versions.json", "federation.json", "rounds.csv", "clients.parquet"),
    *("summary.csv", "status.json"),
)


@pytest.mark.full
def test_a_run_leaves_its_files(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done("run", *TINY, "seeds=2")
    (folder,) = (tmp_path / "outputs" / "default").iterdir()
    assert folder.name.startswith("lcfl,")
    for name in FILES:
        assert (folder / name).stat().st_size > 0, name
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    rounds = pd.read_csv(folder / "rounds.csv")
    assert set(rounds["seed"]) == {0, 1}
    assert set(rounds["round"]) == set(range(6))
    assert {"accuracy", "accuracy_client_mean", "purity", "ari", "nmi", "bytes", "seconds"} <= set(
        rounds["metric"]
    )
    clients = pd.read_parquet(folder / "clients.parquet")
    assert len(clients) == 2 * 6 * 8
    pooled = clients.groupby(["seed", "round"])[["correct", "test_count"]].sum()
    recorded = rounds[rounds["metric"] == "accuracy"].set_index(["seed", "round"])["value"]
    assert (pooled["correct"] / pooled["test_count"]).sort_index().tolist() == pytest.approx(
        recorded.sort_index().tolist()
    )


@pytest.mark.full
@pytest.mark.figures
def test_a_sweep_ends_with_its_report(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done("run", "-m", *TINY, "algorithm=fedavg,local", "name=mine")
    report = tmp_path / "outputs" / "mine" / "report"
    assert "fedavg" in (report / "table.md").read_text()
    assert (report / "report.html").stat().st_size > 10_000
    assert not list((tmp_path / "outputs").rglob(".hydra"))
    fedclust.done("report", "outputs/mine")


@pytest.mark.full
def test_a_sweep_goes_on_after_a_bad_and_a_diverging_job(fedclust: Cli, tmp_path: Path) -> None:
    arms = ("algorithm=fedavg", "solver.lr=0.1,-1,1e9", "name=mixed")
    done = fedclust("run", "-m", *TINY, *arms)
    assert done.status == 2
    assert done.err.count("solver.lr=-1.0 is not allowed") == 1 or "solver.lr=-1 " in done.err
    assert "every seed has failed" in done.err
    folders = sorted(f.name for f in (tmp_path / "outputs" / "mixed").iterdir() if f.is_dir())
    assert len(folders) == 3, "two jobs and the report"
    table = (tmp_path / "outputs" / "mixed" / "report" / "table.md").read_text()
    assert "failed: DivergedError" in table
    alone = fedclust("run", *TINY, "algorithm=fedavg", "solver.lr=1e9", "hydra.run.dir=alone")
    assert alone.status == 1
    fedclust.refused("report", "alone", says="failed: DivergedError")


@pytest.mark.slow
def test_a_grid_of_seeds_is_one_arm(fedclust: Cli, tmp_path: Path) -> None:
    loop = ("engine=loop", "model=linear")  # has the same bits alone
    arms = ("algorithm=fedavg,local", "eval_every=3", *loop)
    fedclust.done("run", "-m", *TINY, *arms, "seeds=[0],[1]", "name=grid")
    fedclust.done("run", "-m", *TINY, *arms, "seeds=2", "name=together")
    grid, together = (tmp_path / "outputs" / name / "report" for name in ("grid", "together"))
    assert (grid / "recovery.csv").read_text() == (together / "recovery.csv").read_text()
    assert (grid / "table.csv").read_text() == (together / "table.csv").read_text()
    assert "no results yet" not in (grid / "report.html").read_text()
    assert len(list((tmp_path / "outputs" / "grid").glob("*/rounds.csv"))) == 4


@pytest.mark.slow
def test_seeds_alone_or_in_company_are_the_same(fedclust: Cli, tmp_path: Path) -> None:
    loop = ("engine=loop", "model=linear", *TINY)
    fedclust.done("run", *loop, "seeds=3", "hydra.run.dir=together")
    fedclust.done("run", *loop, "seeds=[1]", "hydra.run.dir=alone")
    rows = [pd.read_csv(tmp_path / f / "rounds.csv", dtype=str) for f in ("together", "alone")]
    together, alone = (
        r[(r["seed"] == "1") & (r["metric"] != "seconds")].reset_index(drop=True) for r in rows
    )
    pd.testing.assert_frame_equal(together, alone)


@pytest.mark.full
def test_k_need_not_be_known(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done("run", *TINY, "solver.epochs=5", "num_clusters=auto", "hydra.run.dir=here")
    assert rounds_of(tmp_path, "num_clusters_found").tolist() == [4.0]


def test_the_config_can_be_shown(fedclust: Cli, tmp_path: Path) -> None:
    shown = fedclust.done("run", "--cfg", "job", "algorithm=ifca")
    assert "IFCA" in yaml.safe_load(shown.out)["algorithm"]["_target_"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_the_config_of_a_users_own_experiment_can_be_shown_at_every_scale(
    fedclust: Cli, tmp_path: Path
) -> None:
    text = "# @package _global_\nrounds: 5\nscales:\n  laptop: {rounds: 2}\n"
    put(tmp_path / "mine/experiment/small.yaml", text)
    for scale, rounds in (("paper", 5), ("laptop", 2)):
        asked = ("experiment=small", f"scale={scale}", "--cfg", "job")
        shown = fedclust.done("run", "--config-dir", "mine", *asked)
        assert yaml.safe_load(shown.out)["rounds"] == rounds


USER_ALGORITHM = '''
"""FedAvg that keeps every other round for itself."""
from dataclasses import dataclass
from fedclust.algorithms.fedavg import FedAvg
from fedclust.core.types import Cost

@dataclass(frozen=True, kw_only=True)
class Lazy(FedAvg):
    every: int = 2
    def round(self, state, engine, rnd):
        return super().round(state, engine, rnd) if rnd.t % self.every == 0 else (state, Cost())
'''


def test_a_users_own_algorithm(fedclust: Cli, tmp_path: Path) -> None:
    put(tmp_path / "mine/lazy_averaging.py", USER_ALGORITHM)
    node = "_target_: lazy_averaging.Lazy\nsolver: ${solver}\nevery: 2\n"
    put(tmp_path / "mine/algorithm/lazy.yaml", node)
    fedclust.done("run", "--config-dir", "mine", *TINY, "algorithm=lazy", "hydra.run.dir=here")
    first, second, third, *_ = rounds_of(tmp_path, "accuracy")
    assert first == second != third


def test_folders_are_named_by_what_differs() -> None:
    assert job_folder([], "lcfl") == "lcfl"
    assert (
        job_folder(["algorithm=ifca", "experiment=a/b", "scale=laptop", "name=x"], "ifca") == "ifca"
    )
    assert job_folder(["rounds=60", "num_clusters=10"], "ifca") == "ifca,num_clusters=10,rounds=60"
    assert job_folder(["algorithm.warmup.rounds=3"], "lcfl") == "lcfl,algorithm.warmup.rounds=3"
    paths = ("a_b.npz", "a/b.npz", "a b.npz", "'a b.npz'", "a:b.npz", "a(b.npz", "a\udcffb.npz")
    names = [job_folder([f"dataset.path={path}"], "lcfl") for path in paths]
    assert names[0] == "lcfl,dataset.path=a_b.npz"
    assert len(set(names)) == len(names)
    assert not any("/" in name for name in names)
    assert job_folder(["partition.x=[1, 2]", "seeds=[0]"], "a") == "a,partition.x=_1,_2_,seeds=_0_"
    deep = "/data/" + "of_a_hospital/" * 8
    sites = [f"dataset.path={deep}a.csv", f"dataset.path={deep}b.csv", f"dataset.path=/{deep}a.csv"]
    assert [job_folder([site, "rounds=9"], "lcfl") for site in sites] == [
        "lcfl,dataset.path=a.csv-ba05,rounds=9",
        "lcfl,dataset.path=b.csv-b920,rounds=9",
        "lcfl,dataset.path=a.csv-9463,rounds=9",
    ]
    assert job_folder([f"weights={deep}a.pth"], "lcfl") == "lcfl,weights=a.pth-fc2d"
    long = [f"partition.option{i}=value{i}" for i in range(20)]
    assert len(job_folder(long, "lcfl")) < 140
    assert job_folder(long, "lcfl") != job_folder([*long[:-1], "partition.option19=other"], "lcfl")


def test_a_long_name_of_an_earlier_version_is_kept_where_it_is_there(tmp_path: Path) -> None:
    given = [f"dataset.path=/data/{'of_a_hospital/' * 8}a.csv", "rounds=9"]
    new = "lcfl,dataset.path=a.csv-ba05,rounds=9"
    assert job_folder(given, "lcfl", tmp_path) == new
    plain = "lcfl,dataset.path=_data_" + "of_a_hospital_" * 8 + "a.csv-ba05,rounds=9"
    earlier = f"{plain[:120]}-{sha256(plain.encode()).hexdigest()[:8]}"
    (tmp_path / earlier).mkdir()
    assert job_folder(given, "lcfl", tmp_path) == earlier
    assert job_folder([*given, "rounds=8"], "lcfl", tmp_path) == new.replace("=9", "=8")


@pytest.mark.full
def test_names_of_files_need_not_be_utf8(
    fedclust: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a data folder, and of the folder that results go to."""
    odd = tmp_path / os.fsdecode(b"f\xff")
    for split in ("train", "test"):
        for kind in (b"cat", b"d\xffg"):
            folder = odd / "images" / split / os.fsdecode(kind)
            folder.mkdir(parents=True)
            for i in range(6):
                with (folder / os.fsdecode(b"\xfe%d.png" % i)).open("wb") as file:
                    Image.new("L", (8, 8), 40 * i).save(file, "PNG")
    monkeypatch.chdir(odd)
    data = ("dataset=image_folder", "dataset.path=images", "partition=iid", "algorithm=fedavg")
    job = ("run", "progress=false", "partition.num_clients=2", "rounds=1", "model=linear", *data)
    fedclust.done(*job, "hydra.run.dir=job")
    assert len(pd.read_csv(odd / "job" / "rounds.csv")) > 0
    again = fedclust(*job, "hydra.run.dir=job")
    assert "is done already" in again.err
    fedclust.done("report", "job")
    assert (odd / "job" / "report" / "report.html").is_file()


@pytest.mark.parametrize("rank", [0, 1])
def test_one_of_several_ranks_lists(
    fedclust: Cli, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    given = {"WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2}
    for name, value in {**given, "MASTER_PORT": 1, "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, str(value))
    done = fedclust.done("list", "solver")
    assert ("sgd" in done.out) is (rank == 0)


@pytest.mark.full
def test_a_signal_while_a_round_is_saved_costs_no_further_round(
    fedclust: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunFolder.save

    def interrupted(self: RunFolder, t: int, *rest: Any) -> None:
        save(self, t, *rest)
        if t == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunFolder, "save", interrupted)
    done = fedclust("run", *TINY, "algorithm=fedavg", "checkpoint_seconds=0")
    assert done.status == 130, done.err
    (status,) = (tmp_path / "outputs" / "default").rglob("status.json")
    assert json.loads(status.read_text())["rounds_done"] == 2


@pytest.mark.full
def test_saving_takes_a_tenth_of_the_time_at_most(
    fedclust: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, saved = [0.0], []
    save, one_round = RunFolder.save, run._Seeds.round

    def slowly(self: RunFolder, t: int, *rest: Any) -> None:
        saved.append(t)
        now[0] += 5
        save(self, t, *rest)

    def timed(self: Any, t: int, *rest: Any) -> None:
        now[0] += 10
        one_round(self, t, *rest)

    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(RunFolder, "save", slowly)
    monkeypatch.setattr(run._Seeds, "round", timed)
    fedclust.done("run", *TINY, "algorithm=fedavg", "rounds=12", "checkpoint_seconds=1")
    assert saved == [0, 5, 10, 11]  # none for 50 seconds, and the end


@pytest.mark.parametrize(
    ("command", "goes_on"),
    [
        ("run", "; the same command continues the run"),
        ("tune", "; the same command continues the search"),
        ("report", ""),
    ],
)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_any_time_is_told(
    fedclust: Cli,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    goes_on: str,
    signum: signal.Signals,
) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def ended(_: Sequence[str]) -> None:
        os.kill(os.getpid(), signum)
        time.sleep(10)

    monkeypatch.setattr(f"fedclust.commands.{command}.command", ended)
    done = fedclust(command, "anything")
    assert done.status == 128 + signum
    assert done.err == f"fedclust: interrupted by {signum.name}{goes_on}\n"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("command", "what"), [("run", "run"), ("tune", "search")])
def test_a_round_saved_after_a_signal_says_what_goes_on(
    fedclust: Cli, monkeypatch: pytest.MonkeyPatch, command: str, what: str
) -> None:
    def ended(_: Sequence[str]) -> None:
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(f"fedclust.commands.{command}.command", ended)
    done = fedclust(command, "anything")
    said = f"fedclust: interrupted by SIGINT; the same command continues the {what}\n"
    assert (done.status, done.err) == (130, said)


@pytest.mark.full
def test_cyclic_garbage_is_searched_as_usual_in_rounds(
    fedclust: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, plain = gc.get_threshold(), run._Seeds.round
    seen: list[tuple[int, int, int]] = []

    def noting(*given: Any) -> None:
        seen.append(gc.get_threshold())
        plain(*given)

    monkeypatch.setattr(run._Seeds, "round", noting)
    fedclust.done("run", *TINY, "rounds=2")
    assert seen == [usual, usual]
    assert gc.get_threshold() == usual


@pytest.mark.sklearn_extra
def test_a_run_with_scikit_learn_extras_kmedoids(fedclust: Cli, tmp_path: Path) -> None:
    extra = "cluster_method=kmedoids_sklearn_extra"
    fedclust.done("run", *TINY, "solver.epochs=5", extra, "hydra.run.dir=here")
    assert rounds_of(tmp_path, "num_clusters")[0, 5] == 4.0


@pytest.mark.full
def test_without_a_progress_line_warnings_are_still_shown(fedclust: Cli, tmp_path: Path) -> None:
    rates = ("algorithm=local", "solver.lr=1e9", "seeds=2", "hydra.run.dir=here")
    done = fedclust("run", *TINY, *rates)
    assert done.status == 1
    warnings = [
        line
        for line in done.err.splitlines()
        if "warning: local on rotated digits, 2 seeds, 6 rounds: " in line
    ]
    assert len(warnings) == 2, done.err  # a line per seed lost


BROKEN = """
from dataclasses import dataclass
from fedclust.algorithms.fedavg import FedAvg

@dataclass(frozen=True, kw_only=True)
class Broken(FedAvg):
    how: str = "bug"

    def round(self, state, clients, rnd):
        if self.how == "memory":
            bytearray(1 << 60)
        return self.divided(rnd.t)

    def divided(self, t):
        return 1 / t
"""


@pytest.fixture
def mine(tmp_path: Path, root: Path) -> tuple[str, ...]:
    """Arguments for an algorithm of a user's that fails."""
    sys.modules.pop("broken_method", None)  # of another test's folder
    put(tmp_path / "mine/broken_method.py", BROKEN)
    text = (root / "conf" / "algorithm" / "fedavg.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("_target_")]
    for how in ("bug", "memory"):
        target = ["_target_: broken_method.Broken", f"how: {how}"]
        put(tmp_path / f"mine/algorithm/{how}.yaml", "\n".join([*lines, *target]))
    return ("run", "--config-dir", "mine", *TINY)


@pytest.mark.full
def test_an_error_in_a_users_method_begins_with_its_line(
    fedclust: Cli, mine: tuple[str, ...], tmp_path: Path
) -> None:
    done = fedclust(*mine, "algorithm=bug")
    assert done.status == 1
    told = done.err.splitlines()
    path = tmp_path / "mine" / "broken_method.py"
    assert told[0] == (f"fedclust: {path}:15, in divided: ZeroDivisionError: division by zero")
    assert sum("calls …" in line for line in told) == 1
    assert not any("runtime/run.py" in line for line in told)


@pytest.mark.full
def test_a_failing_method_leaves_the_others_of_a_sweep_alone(
    fedclust: Cli, mine: tuple[str, ...], tmp_path: Path
) -> None:
    done = fedclust(*mine, "-m", "algorithm=bug,memory,local")
    assert done.status == 2
    assert "in divided: ZeroDivisionError" in done.err
    assert "fedclust: out of memory while round 1 of 6 was computed; lower" in done.err
    table = (tmp_path / "outputs" / "default" / "report" / "table.md").read_text()
    assert "local" in table


@pytest.mark.full
def test_the_oracle_has_a_model_for_a_concept_that_comes_later(
    fedclust: Cli, tmp_path: Path
) -> None:
    drift = ("partition=label_map", "scenario=drift", "scenario.table=[[0,0,0],[0,1,2]]")
    sizes = ("partition.base.num_clients=3", "scenario.every=1", "model=linear", "rounds=2")
    fedclust.done("run", "algorithm=oracle", *drift, *sizes, "seeds=1", "threads=1", "name=o")
    assert rounds_of(tmp_path, "purity").tolist() == [1.0, 1.0]


@pytest.mark.full
def test_options_of_a_wrapper_are_not_asked_of_what_it_wraps(fedclust: Cli, tmp_path: Path) -> None:
    wrapped = ("algorithm=finetune", "algorithm@algorithm.base=fedprox", "algorithm.epochs=2")
    fedclust.done("run", *TINY, *wrapped, "rounds=1", "seeds=1")
    assert config_of(tmp_path)["algorithm"]["epochs"] == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("typed", "where"),
    [
        (["algorithm=fedprox"], ["algorithm", "solver"]),
        (["algorithm=fedsoft"], ["algorithm", "solver"]),
        (
            ["algorithm=finetune", "algorithm@algorithm.base=fedprox"],
            ["algorithm", "base", "solver"],
        ),
    ],
    ids=["fedprox", "fedsoft", "inside a wrapper"],
)
def test_a_methods_default_yields_to_what_is_typed(
    fedclust: Cli, tmp_path: Path, typed: list[str], where: list[str]
) -> None:
    fedclust.done("run", *TINY, *typed, "solver.proximal=0.3", "rounds=1", "seeds=1")
    node = config_of(tmp_path)
    for key in where:
        node = node[key]
    assert node["proximal"] == 0.3


@pytest.mark.full
def test_a_part_that_is_put_elsewhere_is_read_there(fedclust: Cli, tmp_path: Path) -> None:
    part = "cluster_metric@algorithm.cold_start.metric=madc"
    fedclust.done("run", *TINY, "algorithm=flexcfl", part, "rounds=1", "seeds=1")
    metric = config_of(tmp_path)["algorithm"]["cold_start"]["metric"]
    assert metric["_target_"].endswith("MADC")


@pytest.mark.full
def test_what_is_typed_without_effect_is_told(fedclust: Cli) -> None:
    done = fedclust.done(
        *("run", *TINY, "algorithm=fesem", "algorithm.cold_start.scale=5", "rounds=1", "seeds=1")
    )
    assert "algorithm.cold_start.scale=5 has no effect: it is read with" in " ".join(
        (done.out + done.err).split()
    )


@pytest.mark.full
def test_keys_that_the_method_or_the_scenario_leaves_unused_are_told(
    fedclust: Cli,
) -> None:
    typed = ("algorithm=local", "participation=0.5", "common.release_every=2")
    done = fedclust.done("run", *TINY, *typed, "rounds=1", "seeds=1")
    told = " ".join((done.out + done.err).split())
    assert "participation=0.5 has no effect: participants=all trains every" in told
    assert "common.release_every has no effect: it is read by scenario=incremental" in told


@pytest.mark.full
def test_an_experiment_of_ones_own_has_scales_too(fedclust: Cli, tmp_path: Path) -> None:
    sweep = "hydra: {mode: MULTIRUN, sweeper: {params: {algorithm: fedavg}}}"
    scales = "scales:\n  laptop: # one round\n    costs: {hours: 1, gigabytes: 1}\n    rounds: 1"
    text = f"# @package _global_\n# x\nname: mine${{scale.folder}}\n{sweep}\n{scales}\n"
    put(tmp_path / "own/experiment/mine.yaml", text)
    own = f"--config-dir={tmp_path / 'own'}"
    tiny = [one for one in TINY if not one.startswith("rounds")]
    fedclust.done("run", own, "experiment=mine", "scale=laptop", *tiny, "seeds=1")
    config = config_of(tmp_path / "outputs" / "mine-laptop")
    assert config["rounds"] == 1
    assert "scales" not in config
    fedclust.refused(
        "run",
        own,
        "experiment=mine",
        "scale=smoke",
        *tiny,
        says="mine has the scales paper, laptop",
    )


@pytest.mark.full
def test_a_sweep_over_methods_with_an_option_of_theirs_runs_all(
    fedclust: Cli, tmp_path: Path
) -> None:
    typed = ("algorithm=ifca,cfl_mgd", "algorithm.restart_fraction=0.1", "report=null")
    fedclust.done("run", "-m", *TINY, "rounds=1", *typed)
    made = {file.parent.name.partition(",")[0] for file in tmp_path.rglob("rounds.csv")}
    assert made == {"ifca", "cfl_mgd"}
    (kept,) = tmp_path.rglob("multirun.yaml")
    assert yaml.safe_load(kept.read_text())["hydra"]["overrides"]["task"][-3:] == list(typed)

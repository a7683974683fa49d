"""fedclust from Python: what it returns, what it raises, and what it leaves as it was."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn  # noqa: F401 - sets variables of the environment where it is imported
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from refusals import refused

import fedclust
from fedclust.config.tree import CONF
from fedclust.helpers.errors import (
    ConfigError,
    DivergedError,
    Interrupted,
    RunFolderError,
    SweepError,
    UserError,
)
from fedclust.launch.typed import as_typed

TINY: dict[str, Any] = {"partition.num_clients": 8, "solver.epochs": 1, "rounds": 2}
TINY["progress"] = False


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_figures: None) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.full
def test_a_run_is_read_from_its_files(tmp_path: Path) -> None:
    result = fedclust.run(TINY, "algorithm=fedavg", seeds=[0, 3], rounds=3, eval_every=3)
    assert result.folder.parent == tmp_path / "outputs" / "default"
    assert result.arms == ["fedavg"]
    rounds = result.rounds
    assert rounds[["arm", "seed", "round"]].values.tolist() == [
        ["fedavg", seed, t] for seed in (0, 3) for t in range(3)
    ]
    written = pd.read_csv(result.folder / "rounds.csv").pivot(
        index=["seed", "round"], columns="metric", values="value"
    )
    found = rounds.set_index(["seed", "round"])[list(written.columns)]
    np.testing.assert_array_equal(found, written.sort_index())
    assert rounds["accuracy"].isna().tolist() == [True, True, False] * 2
    assert len(result.clients) == 2 * 8
    last = result.clients.groupby("seed")[["correct", "test_count"]].sum()
    accuracy = (last["correct"] / last["test_count"]).tolist()
    assert rounds["accuracy"].dropna().tolist() == pytest.approx(accuracy)
    summary = result.summary.loc[("fedavg", "accuracy")]
    assert summary.tolist() == pytest.approx(
        [np.mean(accuracy), np.std(accuracy), np.mean(accuracy), np.std(accuracy), 2]
    )
    assert np.isnan(result.summary.loc[("fedavg", "num_clusters"), "best"])
    assert result.config["seeds"] == [0, 3]
    assert result.config["choices"]["algorithm"] == "fedavg"


@pytest.mark.full
def test_a_job_goes_on_by_the_engine_that_began_it() -> None:
    small = {**TINY, "algorithm": "fedavg", "seeds": [0], "rounds": 1}
    folder = fedclust.run(small, engine="loop").folder
    shutil.rmtree(folder / "checkpoints")
    (folder / "status.json").unlink()
    assert fedclust.run(small).folder == folder
    versions = json.loads((folder / "versions.json").read_text())
    assert (versions["engine"], "before" in versions) == ("loop", False)


@pytest.mark.full
def test_the_same_call_reads_what_is_done_and_load_the_same() -> None:
    first = fedclust.run(TINY, algorithm="local")
    before = (first.folder / "status.json").stat().st_mtime_ns
    again = fedclust.run(TINY, algorithm="local")
    assert (again.folder / "status.json").stat().st_mtime_ns == before
    pd.testing.assert_frame_equal(first.rounds, again.rounds)
    pd.testing.assert_frame_equal(first.rounds, fedclust.load(first.folder).rounds)


@pytest.mark.full
def test_a_sweep_has_an_arm_per_job_and_shows_itself(tmp_path: Path) -> None:
    result = fedclust.sweep(TINY, {"algorithm": ["fedavg", "local"]}, seeds=[[0], [1]], name="mine")
    assert len(list((tmp_path / "outputs" / "mine").glob("*/rounds.csv"))) == 4
    assert result.arms == ["fedavg", "local"]  # seeds alone make no arm
    seeds = result.rounds.groupby("arm")["seed"].unique().map(list).to_dict()
    assert seeds == {"fedavg": [0, 1], "local": [0, 1]}
    assert "algorithm" not in result.config["choices"]
    assert result.config["rounds"] == 2
    assert result.configs["local"]["choices"]["algorithm"] == "local"
    mean = 100 * result.summary.loc[("local", "accuracy"), "last"]
    assert f"| local | {mean:.2f} ±" in str(result.table()).replace("**", "")
    assert f"{mean:.2f} ±" in result._repr_html_()
    assert "<table" in result.table("cost")._repr_html_()
    figure = result.figure("accuracy")
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert set(lines) == {"fedavg", "local"}
    assert float(lines["local"].get_ydata()[-1]) == pytest.approx(mean)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert figure.axes[0].get_xlabel() == "round"
    assert "sent so far" in result.figure("accuracy", "bytes").axes[0].get_xlabel()
    with pytest.raises(ConfigError, match="table=nope is not allowed: one of table, "):
        result.table("nope")
    with pytest.raises(ConfigError, match="metric=nope is not allowed"):
        result.figure("nope")
    with pytest.raises(ConfigError, match="metric=moved is not allowed: no job here"):
        result.figure("moved")


def test_a_sweep_over_no_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rounds=\[\] is not allowed: at least one value"):
        fedclust.sweep(rounds=[])


@pytest.mark.full
@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"rouns": 3}, ConfigError, "did you mean rounds?"),
        ({"rounds": 0}, ConfigError, "rounds=0 is not allowed"),
        ({"algorithm": "nope"}, ConfigError, "algorithm/nope"),
        ({"algorithm": ["lcfl"]}, ConfigError, "algorithm=.*is not allowed: a choice that"),
        ({"data": object()}, ConfigError, "data=<object .* is not allowed: text, a number"),
        ({"config_dir": "nowhere"}, ConfigError, "--config-dir=.*nowhere is not allowed"),
        ({"num_clusters": 99}, ConfigError, "num_clusters=99"),
        ({"algorithm": "fedavg", "solver.lr": 1e9}, DivergedError, "every seed has failed"),
    ],
)
def test_what_the_command_line_says_in_one_line_is_an_exception(
    given: dict[str, Any], kind: type[Exception], said: str, tmp_path: Path
) -> None:
    own = {"config_dir": given.pop("config_dir")} if "config_dir" in given else {}
    with refused(kind, said):
        fedclust.run(TINY, given, **own)
    if kind is ConfigError:
        assert not list(tmp_path.rglob("*"))


def test_what_is_no_override_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 is not allowed: 'KEY=VALUE' or a mapping"):
        fedclust.run(3)  # type: ignore[arg-type]


def test_a_folder_without_a_job_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds no job with results"):
        fedclust.load(tmp_path)


@pytest.mark.full
def test_a_folder_of_several_experiments_names_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        fedclust.run(TINY, algorithm="local", name=name)
    with pytest.raises(RunFolderError, match=r"several experiments; load one of .*outputs/one, "):
        fedclust.load("outputs")
    assert fedclust.load("outputs/two").arms == ["local"]


@pytest.mark.full
def test_jobs_of_a_sweep_that_cannot_run_are_told_at_its_end(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"rounds=0 is not allowed.*fedclust\.load\(") as caught:
        fedclust.sweep(TINY, algorithm="local", rounds=[0, 1], name="mixed")
    assert caught.value.exit_status == 2
    assert len(caught.value.reasons) == 1
    assert fedclust.load(caught.value.folder).rounds["round"].tolist() == [0]


def own_method(folder: Path, body: str) -> None:
    (folder / "algorithm").mkdir(parents=True, exist_ok=True)
    node = "_target_: mine_method.Mine\nsolver: ${solver}\n"
    (folder / "algorithm" / "mine.yaml").write_text(node)
    (folder / "mine_method.py").write_text(
        "from dataclasses import dataclass\n"
        "from fedclust.algorithms.fedavg import FedAvg\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(FedAvg):\n"
        f"    def round(self, state, clients, rnd):\n        {body}\n"
    )


@pytest.mark.full
def test_an_error_of_ones_own_method_is_raised_as_it_is(tmp_path: Path) -> None:
    path = list(sys.path)
    own_method(tmp_path / "mine", "return {}['missing']")
    with pytest.raises(KeyError, match="missing"):
        fedclust.run(TINY, algorithm="mine", config_dir="mine")
    # a file that was edited is read again
    own_method(tmp_path / "mine", "return super().round(state, clients, rnd)  # the step")
    result = fedclust.run(TINY, algorithm="mine", config_dir="mine", name="again")
    plain = fedclust.run(TINY, algorithm="fedavg", name="plain")
    assert result.rounds["accuracy"].tolist() == plain.rounds["accuracy"].tolist()
    assert sys.path == path
    assert "mine_method" not in sys.modules


@pytest.mark.full
def test_ctrl_c_is_an_exception_and_the_same_call_goes_on(tmp_path: Path) -> None:
    own_method(
        tmp_path / "mine",
        "import os, signal\n"
        "        if rnd.t == 1 and not os.path.exists('once'):\n"
        "            open('once', 'w').close()\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "        return super().round(state, clients, rnd)",
    )
    with pytest.raises(Interrupted):
        fedclust.run(TINY, algorithm="mine", config_dir="mine", rounds=4)
    assert fedclust.load("outputs/default").rounds["round"].tolist() == [0, 1]
    whole = fedclust.run(TINY, algorithm="mine", config_dir="mine", rounds=4)
    assert whole.rounds["round"].tolist() == [0, 1, 2, 3]


def kept() -> list[Any]:
    root = logging.getLogger()
    return [
        {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)},
        (root.level, list(root.handlers)),
        random.getstate(),
        repr(np.random.get_state()),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        dict(os.environ),
        list(sys.argv),
        list(sys.path),
        Path.cwd(),
        HydraConfig.instance().cfg,
    ]


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["lcfl", "flexcfl"])
def test_the_process_is_left_as_it_was(algorithm: str) -> None:
    torch.set_num_threads(2)
    before = kept()
    fedclust.run(TINY, "hydra.verbose=true", algorithm=algorithm, threads=1)
    assert kept() == before
    with pytest.raises(UserError):
        fedclust.run(TINY, threads=0)
    assert kept() == before
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.full
def test_it_runs_inside_a_hydra_application_of_somebody_else() -> None:
    with initialize_config_dir(str(CONF), version_base="1.2"):
        theirs = GlobalHydra.instance().hydra
        result = fedclust.run(TINY, algorithm="local")
        assert GlobalHydra.instance().hydra is theirs
        assert compose("config", overrides=["rounds=7"]).rounds == 7
    assert len(result.rounds) == 2


@pytest.mark.full
def test_it_runs_in_a_thread_and_in_a_running_event_loop() -> None:
    found: dict[str, pd.DataFrame] = {}

    def work(name: str) -> None:
        found[name] = fedclust.run(TINY, algorithm="local", name=name).rounds

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def cell() -> None:
        work("loop")

    asyncio.run(cell())
    expected = found["loop"].drop(columns="seconds")
    assert len(expected) == 2
    for name in ("a", "b"):
        pd.testing.assert_frame_equal(found[name].drop(columns="seconds"), expected)


@pytest.mark.parametrize("given", [3, None, ["outputs"]])
def test_what_is_no_path_is_told(given: Any) -> None:
    with pytest.raises(ConfigError, match=r'is not allowed: a path, as in "outputs/quickstart"$'):
        fedclust.load(given)


@pytest.mark.parametrize(
    ("given", "one"),
    [
        ("rounds=1,2", "; rounds=[1,2] is one list, and 'rounds=\"1,2\"' one text"),
        ("rounds=range(1,3)", ""),
    ],
)
def test_several_values_are_for_a_sweep(given: str, one: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fedclust.run(given)
    told = f"{given} is not allowed: fedclust.sweep runs a job for every value{one}"
    assert str(caught.value) == told


def test_torchrun_starts_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    for name in ("WORLD_SIZE", *names):
        monkeypatch.setenv(name, "2")
    with pytest.raises(ConfigError, match="not allowed under torchrun"):
        fedclust.run(TINY)


@pytest.mark.parametrize(
    ("value", "typed"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (np.int64(3), "3"),
        (0.1, "0.1"),
        (np.float64(1e-7), "1e-07"),
        ("mnist", "mnist"),
        ("lcfl/table2", "lcfl/table2"),
        ("", "''"),
        ("1e5", "'1e5'"),
        ("null", "'null'"),
        ("a,b", "'a,b'"),
        ("it's", r"'it\'s'"),
        ("back\\", r"'back\\'"),
        ("[0]", "'[0]'"),
        (Path("a b/c.npz"), "a b/c.npz"),
        ([0, 5], "[0, 5]"),
        (range(2), "[0, 1]"),
        ({"metric": "purity", "order": ["a", 1]}, "{metric: purity, order: [a, 1]}"),
    ],
)
def test_a_value_is_written_as_somebody_would_type_it(value: object, typed: str) -> None:
    (override,) = as_typed([], {"key": value}, many=False)
    assert override == f"key={typed}"
    read = OverridesParser.create().parse_override(override).value()
    wanted = list(value) if isinstance(value, range) else value
    assert (str(read) if isinstance(value, Path) else read) == (
        str(value) if isinstance(value, Path) else wanted
    )


def test_a_list_is_what_a_sweep_tries() -> None:
    given = {"algorithm": ["lcfl", "a,b"], "seeds": [[0, 1], [2]], "rounds": 3}
    typed = ["-x", "algorithm=lcfl,'a,b'", "seeds=[0, 1],[2]", "rounds=3"]
    assert as_typed(["-x"], given, many=True) == typed


@pytest.mark.slow
def test_workers_that_a_launcher_keeps_belong_to_the_newest_sweep(tmp_path: Path) -> None:
    launcher = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "threads=1")
    for name in ("first", "second"):
        own_method(tmp_path / name, "return super().round(state, clients, rnd)")
        result = fedclust.sweep(
            TINY, *launcher, algorithm=["mine", "local"], config_dir=name, name=name
        )
        assert result.arms == ["mine", "local"]
        with pytest.raises(SweepError, match="rounds=0 is not allowed") as caught:
            fedclust.sweep(TINY, *launcher, algorithm="local", rounds=[0, 1], name=f"{name}_mixed")
        assert len(caught.value.reasons) == 1


@pytest.mark.full
@pytest.mark.parametrize("code", ["0", "", "3", "'words'"])
def test_a_users_exit_is_a_mistake_of_the_method(tmp_path: Path, code: str) -> None:
    own_method(tmp_path / "own", f"__import__('sys').exit({code})")
    with pytest.raises(RuntimeError, match=r"sys\.exit\(.*\) was called"):
        fedclust.run(TINY, algorithm="mine", config_dir="own")


@pytest.mark.full
def test_a_device_that_there_is_nowhere_is_refused_of_a_finished_job_too() -> None:
    fedclust.run(TINY, "algorithm=fedavg", name="here")
    fedclust.run(TINY, "algorithm=fedavg", "device=cuda", name="here")  # done on any machine
    with pytest.raises(ConfigError, match="device=tpu is not allowed: auto, cpu, cuda or cuda:N"):
        fedclust.run(TINY, "algorithm=fedavg", "device=tpu", name="here")


def test_windows_is_told_in_one_line_before_anything_is_imported() -> None:
    program = "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = None; import fedclust"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "fedclust: runs on Linux and macOS; on Windows use WSL2\n"

"""`fedclust tune` from its command to the runs with what it found."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from cli.conftest import Cli, put
from omegaconf import DictConfig, OmegaConf

from fedclust.__main__ import main
from fedclust.commands.tune import _draws_tests
from fedclust.core.calls import SumCall, Sums
from fedclust.core.types import Dataset, Evaluation
from fedclust.datasets.digits import Digits
from fedclust.engines.clients import SeedClients
from fedclust.engines.fused import FusedEngine
from fedclust.helpers.errors import ConfigError
from fedclust.launch import checks
from fedclust.launch.compose import Command, compose
from fedclust.launch.guard import hydra_of_its_own
from fedclust.launch.typed import Typed
from fedclust.metrics import METRICS
from fedclust.tuning.trial_progress import TrialProgress

TINY = (
    *("partition=iid", "partition.num_clients=4", "model=linear", "rounds=3", "progress=false"),
    *("solver.epochs=1", "solver.batch_size=null", "threads=1", "device=cpu", "engine=loop"),
)
SEARCH = ("tune", "algorithm=fedprox", *TINY, "tuning_seeds=[7,8]", "trials=4", "name=t")
FOLDER = Path("outputs/t-tuning")


def flipped(self: Digits) -> Dataset:
    """Digits with other test labels."""
    read = plain(self)
    return replace(read, y_test=read.y_test.flip(0))


plain = Digits.load


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a search was made in one go, of test labels that are wrong."""
    where, before = tmp_path_factory.mktemp("found"), Path.cwd()
    os.chdir(where)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "load", flipped)
        main(SEARCH)
    os.chdir(before)
    return where


@pytest.fixture
def searched(found: Path, tmp_path: Path) -> Path:
    """A copy of it in the current folder of a test."""
    shutil.copytree(found / "outputs", tmp_path / "outputs")
    return tmp_path


def trials_of(where: Path) -> Path:
    (file,) = (where / FOLDER).rglob("trials.csv")
    return file


@pytest.mark.full
def test_a_search_leaves_its_trials_and_the_best(found: Path) -> None:
    file = trials_of(found)
    trials = pd.read_csv(file)
    assert list(trials["trial"]) == list(range(len(trials)))
    assert trials.loc[0, ["solver.lr", "algorithm.solver.proximal"]].tolist() == [0.1, 1.0]
    assert trials["rounds"].sum() <= 4 * 3
    assert len(trials) >= 4
    best = yaml.safe_load((file.parent / "best.yaml").read_text())
    complete = trials[trials["state"] == "complete"]
    assert best["trial"] == complete["value"].idxmax()
    assert best["values"]["solver.lr"] == complete.loc[best["trial"], "solver.lr"]
    assert best["seeds"] == [7, 8]
    assert (best["validation"], best["metric"]) == (0.2, "validation_accuracy")
    job = file.parent / "trials" / "000"
    rounds = pd.read_csv(job / "rounds.csv")
    last = rounds[(rounds["metric"] == "validation_accuracy") & (rounds["round"] == 2)]["value"]
    assert trials.loc[0, "value"] == pytest.approx(last.mean(), rel=1e-15)
    assert not (job / "checkpoints").exists()


@pytest.mark.full
def test_trials_see_no_test_example_and_are_those_of_a_run_that_does(
    fedclust: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_all = ("partition=label_map", "partition.base.num_clients=3", "num_clusters=3")
    drift = ("scenario=drift", "scenario.table=[[0,0,0],[0,1,2]]", "scenario.every=1")
    changing = (*of_all, *drift, *TINY[2:])
    seen = list[int]()

    def evaluate(self: SeedClients, *given: Any, **more: Any) -> Evaluation:
        seen.append(int(self.rnd.fed.test.count.sum()))
        return tested(self, *given, **more)

    tested = SeedClients.evaluate
    with monkeypatch.context() as patch:
        patch.setattr(SeedClients, "evaluate", evaluate)
        search = ("tune", *changing, "tuning_seeds=[7]", "trials=1", "name=t", "algorithm=ifca")
        fedclust.done(*search)
    both = len(Digits().load().y_test), round(0.2 * len(Digits().load().y_train))
    assert len(seen) == 3
    assert {abs(one - both[1]) <= 4 for one in seen} == {True}
    assert abs(both[0] - both[1]) > 4
    (file,) = (tmp_path / FOLDER).rglob("trials/000/rounds.csv")
    again = ("run", *changing, "seeds=[7]", "validation=0.2", "name=r", "algorithm=ifca")
    fedclust.done(*again)
    (other,) = (tmp_path / "outputs/r").rglob("rounds.csv")
    mine, run = (pd.read_csv(one).set_index(["round", "metric"])["value"] for one in (file, other))
    kept = [key for key in mine.index if key[1] != "seconds"]
    assert mine[kept].equals(run[kept])
    only = {metric for _, metric in run.index} - {metric for _, metric in mine.index}
    assert {"accuracy", "accuracy_worst"} & only
    assert any("change" in metric for metric in only)


class Killed(TrialProgress):
    """Sends the signal to end in the middle of the third trial."""

    def round(self, t: int, values: Mapping[str, float]) -> None:
        if self._proposal.number == 2 and t == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        super().round(t, values)


@pytest.mark.slow
@pytest.mark.figures
def test_after_a_kill_and_with_other_test_labels_the_trials_are_the_same(
    fedclust: Cli, found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("fedclust.tuning.batches.TrialProgress", Killed)
        done = fedclust(*SEARCH)
    assert done.status == 143
    assert (
        "finishing round 3 in about 1 s, no checkpoint yet" in done.err
    )  # at once, progress or not
    assert not list(tmp_path.rglob("trials.csv"))  # of whole batches only
    begun = [json.loads(file.read_text()) for file in tmp_path.rglob("status.json")]
    assert sorted(one["rounds_done"] for one in begun) == [2, 2, 3, 3]
    fedclust.done(*SEARCH)
    assert trials_of(tmp_path).read_bytes() == trials_of(found).read_bytes()
    report = tmp_path / FOLDER / "report"
    assert (report / "report.html").is_file()
    record = pd.read_csv(report / "tuning.csv").iloc[0]
    trials = pd.read_csv(trials_of(tmp_path))
    assert record["default"] == trials.loc[0, "value"]
    assert record["tuned"] == trials["value"].max()
    assert record["rounds"] == trials["rounds"].sum()
    shown = (report / "tuning.md").read_text()
    assert f"{100 * record['default']:.2f} | {100 * record['tuned']:.2f}" in shown
    assert (report / "figures" / "tuning.png").stat().st_size > 5000


def numbers_of(where: Path) -> dict[str, pd.Series[float]]:
    """All numbers of every trial but how long they took."""
    found = {}
    for file in sorted((where / FOLDER).rglob("rounds.csv")):
        rounds = pd.read_csv(file)
        rounds = rounds[rounds["metric"] != "seconds"]
        found[file.parent.name] = rounds.set_index(["seed", "round", "metric"])["value"]
    return found


@pytest.fixture
def one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where memory does not hold all trials of a batch."""
    monkeypatch.setattr("fedclust.tuning.batches._fit", lambda begun: len(begun) < 2)


@pytest.mark.slow
@pytest.mark.usefixtures("one_after_another")
def test_trials_together_are_those_of_each_alone_to_the_bit(
    fedclust: Cli, found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Digits, "load", flipped)
    fedclust.done(*SEARCH)
    assert trials_of(tmp_path).read_bytes() == trials_of(found).read_bytes()
    alone, together = numbers_of(tmp_path), numbers_of(found)
    assert list(alone) == list(together)
    for name, values in alone.items():
        pd.testing.assert_series_equal(values, together[name], check_exact=True)


@pytest.mark.slow
def test_a_batch_is_one_computation_for_every_engine(
    fedclust: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    plain = FusedEngine.sums

    def counted(self: FusedEngine, call: SumCall) -> Sums:
        rows.append(len(call.shards))
        return plain(self, call)

    monkeypatch.setitem(FusedEngine.answers, SumCall, counted)
    many = [one for one in SEARCH if one != "trials=4"]
    fast = (*many, "engine=fused", "algorithm=fedavg", "trials=10", "eval_every=3")
    fedclust.done(*fast)
    batches = [8 * 2 * 4] * 3 + [2 * 2 * 4] * 3  # trials, seeds and clients in three rounds each
    assert rows == batches
    together = numbers_of(tmp_path)
    shutil.rmtree(tmp_path / FOLDER)
    with monkeypatch.context() as patch:
        patch.setattr("fedclust.tuning.batches._fit", lambda begun: len(begun) < 2)
        fedclust.done(*fast)
    for name, values in numbers_of(tmp_path).items():
        pd.testing.assert_series_equal(values, together[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_after_a_kill_between_batches_the_trials_are_the_same(
    fedclust: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = (*(one for one in SEARCH if one != "trials=4"), "trials=11", "rounds=2")
    fedclust.done(*many)
    whole, numbers = trials_of(tmp_path).read_bytes(), numbers_of(tmp_path)
    shutil.rmtree(tmp_path / FOLDER)

    class Later(TrialProgress):
        """Sends the signal to end when the second batch begins."""

        def start(self, folder: Path, first: int, rounds: int) -> None:
            if self._proposal.number == 8 and first == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            super().start(folder, first, rounds)

    with monkeypatch.context() as patch:
        patch.setattr("fedclust.tuning.batches.TrialProgress", Later)
        assert fedclust(*many).status == 143
    assert len(pd.read_csv(trials_of(tmp_path))) == 8
    again = fedclust.done(*many)
    assert "trial 8," not in again.err
    assert trials_of(tmp_path).read_bytes() == whole
    for name, values in numbers_of(tmp_path).items():
        pd.testing.assert_series_equal(values, numbers[name], check_exact=True)


@pytest.mark.slow
def test_default_and_tuned_stand_side_by_side(fedclust: Cli, searched: Path) -> None:
    best = yaml.safe_load(next(searched.rglob("best.yaml")).read_text())
    both = f"tuned=null,{FOLDER}"
    done = fedclust.done("run", "-m", "algorithm=fedprox", *TINY, both, "seeds=2", "name=final")
    table = pd.read_csv(searched / "outputs/final/report/table.csv")
    assert set(table["arm"]) == {"fedprox default", "fedprox tuned"}
    configs = (searched / "outputs/final").rglob("config.yaml")
    (config,) = [c for f in configs if (c := yaml.safe_load(f.read_text()))["tuned"]]
    assert config["solver"]["lr"] == best["values"]["solver.lr"]
    assert config["algorithm"]["solver"]["lr"] == best["values"]["solver.lr"]
    assert config["algorithm"]["solver"]["proximal"] == best["values"]["algorithm.solver.proximal"]
    assert config["validation"] == 0
    assert config["search"]["values"] == best["values"]
    assert config["search"]["seeds"] == best["seeds"]
    assert "settings" not in config["search"]
    assert "were searched" not in done.out + done.err


@pytest.mark.full
def test_a_job_says_that_its_values_were_searched_elsewhere(fedclust: Cli, searched: Path) -> None:
    other = ("rounds=2", "partition.num_clients=5")
    done = fedclust.done("run", "algorithm=fedprox", *TINY, *other, f"tuned={FOLDER}", "seeds=1")
    said = "were searched with rounds=3 (here 2), partition.num_clients=4 (here 5): others may"
    assert said in " ".join((done.out + done.err).split())


@pytest.mark.full
def test_a_sweep_is_refused_where_a_part_has_no_search_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A method that one federation has no groups for, say, is told when its job comes."""
    tried = []

    def applied(config: DictConfig, choices: Mapping[str, Any], overrides: Sequence[str]) -> None:
        tried.append(choices["algorithm"] + choices["scenario"])
        if choices["algorithm"] == "ifca" or tried[-1] == "fedavgdrift":
            raise ConfigError(f"no search for {tried[-1]}")

    monkeypatch.setattr(checks, "apply_tuned", applied)
    given = ["algorithm=fedavg,fedprox", "scenario=static,drift", "solver.lr=interval(1,2)"]
    with hydra_of_its_own(Typed(())):

        def check(*overrides: str) -> None:
            checks.check_tuned(Command(Typed(overrides, many=True), compose([])))

        check("tuned=x", *given)
        assert tried == ["fedavgstatic", "fedavgdrift", "fedproxstatic", "fedproxdrift"]
        with pytest.raises(ConfigError, match="no search for ifcastatic"):
            check("tuned=x", *given[1:], "algorithm=fedavg,ifca")


@pytest.mark.full
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("run", "algorithm=fedavg"), "it holds 0"),
        (("run", "-m", "algorithm=fedprox,fedavg"), "one best.yaml for algorithm=fedavg"),
        (("run", "algorithm=fedprox", "seeds=[7]"), "was not chosen by; it was by 7"),
        (("run", "algorithm=fedprox", "solver.lr=1"), "sets it too; give one of both"),
        (("tune", "algorithm=fedprox", "trials=2"), "null while tuning"),
    ],
)
def test_values_for_something_else_are_refused(
    fedclust: Cli, searched: Path, given: tuple[str, ...], said: str
) -> None:
    fedclust.refused(*given, *TINY, f"tuned={FOLDER}", "name=other", says=said)
    assert not (searched / "outputs/other").exists()


@pytest.mark.full
def test_a_share_that_leaves_a_client_empty_is_one_line(fedclust: Cli, tmp_path: Path) -> None:
    lone = ("partition=iid", "partition.num_clients=1000", "model=linear", "device=cpu")
    done = fedclust("tune", "algorithm=fedavg", *lone, "validation=0.99", "trials=1")
    assert (done.status, done.err.count("\n")) == (2, 2), done.err
    assert done.err.startswith("fedavg: 1 trial × 3 seeds × 20 rounds, over solver.lr\n")
    assert "has 1 training example, and needs one to train on and one to validate" in done.err
    assert not list(tmp_path.rglob("trials.csv"))


@pytest.mark.full
def test_a_space_of_one_s_own_with_an_unknown_key_is_one_line(
    fedclust: Cli, tmp_path: Path
) -> None:
    put(tmp_path / "own/space/fedavg.yaml", "solver.rate: 1, 2\n")
    fedclust.refused(
        "tune",
        "algorithm=fedavg",
        "--config-dir",
        "own",
        says="solver.rate=1,2 is not allowed: the config of algorithm=fedavg",
    )


@pytest.mark.full
def test_another_search_in_the_same_folder_is_refused(fedclust: Cli, searched: Path) -> None:
    before = trials_of(searched).read_bytes()
    done = fedclust(*(one.replace("[7,8]", "[8,9]") for one in SEARCH))
    assert done.status == 2
    assert "is of another search: with seeds [7, 8], and now with [8, 9]" in done.err
    assert trials_of(searched).read_bytes() == before


@pytest.mark.slow
def test_a_setting_that_diverges_or_is_refused_counts_as_failed(
    fedclust: Cli, tmp_path: Path
) -> None:
    given = ("algorithm=pfedme", "algorithm.local_lr=0.005,0.9", "algorithm.solver.proximal=15")
    tiny = [one for one in TINY if not one.startswith("solver.epochs")]  # of which it has its own
    fedclust.done("tune", *given, "solver.lr=0.1", *tiny, "tuning_seeds=[7]", "trials=2", "name=t")
    trials = pd.read_csv(trials_of(tmp_path))
    failed = trials[trials["algorithm.local_lr"] == 0.9]
    assert set(failed["state"]) <= {"failed"}
    assert set(trials.loc[trials["algorithm.local_lr"] == 0.005, "state"]) == {"complete"}


@pytest.mark.slow
def test_several_methods_are_a_search_each(fedclust: Cli, tmp_path: Path) -> None:
    several = ("algorithm=fedavg,oracle,local", *TINY, "rounds=1", "tuning_seeds=[7]")
    done = fedclust("tune", *several, "trials=1", "name=t")
    assert done.status == 2  # without true groups; the others are made
    assert "algorithm=oracle is not allowed: a partition with true groups" in done.err
    found = {
        yaml.safe_load(f.read_text())["choices"]["algorithm"] for f in tmp_path.rglob("best.yaml")
    }
    assert found == {"fedavg", "local"}
    table = pd.read_csv(tmp_path / FOLDER / "report" / "tuning.csv")
    assert table["search"].tolist() == ["fedavg", "local"]
    assert (table["default"] == table["tuned"]).all()


@pytest.mark.parametrize(
    ("dataset", "drawn"),
    [
        ({"test_share": 0.2, "data_seed": None, "split": None}, True),
        ({"test_share": 0.2, "data_seed": 0, "split": None}, False),
        ({"test_share": 0.2, "data_seed": None, "split": "part"}, False),
        ({"test_share": 0.2, "data_seed": None, "test": "test"}, False),
        ({"test_share": 0, "data_seed": None, "test": None}, True),
        ({"test_share": 0, "data_seed": 1, "test": None}, False),
    ],
)
def test_test_rows_are_drawn_where_the_data_do_not_name_them(
    dataset: dict[str, Any], drawn: bool
) -> None:
    assert _draws_tests(OmegaConf.create({"dataset": dataset})) == drawn


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "told"), [("null", 1), ("0", 0)])
def test_a_search_tells_that_seeds_draw_test_rows_of_their_own(
    fedclust: Cli, tmp_path: Path, seed: str, told: int
) -> None:
    rows = "".join(f"{row},{row % 7},{row % 2}\n" for row in range(80))
    (tmp_path / "own.csv").write_text("a,b,label\n" + rows)
    table = ("dataset=csv", f"dataset.path={tmp_path / 'own.csv'}", f"dataset.data_seed={seed}")
    done = fedclust.done(*SEARCH, *table, "trials=2", "rounds=1")
    assert done.err.count("every seed draws test rows of its own") == told


@pytest.mark.full
def test_trials_are_compared_by_a_score(fedclust: Cli, tmp_path: Path) -> None:
    """The Brier score, of which less is better; the report of another process knows what it is."""
    fedclust.done("tune", "algorithm=fedavg", *TINY, "objective=brier", "trials=2")
    (file,) = tmp_path.rglob("trials.csv")
    rows = pd.read_csv(file)
    (best,) = (yaml.safe_load(one.read_text()) for one in tmp_path.rglob("best.yaml"))
    assert best["metric"] == "validation_brier"
    assert best["value"] == rows["value"].min() < rows["value"].max()
    for name in [name for name in METRICS if "brier" in name]:
        del METRICS[name]
    fedclust.done("report", str(file.parent.parent))
    refused = fedclust("tune", "algorithm=fedavg", *TINY, "objective=mae", "name=other")
    assert "objective=mae is not allowed: a score of classes" in refused.err

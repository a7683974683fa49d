"""The list of experiments, what counts as the same computation, and taking finished jobs over.

Where a job would run, a stand-in for the process writes what `fedclust run` leaves behind.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf
from refusals import refused

from fedclust.config.tree import CONF
from fedclust.helpers.errors import ConfigError, UserError
from scripts.papers import campaign
from scripts.papers.campaign import Campaign, Entry, finished, finished_hash, read_list, take_over

plan = cache(campaign.plan)  # composing takes Hydra a third of a second a job
LIST = Path(campaign.__file__).with_name("campaign.yaml")


def entry(name: str, experiment: str, *overrides: str, hours: float = 0.1) -> Entry:
    return Entry(name, experiment, overrides, hours, "measured", ())


TABLE4 = entry("table4", "flexcfl/table4", "case=flexcfl/mnist_mclr", "scenario=swap_all")
FIGURE6 = entry("fig6", "flexcfl/fig6a", "algorithm=fedavg,ifca_mig")


@pytest.fixture(autouse=True)
def composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "plan", plan)


def write_finished(folder: Path, job: campaign.Planned) -> None:
    """What a finished run leaves: five rounds of one second."""
    (folder / "checkpoints").mkdir(parents=True)
    rows = "".join(f"0,{t},seconds,1.0\n" for t in range(5))
    (folder / "rounds.csv").write_text("seed,round,metric,value\n" + rows)
    config = OmegaConf.create({**job.config, "hash": job.hash})
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config))
    (folder / "status.json").write_text(json.dumps({"state": "done"}))
    (folder / "checkpoints" / "latest.json").write_text("{}")


def test_the_shipped_list_has_every_experiment_of_the_papers() -> None:
    entries = read_list(LIST)
    papers = {e.experiment for e in entries}
    for name in ("table1", "table3", "table4", "fig3", "fig3d", "fig4", "fig5", "fig6a", "fig6b"):
        assert f"flexcfl/{name}" in papers
    assert {"jgl/fig4", "jgl/fig5", "lcfl/fig2", "lcfl/table2", "cfl_mgd/table2"} <= papers
    first = [e.name for e in entries].index("flexcfl-table3-mnist-cnn-seed0")
    four = {"flexcfl", "jgl", "lcfl", "cfl_mgd"}
    must = sum(e.hours for e in entries[:first] if e.experiment.split("/")[0] in four)
    assert 15 < must < 30  # hours of what comes before the convolutional networks


def test_the_list_of_the_benchmark_has_every_federation_within_twenty_hours() -> None:
    experiments = ("benchmark/v1", "benchmark/v1_natural")
    entries = read_list(LIST.with_name("benchmark_v1.yaml"))
    assert {entry.experiment for entry in entries} == set(experiments)
    for experiment in experiments:
        text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
        swept = yaml.safe_load(text)["hydra"]["sweeper"]["params"]
        assert sorted(f"case={case}" for case in swept["case"].split(",")) == sorted(
            entry.overrides[0] for entry in entries if entry.experiment == experiment
        )
    auto = read_list(LIST.with_name("benchmark_v1_auto.yaml"))
    assert sum(entry.hours for entry in [*entries, *auto]) < 20
    assert [one.overrides[0] for one in auto] == [one.overrides[0] for one in entries[:12]]
    # no oracle where there are no true groups
    (dirichlet,) = (entry for entry in entries if entry.name == "dirichlet")
    methods = dirichlet.overrides[1].removeprefix("algorithm=").split(",")
    assert [*methods, "oracle"] == [*swept["algorithm"].split(",")[1:], "oracle"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1", "a list of entries"),
        ("- {name: a, experiment: b, hours: 1, basis: c, seed: 3}", "seed is not allowed"),
        ("- {name: a, hours: 1, basis: c}", "no experiment"),
        ("- {name: a, experiment: b, hours: 0, basis: c}", "hours=0 is not allowed"),
        ("- &e {name: a, experiment: b, hours: 1, basis: c}\n- *e", "twice"),
        ("- {name: a, experiment: b, hours: 1, basis: c, of: d}", "a.of=d is not allowed"),
        ("- [", "cannot be read"),
    ],
)
def test_a_bad_list_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "list.yaml"
    file.write_text(text)
    with refused(ConfigError, said):
        read_list(file)


@pytest.mark.full
def test_an_entry_becomes_the_jobs_of_its_sweep() -> None:
    jobs = plan(TABLE4, "paper")
    assert len(jobs) == 6
    assert [job.config["choices"]["algorithm"] for job in jobs][:2] == ["fedavg", "ifca_flex"]
    folder = "outputs/flexcfl/table4/fedavg,case=flexcfl_mnist_mclr,scenario=swap_all"
    assert jobs[0].folder == Path(folder)
    assert jobs[0].config["seeds"] == [0, 1, 2, 3, 4]
    assert jobs[0].config["rounds"] == 300
    assert len({job.hash for job in jobs}) == 6


@pytest.mark.full
def test_a_figure_of_a_table_is_the_same_computation() -> None:
    table = {job.config["choices"]["algorithm"]: job.hash for job in plan(TABLE4, "paper")}
    figure = {job.config["choices"]["algorithm"]: job.hash for job in plan(FIGURE6, "paper")}
    assert figure["fedavg"] == table["fedavg"]
    assert figure["ifca_mig"] not in table.values()


@pytest.mark.full
def test_a_smaller_scale_keeps_its_own_rounds() -> None:
    long = entry("long", "lcfl/table2", "algorithm@algorithm.base=fedavg", "rounds=15", "seeds=[0]")
    assert plan(long, "paper")[0].config["rounds"] == 15
    small = plan(long, "smoke")[0]
    assert small.config["rounds"] < 15
    assert small.folder.parts[1:3] == ("lcfl", "table2-smoke")


@pytest.mark.full
def test_a_job_taken_over_has_the_files_of_one_and_the_name_of_the_other(tmp_path: Path) -> None:
    source, job = plan(TABLE4, "paper")[0], plan(FIGURE6, "paper")[0]
    write_finished(tmp_path / source.folder, source)
    assert finished([tmp_path]) == {source.hash: tmp_path / source.folder}
    take_over(tmp_path / source.folder, job, tmp_path / job.folder)
    assert finished_hash(tmp_path / job.folder) == job.hash
    rounds = (tmp_path / job.folder / "rounds.csv").read_text()
    assert rounds == (tmp_path / source.folder / "rounds.csv").read_text()
    config = yaml.safe_load((tmp_path / job.folder / "config.yaml").read_text())
    assert config["name"] == "flexcfl/fig6a"
    assert config["hash"] == source.hash
    assert not (tmp_path / job.folder / "checkpoints").exists()


@pytest.mark.full
def test_what_died_while_copying_is_not_taken_for_a_job(tmp_path: Path) -> None:
    job = plan(FIGURE6, "paper")[0]
    write_finished(tmp_path / "fedavg.taking", job)
    assert finished([tmp_path]) == {}


@pytest.mark.parametrize("state", ["running", "failed", "interrupted"])
def test_only_a_finished_job_counts(tmp_path: Path, state: str) -> None:
    job = plan(FIGURE6, "paper")[0]
    write_finished(tmp_path / "a", job)
    (tmp_path / "a" / "status.json").write_text(json.dumps({"state": state}))
    assert finished_hash(tmp_path / "a") != job.hash


class Pretended(Campaign):
    """A campaign whose runs end at once; `dies_at` counts the runs that a kill leaves over."""

    ran: list[str]
    dies_at: int | None = None
    fails = ""

    def _child(self, arguments: Sequence[str], folder: Path) -> int:
        if self.dies_at is not None and len(self.ran) == self.dies_at:
            raise campaign._Stop(signal.SIGTERM)
        self.ran.append(folder.name)
        (self._folder / "jobs.log").write_text("some output\nno such file: cifar10.npz\n")
        if self.fails and self.fails in folder.name:
            return 2
        both = [*plan(TABLE4, "paper"), *plan(FIGURE6, "paper")]
        write_finished(folder, next(job for job in both if self._folder / job.folder == folder))
        return 0

    def _collect(self, jobs: Sequence[campaign.Planned]) -> None:
        pass


def pretended(folder: Path, *entries: Entry, kept: frozenset[str] = frozenset()) -> Pretended:
    folder.mkdir(exist_ok=True)
    made = Pretended(folder, entries, "paper", folder / "results", [], kept)
    made.ran = []
    return made


@pytest.mark.full
def test_the_same_command_goes_on_where_a_kill_left_it(tmp_path: Path) -> None:
    first = pretended(tmp_path, TABLE4, FIGURE6)
    first.dies_at = 2
    with pytest.raises(campaign._Stop):
        first.run()
    assert len(first.ran) == 2
    second = pretended(tmp_path, TABLE4, FIGURE6)
    assert second.run() == 0
    assert len(second.ran) == 4 + 1  # the rest of the table, and what only the figure has
    third = pretended(tmp_path, TABLE4, FIGURE6)
    assert third.run() == 0
    assert third.ran == []
    state = campaign.read_state(tmp_path)
    assert state["table4"]["state"] == state["fig6"]["state"] == "done"
    assert state["table4"]["hours"] == pytest.approx(6 * 5 / 3600, abs=1e-4)
    taken = [job["state"] for job in state["fig6"]["jobs"].values()]
    assert sorted(taken) == ["done", "taken"]
    assert state["fig6"]["hours"] == pytest.approx(5 / 3600, abs=1e-4)
    shown = campaign.show([TABLE4, FIGURE6], tmp_path)
    assert "6/6" in shown
    assert "about 0.0 left" in shown


@pytest.mark.full
def test_what_the_results_have_is_not_computed_again(tmp_path: Path) -> None:
    first, second, *rest = (job.hash for job in plan(TABLE4, "paper"))
    kept = tmp_path / "docs" / "runs" / "flexcfl" / "table4" / "jobs.csv"
    kept.parent.mkdir(parents=True)
    kept.write_text(f"file,hash\na.csv,other {first}\nb.csv,{second}\n")
    hashes = campaign.kept_hashes(tmp_path / "docs")
    assert hashes == {"other", first, second}
    made = pretended(tmp_path / "campaign", TABLE4, kept=hashes)
    assert made.run() == 0
    assert len(made.ran) == len(rest)
    jobs = campaign.read_state(tmp_path / "campaign")["table4"]["jobs"].values()
    assert [job["state"] for job in jobs] == ["kept", "kept", *["done"] * len(rest)]
    assert "6/6" in campaign.show([TABLE4], tmp_path / "campaign")


@pytest.mark.full
def test_a_run_without_the_discrepancy_is_not_taken_for_one_with_it(tmp_path: Path) -> None:
    """It is no part of the hash, since it changes no other number."""
    case = "case=flexcfl/mnist_mlp"
    (table,) = plan(entry("table3", "flexcfl/table3", case, "algorithm=fedavg"), "paper")
    (figure,) = plan(entry("fig3", "flexcfl/fig3", case, "algorithm=fedavg"), "paper")
    assert table.hash == figure.hash
    assert (table.discrepancy, figure.discrepancy) == (False, True)
    made = pretended(tmp_path)
    write_finished(tmp_path / table.folder, table)
    made._known = finished([tmp_path])
    assert made._source(table) == tmp_path / table.folder
    assert made._source(figure) is None
    with (tmp_path / table.folder / "rounds.csv").open("a") as rows:
        rows.write("0,4,discrepancy,0.5\n")
    assert made._source(figure) == tmp_path / table.folder


@pytest.mark.full
def test_a_job_that_fails_is_named_and_the_others_run(tmp_path: Path) -> None:
    made = pretended(tmp_path, TABLE4)
    made.fails = "fesem"
    assert made.run() == 1
    assert len(made.ran) == 6
    jobs = campaign.read_state(tmp_path)["table4"]["jobs"]
    failed = [job for job in jobs.values() if job["state"] == "failed"]
    assert [job["error"] for job in failed] == ["no such file: cifar10.npz"]
    again = pretended(tmp_path, TABLE4)
    assert again.run() == 0  # only what failed is tried again
    assert len(again.ran) == 1


@pytest.mark.full
def test_an_experiment_that_does_not_exist_is_no_end_of_the_others(tmp_path: Path) -> None:
    made = pretended(tmp_path, entry("gone", "flexcfl/none"), FIGURE6)
    assert made.run() == 1
    assert len(made.ran) == 2
    assert "cannot be composed" in (tmp_path / "log.txt").read_text()


def test_two_campaigns_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        campaign._alone(tmp_path),
        pytest.raises(ConfigError, match="running there"),
        campaign._alone(tmp_path),
    ):
        pass


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--only=nothing is not allowed"):
        campaign.main(["status", "--folder", str(tmp_path), "--only", "nothing"])
    assert not any(tmp_path.iterdir())


@pytest.mark.full
def test_a_campaign_refuses_what_a_job_of_it_would_refuse() -> None:
    one = entry("x", "quickstart", *("participation=0.5", "clients_per_round=3"))
    with pytest.raises(UserError, match=r"participation=0.5 is not allowed: clients_per_round=3"):
        campaign.plan(one)


@pytest.mark.full
def test_a_campaign_plans_the_job_that_a_run_would_compute() -> None:
    """A method's own solver yields to what is typed for the solver of all."""
    one = entry("x", "quickstart", *("algorithm=fedprox", "solver.proximal=0.3"))
    (job,) = campaign.plan(one)
    assert job.config["algorithm"]["solver"]["proximal"] == 0.3

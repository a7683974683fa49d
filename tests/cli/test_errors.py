"""A user's mistake is one line, exit status 2, and leaves nothing behind."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Cli, npz, put

BAD = [
    # a misspelt or unknown name
    (["rouns=3"], "did you mean rounds?"),
    (["--nonsense"], "unrecognized arguments: --nonsense"),
    (["--cfg", "foo"], "invalid choice: 'foo'"),
    (["rounds=ten"], "rounds=ten is not allowed: a whole number in [1, 1,000,000,000]"),
    (["rounds="], "rounds='' is not allowed: a whole number in [1, 1,000,000,000]"),
    (["progress=maybe"], "progress=maybe is not allowed: true or false"),
    (["privacy.noise=1"], "there is no key privacy.noise; privacy=client takes it"),
    (
        ["attack.share=0.2"],
        "there is no key attack.share; attack=alie, attack=ipm, attack=label_flip, "
        "attack=min_max and 2 more take it",
    ),
    (["num_cluster=4"], "there is no key num_cluster; did you mean num_clusters?"),
    (["name=größe"], "name=größe cannot be read: write 'name=\"größe\"'"),
    (["tags.é=1"], "tags.é=1 cannot be read: a key has letters from a to z, digits"),
    (["name='a"], "name='a cannot be read: write name=a"),
    (["algorithm=ifca,"], "algorithm=ifca, cannot be read: write algorithm=ifca"),
    (["algorithm=[ifca"], "algorithm=[ifca cannot be read: write algorithm=ifca"),
    (["rounds=3,"], "rounds=3, cannot be read: write rounds=3"),
    (["dataset.separator=;"], "write 'dataset.separator=\";\"'"),
    (["name=St. Mary's"], "name=St. Mary's cannot be read: write 'name=\"St. Mary'\"'\"'s\"'"),
    (["algorithm=lcfl,ifca"], "algorithm=lcfl,ifca is not allowed: "),
    (["hydra.launcher.timeout=2"], "`fedclust run --cfg hydra` shows the keys"),
    (["+tag.x=1"], "did you mean tags?"),
    (["algorithm=lcfl", "warmup=local"], "did you mean warmup@algorithm.warmup=…?"),
    (["algorithm=fedavg", "warmup=local"], "no key warmup; nothing chosen here uses one"),
    (["--multirum"], "did you mean --multirun?"),
    (["engine=looop"], "did you mean loop?"),
    (["device=gpu"], "a GPU is called cuda"),
    (["solver.le=1"], "did you mean solver.lr?"),
    # what other programs call it
    (["solver.learning_rate=0.1"], "did you mean solver.lr?"),
    (["local_epochs=2"], "did you mean solver.epochs?"),
    (["batch=32"], "did you mean solver.batch_size?"),
    (["n_clients=8"], "did you mean partition.num_clients?"),
    (["partition=label_map", "n_clients=8"], "did you mean partition.base.num_clients?"),
    (
        ["-m", "partition=rotated,label_map", "partition.num_clients=8"],
        "there is no key partition.num_clients; partition=label_map has none: did you mean "
        "partition.base.num_clients?",
    ),
    (["num_rounds=3"], "did you mean rounds?"),
    (["K=3"], "did you mean num_clusters?"),
    (["algorithm=ifca", "algorithm.K=3"], "did you mean algorithm.num_clusters?"),
    (["gpu=0"], "did you mean device?"),
    (["optimizer=adam"], "did you mean solver?"),
    (["alpha=0.1"], "did you mean partition=dirichlet partition.alpha=…?"),
    (["partition=dirichlet", "alpha=0.1"], "did you mean partition.alpha?"),
    (["model=resnet"], "did you mean resnet18 or resnet9?"),
    (["experiment=quickstart", "scale=small"], "it has laptop, paper, smoke"),
    (["algorithm=[lcfl,ifca]"], "is not allowed: -m algorithm=lcfl,ifca runs them all"),
    (["experiment=lcfl"], "there are lcfl/fig2, lcfl/fig3"),
    (["algorithm=CLOVE"], "did you mean clove?"),
    (["dataset=MNIST"], "did you mean mnist?"),
    (["solver.Lr=1"], "did you mean solver.lr?"),
    (
        ["common={aggregatio: uniform}"],
        "no key common.aggregatio; did you mean common.aggregation?",
    ),
    (["common={n: 1}"], "there is no key common.n;"),
    (["tags.note=first"], "did you mean +tags.note=…?"),
    (["objective=accuracyy"], "objective=accuracyy is not allowed: did you mean accuracy?"),
    (["algorithm._target_=os.system"], "is not allowed: an algorithm of fedclust"),
    (["restart_fraction=0.2"], "did you mean common.restart_fraction?"),
    (
        ["aggregation=by_samples"],
        "no aggregation/by_samples; it has centered_clipping, geometric_median, krum, mean",
    ),
    # no part, or half of one
    (["dataset=123"], "dataset=123 is not allowed: a choice that `fedclust list dataset` shows"),
    (["algorithm=null"], "algorithm=None is not allowed"),
    (["dataset=../algorithm/lcfl"], "dataset=../algorithm/lcfl is not allowed"),
    (["~rounds"], "rounds is missing"),
    (["~dataset"], "dataset is missing"),
    (["~solver"], "solver is missing"),
    (["tags=5"], "tags=5 is not allowed: keys with values, as in +tags.name=value"),
    (
        ["num_clusters=1.5"],
        "num_clusters=1.5 is not allowed: a whole number of at least 1, or auto",
    ),
    (["seeds=1.5"], "seeds=1.5 is not allowed: a whole number of seeds of at least 1"),
    (["~dataset._target_"], "dataset={} is not allowed: it must be a mapping with _target_"),
    (["algorithm.solver=null"], "algorithm.solver=null is not allowed"),
    (["+tracker._partial_=true"], "tracker._partial_=True is not allowed"),
    (["++data.foo=1"], "data.foo=1 is not allowed: data has the keys download, root"),
    (["common.aggregation=nonsense"], "expected one of uniform, by_samples"),
    (["+common.foo=1"], "common.foo=1 is not allowed: no group reads it"),
    (["scenario=newcomers", "scenario.arrive_at=[1.5]"], "each entry an integer in"),
    (["partition=class_subsets", "partition.subsets=3"], "partition.subsets=3"),
    (
        ["scenario=drift", "partition=label_map", "scenario.table=3"],
        "or a list of lists",
    ),
    (
        ["scenario=drift", "partition=label_map", "scenario.table=[[0,1],[0]]"],
        "scenario.table=[2 rows of 1 and 2 entries] is not allowed: at least 1 row, a step each",
    ),
    (
        ["scenario=drift", "partition=label_map", "scenario.table=[[0,1]]"],
        "[1 row of 2 entries] is not allowed: it is for 2 clients, and the federation has 100",
    ),
    (
        ["model=mlp", "model.hidden=[1000000,1000000]"],
        " TiB besides its data of 505 KiB, and ",
    ),
    (["solver.lr=1e300"], "solver.lr=1e+300"),
    (["dataset=synthetic", "dataset.alpha=inf"], "dataset.alpha=inf"),
    (["partition.num_clients=1000000000000"], "partition.num_clients=1000000000000"),
    (["tracker._target_=fedclust.trackers.optional"], "_target_=fedclust.trackers.optional"),
    (["algoritm=ifca"], "did you mean algorithm?"),
    (["algorithm=ifc"], "there is no algorithm/ifc; did you mean ifca? `fedclust list algorithm`"),
    (["experiment=lcfl/tabel2"], "did you mean lcfl/table2?"),
    (["tuned=[a,b]"], "tuned=[a,b] is not allowed: one value, not a list"),
    (
        ["partition=label_map", "partition.num_clients=20"],
        "there is no key partition.num_clients; did you mean partition.base.num_clients?",
    ),
    (
        ["algorithm=lcfl", "algorithm.warmup.participaton=1"],
        "did you mean algorithm.warmup.participation?",
    ),
    (["lr=0.1"], "did you mean solver.lr?"),
    (["algorithm=ifca", "algorithm.strat=shared"], "did you mean algorithm.start?"),
    (["partition.xyz=2"], "partition has the keys num_clients, num_rotations"),
    (["hydra/launcher=joblb"], "did you mean joblib? it has basic, joblib"),
    (["hydra/sweeper=bsic"], "did you mean basic?"),
    (["algorithm.solver.lr=0.1"], "did you mean solver.lr=…?"),
    (
        ["scenario=swap_all", "scenario.swap_probability=1"],
        "did you mean scenario.probability?",
    ),
    (["++foo=3"], "foo=3"),
    (["case=jgl/nope"], "`fedclust list case` shows all"),
    (["+solver.learning_rate=1"], "solver.learning_rate"),
    (["+algorithm.k=3"], "algorithm.k"),
    (["device=cuda:99"], "device=cuda:99"),
    # a value of the wrong kind
    (["solver.lr=fast"], "solver.lr=fast"),
    (["solver.epochs=-1.5"], "solver.epochs=-1.5"),
    (["partition.num_clients=forty"], "partition.num_clients=forty"),
    (["seeds=abc"], "seeds=abc"),
    (["seeds=[1,1]"], "seeds=[1, 1]"),
    # a value out of range
    (["rounds=0"], "rounds=0"),
    (["seeds=0"], "seeds=0"),
    (["seeds=[-1]"], "seeds=[-1]"),
    (["eval_every=0"], "eval_every=0"),
    (["threads=0"], "threads=0"),
    (["threads=100000"], "threads=100000"),
    (["seeds=[18446744073709551616]"], "seeds=[18446744073709551616]"),
    (["name=../elsewhere"], "name=../elsewhere"),
    (
        ["name="],
        "name='' is not allowed: a folder below outputs/ without line breaks, as in name=mine",
    ),
    (["name=/elsewhere"], "name=/elsewhere"),
    (["algorithm=pacfl", "algorithm.num_vectors=9999"], "algorithm.num_vectors=9999"),
    (["max_rows=0"], "max_rows=0"),
    (["precision=float64"], "precision=float64"),
    (["precision=bf16", "engine=vmap"], "precision=bf16"),
    (["checkpoint_seconds=-1"], "checkpoint_seconds=-1"),
    (["participation=1.5"], "participation=1.5"),
    (["participation=0"], "participation=0"),
    (["common.warmup_participation=1.5", "algorithm=fedavg"], "common.warmup_participation=1.5"),
    (["common.restart_fraction=0", "algorithm=fedavg"], "common.restart_fraction=0"),
    (["common.cluster_choice=best", "algorithm=fedavg"], "common.cluster_choice=best"),
    (["common.restart_fraction=0.5", "algorithm=ifca"], "algorithm.restart_fraction=0.5"),
    # what the job could not return at its end
    (["objective=validation_accuracy"], "objective=validation_accuracy is not allowed: another"),
    (["partition=iid", "objective=purity"], "objective=purity is not allowed: another"),
    # what nobody reads
    (["algorithm=fedavg", "num_clusters=2"], "num_clusters=2 is not allowed: fedavg would not"),
    (["algorithm=fedavg", "cluster_metric=param_norm"], "cluster_metric=param_norm"),
    (["algorithm=diffnorm", "cluster_metric=loss"], "loss is not allowed: diffnorm would not"),
    (["algorithm=local", "cluster_method=agglomerative"], "cluster_method=agglomerative"),
    (["algorithm=local", "common.aggregation=uniform"], "local would not read it; it is read by"),
    (["algorithm=fedprox", "solver=adam", "solver.beta1=2"], "solver.beta1=2 is not allowed"),
    (["-m", "algorithm=fedavg,local", "num_clusters=2,3"], "fedavg, local would not read it"),
    (
        ["-m", "algorithm=fedavg,ifca", "algorithm.averaging=model,gradient"],
        "not allowed for fedavg: run algorithm=ifca with it and algorithm=fedavg without",
    ),
    (["algorithm=flexcfl", "algorithm.num_clusters=2"], "num_clusters=… sets both"),
    (["num_clusters=0"], "num_clusters=0"),
    (["num_clusters=many"], "num_clusters=many"),
    (
        ["algorithm.aggregation=${commn.aggregation}"],
        "refers to ${commn.aggregation}, and there is no such key; did you mean common?",
    ),
    (
        ["-m", "algorithm=fedavg,local", "algorithm.solver=${solvr}"],
        "a value refers to ${solvr}, and there is no such key; did you mean solver?",
    ),
    (["algorithm.solver=${solvr}"], "refers to ${solvr}, and there is no such key; did you mean"),
    (["num_clusters=auto", "algorithm=ifca"], "num_clusters=auto"),
    (["solver.lr=-1"], "solver.lr=-1"),
    (["solver.lr=nan"], "solver.lr=nan"),
    (["solver.momentum=1.2"], "solver.momentum=1.2"),
    (["solver.batch_size=0"], "solver.batch_size=0"),
    (["solver.decay=0"], "solver.decay=0"),
    (["partition.num_rotations=3"], "partition.num_rotations=3"),
    (["partition=dirichlet", "partition.alpha=0"], "partition.alpha=0"),
    # values that do not go together
    (
        ["participation=0.5", "clients_per_round=3"],
        "participation=0.5 is not allowed: clients_per_round=3 is set",
    ),
    (
        ["experiment=flexcfl/fig1", "participation=0.5"],
        "clients_per_round=20 is set, which takes its place; add clients_per_round=null",
    ),
    (["solver.epochs=null"], "solver.epochs=None"),
    (["solver.steps=5"], "solver.steps"),
    (["clients_per_round=41"], "clients_per_round=41"),
    (["num_clusters=41"], "num_clusters=41"),
    (
        ["partition=iid", "partition.num_clients=3"],
        "num_clusters=4 is not allowed: at most 3 clients, as there are; 4 is the default, and "
        "num_clusters=3 sets another",
    ),
    (["partition.num_clients=3"], "partition.num_clients=3"),
    (["partition.num_clients=100000"], "partition.num_clients"),
    (["partition=natural"], "partition"),
    (["partition=iid", "algorithm=oracle"], "algorithm=oracle"),
    (["model=cnn_cifar_small"], "model"),
    (
        ["algorithm=ifca", "algorithm.start=kmeans++", "num_clusters=5", "participation=0.1"],
        "num_clusters=5",
    ),
    (["algorithm=flexcfl", "algorithm.cold_start.metric.num_components=41"], "num_components=41"),
    (["algorithm=jgl", "algorithm.gradient_weight=1.5"], "algorithm.gradient_weight=1.5"),
    (["algorithm=flexcfl", "algorithm.inter_group.rate=-1"], "algorithm.inter_group.rate=-1"),
    (["cluster_metric.landmarks=1"], "cluster_metric.landmarks=1"),
    (["scenario=swap_part"], "scenario=swap_part"),
    (["scale=laptop"], "scale=laptop"),
    (["experiment=quickstart", "scale=laptop"], "scale=laptop"),
    (["predictions=3"], "predictions=3 is not allowed: true or false"),
    # data that are not there, or not data
    (["dataset=mnist", "data.root=nowhere"], "nowhere"),
    (["dataset=npz", "dataset.path=missing.npz"], "missing.npz"),
    (["partition=from_file", "partition.path=missing.csv"], "missing.csv"),
    (["dataset=image_folder", "dataset.path=nowhere"], "nowhere"),
    (["dataset=csv", "dataset.path=missing.csv"], "missing.csv not found: set dataset.path"),
    (["dataset=csv", "dataset.features=3"], "dataset.features=3 is not allowed: expected a list"),
    (["dataset=hf", "dataset.group=land"], "dataset.group=land is not allowed: null without"),
    (["dataset=watch", "dataset.length=5000"], "dataset.length=5000 is not allowed: at most 236"),
    (["model=resnet9", "model.groups=3"], "model.groups=3 is not allowed: a divisor"),
    # what no report can be made of
    (["report={metric: nonsense}"], "report.metric=nonsense is not allowed"),
    (["report={metrik: accuracy}"], "report.metrik is not allowed"),
    (["report=3"], "report=3 is not allowed: a mapping"),
    (["report={target: {value: 2}}"], "report.target.value=2 is not allowed: in [0, 1]"),
    (["report={target: {arm: a, share: b}}"], "report.target.share=b is not allowed"),
    (["report={order: [3]}"], "report.order=3 is not allowed"),
    (["report={title: [3]}"], "report.title=[3] is not allowed: text"),
    (["report={published: LCFL/Table X}"], "report.published=LCFL/Table X is not allowed"),
    (
        ["report={claims: [{kind: at_least, arm: a, value: 95}]}"],
        "report.claims: value=95 is not allowed: in [0, 1], accuracy is a fraction",
    ),
    (
        ["report={claims: [{kind: at_least, arm: a, value: abc}]}"],
        "report.claims: at_least.value=abc is not allowed: a number",
    ),
    (["scale.name=laptop"], "scale.name=laptop is not allowed"),
    (["rounds=1,2"], "rounds=1,2 is not allowed: `fedclust run -m` runs a job for every value"),
    # what Hydra has no words for
    (["-m", "--cfg", "job"], "--cfg shows the config of one job: leave out -m"),
    (["=3"], "'=3' is not allowed: KEY=VALUE, as in rounds=20"),
    (["rounds"], "'rounds' is not allowed: KEY=VALUE"),
    (["quickstart"], "'quickstart' is not allowed: did you mean experiment=quickstart?"),
    (["name=${name}"], "Recursive interpolation"),
    (["--config-dir", "nowhere"], "nowhere"),
    (["tracker=wandb"], "wandb"),
]


SMALL = ("progress=false", "rounds=1", "partition.num_clients=8", "algorithm=fedavg")
NPZ = ("dataset=npz", "dataset.path=mine.npz", "progress=false")


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("arguments", "named"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD]
)
def test_a_bad_run_is_one_line(
    fedclust: Cli, tmp_path: Path, arguments: list[str], named: str
) -> None:
    fedclust.refused("run", "progress=false", *arguments, says=named)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_a_launcher_that_there_is_no_cluster_for_is_one_line(tmp_path: Path) -> None:
    """In a process of its own: importing submitit sets up logging anew, and so closes the streams
    of whoever captures them.
    """
    typed = ["run", "-m", "hydra/launcher=submitit_slurm", "rounds=1,2", "progress=false"]
    done = subprocess.run(
        [sys.executable, "-m", "fedclust", *typed],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = "fedclust: hydra/launcher: SlurmLauncher cannot run the jobs: Could not detect"
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--verison"], "did you mean --version?"),
        (["example"], "the folder to make may follow"),
        (["fly"], "it has run, plan, tune, advise, predict, report, list"),
        (["lst"], "did you mean list?"),
        (["list", "--config-dir", "nowhere"], "--config-dir="),
        (["list", "algorithms"], "no group algorithms: did you mean algorithm?"),
        (["data", "mnits"], "did you mean mnist?"),
        (["data", "mnist", "--root"], "--root needs a folder"),
        (["example"], "own_algorithm"),
        (["example", "own_algoritm"], "did you mean own_algorithm?"),
        (["doctor", "please"], "doctor=please is not allowed: none, or overrides"),
        (["report"], "folder"),
        (["report", "nowhere"], "nowhere"),
    ],
)
def test_a_bad_command_is_one_line(fedclust: Cli, arguments: list[str], named: str) -> None:
    fedclust.refused(*arguments, says=named)


def test_of_several_folders_all_are_looked_at_before_a_report_is_made(
    fedclust: Cli, tmp_path: Path
) -> None:
    put(tmp_path / "here/config.yaml", "")
    fedclust.refused("report", "here", "nowhere", says="is in nowhere; nothing was made")


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"y_test": None}, "y_test"),
        ({"y_train": np.zeros(7, dtype=np.int64)}, "7 train labels"),
        ({"x_train": np.zeros((80, 8, 6)), "x_test": np.zeros((40, 8, 6))}, "square"),
        ({"y_train": np.full(80, -1)}, "train labels"),
    ],
)
def test_wrong_arrays_are_named(
    fedclust: Cli, tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    npz(tmp_path / "mine.npz", **changes)
    fedclust.refused("run", *NPZ, says=named)


@pytest.mark.full
@pytest.mark.parametrize("kept", [30, 1000])
def test_a_truncated_file_is_named_with_its_own_key(
    fedclust: Cli, tmp_path: Path, kept: int
) -> None:
    file = npz(tmp_path / "mine.npz")
    file.write_bytes(file.read_bytes()[:kept])
    done = fedclust.refused("run", *NPZ, says="mine.npz")
    assert "change dataset.path" in done.err
    assert "data.root" not in done.err


@pytest.mark.full
def test_a_folder_of_another_config_is_left_alone(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done("run", *SMALL, "hydra.run.dir=here")
    before = {p: p.read_bytes() for p in (tmp_path / "here").rglob("*") if p.is_file()}
    fedclust.refused(
        "run", *SMALL, "hydra.run.dir=here", "solver.lr=0.2", says="here belongs to another config"
    )
    assert before == {p: p.read_bytes() for p in (tmp_path / "here").rglob("*") if p.is_file()}


def test_a_folder_in_use_is_left_alone(fedclust: Cli, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with (tmp_path / "here" / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fedclust.refused("run", "hydra.run.dir=here", "progress=false", says="another process")


@pytest.mark.full
def test_a_damaged_checkpoint_is_named(fedclust: Cli, tmp_path: Path) -> None:
    run = ["run", "progress=false", "partition.num_clients=8", "rounds=2", "hydra.run.dir=here"]
    fedclust.done(*run)
    (tmp_path / "here" / "checkpoints" / "done.json").unlink()
    (tmp_path / "here" / "status.json").unlink()
    saved = next((tmp_path / "here" / "checkpoints").glob("round=*/seed=0.pt"))
    saved.write_bytes(saved.read_bytes()[:100])
    fedclust.refused(*run, says="seed=0.pt is damaged")


@pytest.mark.full
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_is_no_mistake_of_who_gave_the_command(
    fedclust: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A folder that may not be written is one."""

    def fail(self: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", fail)
    ends = fedclust.fails if number == errno.ENOSPC else fedclust.refused
    ends("run", *SMALL, says=f"cannot be written or read: {os.strerror(number)}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_a_report_that_cannot_be_made_is_told_of_a_finished_job_too(
    fedclust: Cli, tmp_path: Path
) -> None:
    fedclust.done("run", *SMALL)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for more in ([], ["-m"]):
        report = "report={metrik: accuracy}"
        fedclust.refused("run", *more, *SMALL, report, says="report.metrik is not allowed")
        fedclust.refused("run", *more, *SMALL, "objective=acuracy", says="mean accuracy?")
    assert before == {p: p.read_bytes() for p in before}


@pytest.mark.full
def test_a_finished_job_is_reported_as_asked_last(fedclust: Cli, tmp_path: Path) -> None:
    job = ["run", *SMALL, "hydra.run.dir=job"]
    fedclust.done(*job)
    for metric in ("purity", "ari"):
        again = fedclust(*job, f"report={{metric: {metric}}}", "threads=1")
        assert again.err.startswith("job is done already: test accuracy ")
        assert again.err.count("\n") == 1
        config = (tmp_path / "job" / "config.yaml").read_text()
        assert f"  metric: {metric}\n" in config
        assert "threads: null\n" in config  # it was computed so
    assert "changed" not in fedclust(*job).err


def test_outputs_that_is_no_folder_is_one_line(fedclust: Cli, tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("")
    fedclust.refused("run", *SMALL, says="outputs")


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("solver: [\n", "broken.yaml"),
        ("defaults: [broken]\n", "a key or a file refers to itself"),
    ],
)
def test_a_broken_yaml_of_a_user_is_one_line(
    fedclust: Cli, tmp_path: Path, text: str, said: str
) -> None:
    put(tmp_path / "mine/algorithm/broken.yaml", text)
    fedclust.refused("run", "--config-dir", "mine", "algorithm=broken", says=said)


@pytest.mark.full
def test_the_sweep_flag_may_stand_anywhere(fedclust: Cli, tmp_path: Path) -> None:
    fedclust.done("run", *SMALL[:-1], "-m", "algorithm=fedavg,local")
    assert len(list((tmp_path / "outputs").rglob("rounds.csv"))) == 2


@pytest.mark.full
def test_whoever_reads_may_stop_early() -> None:
    """A pipe that is closed is no error to tell of."""
    program = [sys.executable, "-m", "fedclust", "list"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        told = process.stderr.read()
    assert told == b""
    assert process.returncode in (0, 128 + signal.SIGPIPE)

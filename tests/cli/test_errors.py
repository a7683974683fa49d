"""A user's mistake is one line, exit status 2, and leaves nothing behind."""

from __future__ import annotations

import errno
import fcntl
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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
    (["~dataset"], "dataset"),
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
    (["solver.lrr=1"], "did you mean solver.lr?"),
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
    (["algorithm.solver.le=0.1"], "did you mean solver.lr?"),
    (
        ["scenario=swap_all", "scenario.swap_probability=1"],
        "did you mean scenario.probability?",
    ),
    (["++foo=3"], "foo=3"),
    (["case=jgl/nope"], "`fedclust list case` shows all"),
    (["algorithm=lcfll"], "algorithm/lcfll"),
    (["dataset=minst"], "dataset/minst"),
    (["solver.learning_rate=1"], "learning_rate"),
    (["+solver.learning_rate=1"], "solver.learning_rate"),
    (["+algorithm.k=3"], "algorithm.k"),
    (["engine=warp"], "engine=warp"),
    (["device=tpu"], "device=tpu"),
    (["device=cuda:99"], "device=cuda:99"),
    (["experiment=lcfl/table9"], "lcfl/table9"),
    # a value of the wrong kind
    (["rounds=many"], "rounds"),
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
    (["num_clusters=auto", "algorithm=ifca"], "num_clusters=auto"),
    (["solver.lr=-1"], "solver.lr=-1"),
    (["solver.lr=nan"], "solver.lr=nan"),
    (["solver.momentum=1.2"], "solver.momentum=1.2"),
    (["solver.batch_size=0"], "solver.batch_size=0"),
    (["solver.decay=0"], "solver.decay=0"),
    (["partition.num_clients=0"], "partition.num_clients=0"),
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
        "num_clusters=4 is not allowed: at most the 3 clients there are; 4 is the default, and "
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
    # code from elsewhere
    (["algorithm._target_=os.system"], "algorithm._target_=os.system"),
    (["--config-dir", "nowhere"], "nowhere"),
    (["tracker=wandb"], "wandb"),
]


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("arguments", "named"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD]
)
def test_a_bad_run_is_one_line(
    fedclust: Callable[..., object], tmp_path: Path, arguments: list[str], named: str
) -> None:
    done = fedclust("run", "progress=false", *arguments)
    assert_one_line(done, named)
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


def assert_one_line(done: object, named: str) -> None:
    lines = done.err.strip().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 1, done.err  # type: ignore[attr-defined]
    assert lines[0].startswith("fedclust: ")
    assert named in lines[0]
    assert done.status == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--verison"], "did you mean --version?"),
        (["example"], "the folder to make may follow"),
        (["fly"], "it has run, tune, report, list"),
        (["lst"], "did you mean list?"),
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
def test_a_bad_command_is_one_line(
    fedclust: Callable[..., object], arguments: list[str], named: str
) -> None:
    assert_one_line(fedclust(*arguments), named)


def test_of_several_folders_all_are_looked_at_before_a_report_is_made(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.yaml").touch()
    assert_one_line(fedclust("report", "here", "nowhere"), "is in nowhere; nothing was made")


def test_a_full_disk_is_no_mistake_of_who_gave_the_command(
    fedclust: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "mkdir", full)
    done = fedclust("run", "progress=false", "rounds=1", "partition.num_clients=8")
    assert "cannot be written or read: No space left on device" in done.err  # type: ignore[attr-defined]
    assert done.status == 1  # type: ignore[attr-defined]


def _npz(path: Path, **changes: object) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (200, 8, 8), dtype=np.uint8),
        "y_train": rng.integers(0, 4, 200),
        "x_test": rng.integers(0, 256, (40, 8, 8), dtype=np.uint8),
        "y_test": rng.integers(0, 4, 40),
    }
    arrays.update(changes)
    np.savez(path, **{k: v for k, v in arrays.items() if v is not None})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"y_test": None}, "y_test"),
        ({"y_train": np.zeros(7, dtype=np.int64)}, "7 train labels"),
        (
            {"x_train": np.zeros((200, 8, 6), np.uint8), "x_test": np.zeros((40, 8, 6), np.uint8)},
            "square",
        ),
        ({"y_train": np.full(200, -1)}, "train labels"),
    ],
)
def test_wrong_arrays_are_named(
    fedclust: Callable[..., object], tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    _npz(tmp_path / "mine.npz", **changes)
    assert_one_line(
        fedclust("run", "dataset=npz", "dataset.path=mine.npz", "progress=false"), named
    )


def test_a_truncated_file_is_named(fedclust: Callable[..., object], tmp_path: Path) -> None:
    _npz(tmp_path / "mine.npz")
    whole = (tmp_path / "mine.npz").read_bytes()
    (tmp_path / "mine.npz").write_bytes(whole[: len(whole) // 2])
    assert_one_line(
        fedclust("run", "dataset=npz", "dataset.path=mine.npz", "progress=false"), "mine.npz"
    )


def test_a_folder_of_another_config_is_left_alone(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    small = ["progress=false", "partition.num_clients=8", "rounds=1", "algorithm=fedavg"]
    assert fedclust("run", *small, "hydra.run.dir=here").status == 0  # type: ignore[attr-defined]
    before = {p: p.read_bytes() for p in (tmp_path / "here").rglob("*") if p.is_file()}
    done = fedclust("run", *small, "hydra.run.dir=here", "solver.lr=0.2")
    assert_one_line(done, "here belongs to another config")
    assert before == {p: p.read_bytes() for p in (tmp_path / "here").rglob("*") if p.is_file()}


def test_a_folder_in_use_is_left_alone(fedclust: Callable[..., object], tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with (tmp_path / "here" / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = fedclust("run", "hydra.run.dir=here", "progress=false")
    assert_one_line(done, "another process")


def test_a_damaged_checkpoint_is_named(fedclust: Callable[..., object], tmp_path: Path) -> None:
    run = ["run", "progress=false", "partition.num_clients=8", "rounds=2", "hydra.run.dir=here"]
    assert fedclust(*run).status == 0  # type: ignore[attr-defined]
    (tmp_path / "here" / "checkpoints" / "done.json").unlink()
    (tmp_path / "here" / "status.json").unlink()
    saved = next((tmp_path / "here" / "checkpoints").glob("round=*/seed=0.pt"))
    saved.write_bytes(saved.read_bytes()[:100])
    assert_one_line(fedclust(*run), "seed=0.pt is damaged")


def test_a_folder_that_cannot_be_written_is_one_line(
    fedclust: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    done = fedclust("run", "progress=false", "rounds=1", "partition.num_clients=8")
    assert_one_line(done, "cannot be written or read: Permission denied")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_a_report_that_cannot_be_made_is_told_of_a_finished_job_too(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    small = ["progress=false", "rounds=1", "partition.num_clients=8", "algorithm=fedavg"]
    assert fedclust("run", *small).status == 0  # type: ignore[attr-defined]
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for more in ([], ["-m"]):
        done = fedclust("run", *more, *small, "report={metrik: accuracy}")
        assert_one_line(done, "report.metrik is not allowed")
        assert_one_line(fedclust("run", *more, *small, "objective=acuracy"), "mean accuracy?")
    assert before == {p: p.read_bytes() for p in before}


@pytest.mark.full
def test_a_finished_job_is_reported_as_asked_last(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    small = ["progress=false", "rounds=1", "partition.num_clients=8", "algorithm=fedavg"]
    job = ["run", *small, "hydra.run.dir=job"]
    assert fedclust(*job).status == 0  # type: ignore[attr-defined]
    for metric in ("purity", "ari"):
        again = fedclust(*job, f"report={{metric: {metric}}}", "threads=1")
        assert again.err.startswith("job is done already: test accuracy ")  # type: ignore[attr-defined]
        assert again.err.count("\n") == 1  # type: ignore[attr-defined]
        config = (tmp_path / "job" / "config.yaml").read_text()
        assert f"  metric: {metric}\n" in config
        assert "threads: null\n" in config  # it was computed so
    assert "changed" not in fedclust(*job).err  # type: ignore[attr-defined]


def test_outputs_that_is_no_folder_is_one_line(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    (tmp_path / "outputs").write_text("")
    done = fedclust("run", "progress=false", "rounds=1", "partition.num_clients=8")
    assert_one_line(done, "outputs")


def test_a_broken_yaml_of_a_user_is_one_line(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    (tmp_path / "mine" / "algorithm").mkdir(parents=True)
    (tmp_path / "mine" / "algorithm" / "broken.yaml").write_text("solver: [\n")
    done = fedclust("run", "--config-dir", "mine", "algorithm=broken")
    assert_one_line(done, "broken.yaml")


def test_a_file_that_is_made_of_itself_is_one_line(
    fedclust: Callable[..., object], tmp_path: Path
) -> None:
    (tmp_path / "mine" / "algorithm").mkdir(parents=True)
    (tmp_path / "mine" / "algorithm" / "endless.yaml").write_text("defaults: [endless]\n")
    done = fedclust("run", "--config-dir", "mine", "algorithm=endless")
    assert_one_line(done, "a key or a file refers to itself")


@pytest.mark.full
def test_the_sweep_flag_may_stand_anywhere(fedclust: Callable[..., object], tmp_path: Path) -> None:
    small = ["progress=false", "rounds=1", "partition.num_clients=8"]
    assert fedclust("run", *small, "-m", "algorithm=fedavg,local").status == 0  # type: ignore[attr-defined]
    assert len(list((tmp_path / "outputs").rglob("rounds.csv"))) == 2


def test_whoever_reads_may_stop_early() -> None:
    """A pipe that is closed is no error to tell of."""
    program = [sys.executable, "-m", "fedclust", "list"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        told = process.stderr.read()
    assert told == b""
    assert process.returncode in (0, 128 + signal.SIGPIPE)

"""A job whose files were damaged ends with the bits of an undamaged one, or is refused."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from digits_jobs import config_of
from run_folders import assert_same_runs
from torch import Tensor

from fedclust.config.build import Job, build
from fedclust.core.verbs import Method
from fedclust.helpers.errors import ConfigError, RunFolderError
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

CONFIG = {**config_of("lcfl"), "checkpoint_seconds": 0.0}


class Told(Silent):
    """Remembers warnings; ends the job after a round as a crash would."""

    def __init__(self, until: int | None = None) -> None:
        self.warnings: list[str] = []
        self._until = until

    def round(self, t: int, values: Mapping[str, float]) -> None:
        if t == self._until:
            raise SystemExit

    def warn(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture(scope="module")
def job() -> Job:
    return build(CONFIG)


@pytest.fixture(scope="module")
def whole(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job."""
    folder = tmp_path_factory.mktemp("jobs") / "whole"
    run(job, RunFolder(folder, CONFIG), Silent())
    return folder


@pytest.fixture(scope="module")
def crashed(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was killed in round 5, with checkpoints of the rounds 3 and 4."""
    folder = tmp_path_factory.mktemp("jobs") / "half"
    with pytest.raises(SystemExit):
        run(job, RunFolder(folder, CONFIG), Told(until=5))
    return folder


@pytest.fixture
def half(crashed: Path, tmp_path: Path) -> Path:
    """A copy of the killed job, to damage."""
    return Path(shutil.copytree(crashed, tmp_path / "half"))


FILES = [
    "checkpoints/latest.json",
    "checkpoints/round=4/record.json",
    "checkpoints/round=4/seed=0.pt",
    "checkpoints/round=4/seed=1.pt",
    "clients/part-000004.parquet",
    "config.yaml",
    "federation.json",
    "partition/seed=1.parquet",
    "status.json",
    "versions.json",
]


_SLOW = [pytest.param(part, marks=pytest.mark.slow) for part in ("first byte", "last byte", "cut")]


@pytest.mark.thinned
@pytest.mark.parametrize("part", ["middle", "empty", "deleted", *_SLOW])
@pytest.mark.parametrize("name", FILES)
def test_any_damage_is_told_and_changes_nothing(
    job: Job, whole: Path, half: Path, name: str, part: str
) -> None:
    content = bytearray((half / name).read_bytes())
    place = {"first byte": 0, "middle": len(content) // 2, "last byte": -1}.get(part)
    if place is not None:
        content[place] ^= 4
    elif part == "cut":
        del content[len(content) // 2 :]
    elif part == "empty":
        content.clear()
    (half / name).write_bytes(content)
    if part == "deleted":
        (half / name).unlink()
    progress = Told()
    try:
        run(job, RunFolder(half, CONFIG), progress)
    except RunFolderError:
        assert name == "config.yaml"
        return
    assert_same_runs(half, whole)
    # what no result depends on, or another copy stands in for
    silent = name == "versions.json" or name.endswith("record.json")
    silent |= part == "deleted" and name in ("status.json", "checkpoints/latest.json")
    # a changed space or line end changes no value
    silent |= part == "last byte" and name in ("status.json", "checkpoints/latest.json")
    assert silent or any(Path(name).name in line for line in progress.warnings)


@pytest.mark.parametrize(
    "change",
    [
        lambda pool: replace(pool, x=pool.x.clone().index_fill_(0, torch.tensor([5]), 0)),
        lambda pool: replace(pool, y=pool.y.flip(0)),
        lambda pool: replace(pool, scale=pool.scale * 2),
    ],
    ids=["an image", "labels", "scale"],
)
def test_changed_examples_are_refused(job: Job, half: Path, change: Callable[..., Any]) -> None:
    pool = change(job.federations[0].pool)
    feds = {seed: replace(fed, pool=pool) for seed, fed in job.federations.items()}
    with pytest.raises(RunFolderError, match=r"begun with other data \(the examples changed\)"):
        run(replace(job, federations=feds), RunFolder(half, CONFIG), Silent())


def test_a_changed_partition_is_refused(job: Job, half: Path) -> None:
    feds = {0: job.federations[0], 1: job.federations[0]}
    names = [p for p in half.rglob("*") if p.is_file() and p.name != "versions.json"]
    before = {p: p.read_bytes() for p in names}
    with pytest.raises(RunFolderError, match=r"the partition of seed 1 changed"):
        run(replace(job, federations=feds), RunFolder(half, CONFIG), Silent())
    assert before == {p: p.read_bytes() for p in names}


@dataclass(frozen=True)
class OtherState:
    """As LCFL's, with a field more."""

    models: Tensor
    label: Tensor
    local: Tensor | None
    trained: Tensor
    surprise: int


@dataclass(frozen=True)
class ListState:
    """What no checkpoint can hold."""

    models: list[Tensor]


@dataclass(frozen=True)
class Wrapped(Method):
    """An algorithm with another State."""

    inner: Any
    State: type[Any]

    def init(self, *arguments: Any) -> Any:
        raise AssertionError("no work is to be done")


def test_a_state_with_other_fields_is_refused(job: Job, half: Path) -> None:
    other = replace(job, algorithm=Wrapped(job.algorithm, OtherState))
    with pytest.raises(RunFolderError, match="its State had models, label, local, trained, and"):
        run(other, RunFolder(half, CONFIG), Silent())
    assert json.loads((half / "status.json").read_text())["state"] == "running"


def test_a_state_that_cannot_be_saved_is_refused_before_any_work(job: Job, tmp_path: Path) -> None:
    other = replace(job, algorithm=Wrapped(job.algorithm, ListState))
    with pytest.raises(ConfigError, match=r"Wrapped\.State\.models=list\[.*Tensor\] is not"):
        run(other, RunFolder(tmp_path / "job", CONFIG), Silent())
    assert not (tmp_path / "job").exists()


def test_more_clusters_than_clients_are_refused_before_any_work(job: Job, tmp_path: Path) -> None:
    for algorithm in ({"num_clusters": 9}, {"cluster_method": {"num_clusters": 9}}):
        config = {**CONFIG, "num_clusters": 9, "algorithm": algorithm}
        with pytest.raises(ConfigError, match="num_clusters=9 is not allowed: at most 8 clients"):
            run(job, RunFolder(tmp_path / "job", config), Silent())
    for name in ("min_samples", "min_cluster_size"):
        method = {name: 9}
        config = {**CONFIG, "cluster_method": method, "algorithm": {"method": method}}
        with pytest.raises(ConfigError, match=rf"^cluster_method\.{name}=9 is not"):
            run(job, RunFolder(tmp_path / "job", config), Silent())
    assert not (tmp_path / "job").exists()


def test_a_finished_job_is_left_alone(job: Job, whole: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    run(job, RunFolder(whole, CONFIG), Told(until=0))
    assert before == {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}


def test_a_disk_that_is_full_while_a_state_is_saved_is_an_error_of_the_system(
    job: Job, half: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened_full(Path.open))
        with pytest.raises(OSError, match="No space left on device"):
            run(job, RunFolder(half, CONFIG), Silent())
    run(job, RunFolder(half, CONFIG), Silent())
    assert_same_runs(half, whole)


class FullFile(io.BytesIO):
    """A file on a full disk."""

    def write(self, block: Any) -> int:
        raise OSError(28, "No space left on device")


def opened_full(opened: Callable[..., Any]) -> Callable[..., Any]:
    """`Path.open`, but on a full disk for the states of a checkpoint."""

    def open_(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if path.suffix == ".pt" and "w" in mode:
            return FullFile()
        return opened(path, mode, *rest, **more)

    return open_

"""A finished job whose code or data have changed since."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Cli, npz, put

import fedclust as package

SMALL = ["progress=false", "rounds=1", "partition.num_clients=4", "model=linear", "threads=1"]
METHOD = """
from fedclust.algorithms.fedavg import FedAvg
from helper import NAME
class Mine(FedAvg):
    pass
"""


def is_done_already(said: str) -> bool:
    """Whether that is all that was said of a finished job."""
    return said.startswith("job is done already: test accuracy ") and said.count("\n") == 1


def results(folder: Path) -> dict[Path, bytes]:
    return {
        p: p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name not in ("done.json", ".lock")
    }


@pytest.mark.full
def test_a_finished_job_of_other_code_says_so_and_keeps_its_numbers(
    fedclust: Cli, tmp_path: Path
) -> None:
    yaml = "defaults: [fedavg, _self_]\n_target_: method.Mine\n"
    put(tmp_path / "mine/algorithm/user.yaml", yaml)
    put(tmp_path / "mine/method.py", METHOD)
    helper = put(tmp_path / "mine/helper.py", "NAME = 1")
    job = ["run", "--config-dir", "mine", "algorithm=user", *SMALL, "hydra.run.dir=job"]
    assert fedclust(*job).err.startswith("job is done: ")
    (tmp_path / "mine" / "unrelated.py").write_text("")
    assert is_done_already(fedclust(*job).err)
    before = results(tmp_path / "job")
    helper.write_text("NAME = 2")
    again = fedclust.done(*job)
    warning, done = again.err.splitlines()
    assert is_done_already(f"{done}\n")
    assert "helper.py changed since job was computed: its numbers are those of the old" in warning
    assert "delete the folder, or choose another name=" in warning
    with pytest.warns(UserWarning, match=r"^helper\.py changed since job was") as told:
        package.run(*job[3:], config_dir="mine")
    assert told[0].filename == __file__
    shutil.rmtree(tmp_path / "job" / "checkpoints")
    assert "helper.py changed" in fedclust(*job).err
    assert {p: before[p] for p in results(tmp_path / "job")} == results(tmp_path / "job")


def save(file: Path, pixel: int, *, packed: bool = False) -> None:
    with np.load(npz(file)) as read:
        arrays = dict(read)
    arrays["x_train"][5, 3, 3] = pixel
    (np.savez_compressed if packed else np.savez)(file, **arrays)
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))


DATA = ["dataset=npz", "dataset.path=mine.npz", "partition=iid", "partition.examples_per_client=20"]


@pytest.mark.full
def test_a_finished_job_of_other_data_is_refused(
    fedclust: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.npz"
    save(file, 1)
    job = ["run", *SMALL, *DATA, "algorithm=fedavg", "hydra.run.dir=job"]
    fedclust.done(*job)
    save(file, 1, packed=True)  # the same arrays in another file
    assert is_done_already(fedclust(*job).err)
    with monkeypatch.context() as patch:  # which are not read the next time
        patch.setattr("fedclust.config.data.load_dataset", None)
        assert is_done_already(fedclust(*job).err)
    before = results(tmp_path / "job")
    save(file, 2)
    done = fedclust(*job)
    assert done.status == 2
    assert done.err == (
        "fedclust: job was computed with other data (the examples changed); bring them back, "
        "delete the folder, or choose another name=…\n"
    )
    assert results(tmp_path / "job") == before
    file.unlink()  # kept elsewhere, or deleted for space
    assert is_done_already(fedclust(*job).err)


@pytest.mark.slow
def test_a_report_of_other_data_does_not_call_them_the_same(fedclust: Cli, tmp_path: Path) -> None:
    save(tmp_path / "mine.npz", 1)
    sweep = ["run", "-m", *SMALL, *DATA, "name=two", "seeds=2"]
    fedclust.done(*sweep, "algorithm=fedavg")
    table = tmp_path / "outputs" / "two" / "report" / "table.md"
    assert "different data" not in table.read_text()
    save(tmp_path / "mine.npz", 2)
    done = fedclust(*sweep, "algorithm=fedavg,ifca")
    assert done.status == 2
    assert "was computed with other data" in done.err
    assert "the jobs met different data (the examples): fedavg \\| ifca;" in table.read_text()
    notes = table.with_name("comparison.md").read_text()
    assert "Not all arms used the same data in a given seed" in notes
    assert "all arms use the same data" not in notes

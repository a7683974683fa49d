"""From a publisher's files to a round: `fedclust data NAME --from FOLDER`, then `dataset=NAME`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import theirs
from cli.conftest import Cli, rounds_of


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "clients", "words"),
    [
        ("femnist", 3, ("model=mclr",)),
        ("shakespeare", 3, ("model=lstm", "model.hidden=4", "solver.lr=0.1")),
        ("celeba", 2, ("model=mclr",)),
        ("svhn", 4, ("model=mclr", "partition=iid", "partition.num_clients=4")),
        ("cinic10", 4, ("model=mclr", "partition=iid", "partition.num_clients=4")),
        ("tiny_imagenet", 2, ("model=mclr", "partition=iid", "partition.num_clients=2")),
    ],
)
def test_files_of_a_publisher_become_a_round(
    fedclust: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    clients: int,
    words: tuple[str, ...],
) -> None:
    folder = getattr(theirs, name)(tmp_path / "theirs")
    if name == "svhn":
        theirs.known_digests(monkeypatch, folder)
    theirs.unchecked(monkeypatch)
    run = ("run", f"dataset={name}", "data.root=d", "algorithm=fedavg", "rounds=1", *words)
    fedclust.refused(*run, says=f"`fedclust data {name}` makes it")
    told = fedclust.done("data", name, "--root", "d", "--from", str(folder)).out
    assert told.startswith(f"{name}: ")
    assert f"{name}.npz; as published: " in told
    fedclust.done(*run)
    assert rounds_of(tmp_path / "outputs", "accuracy").notna().all()
    (file,) = (tmp_path / "outputs").rglob("partition/seed=0.parquet")
    assert pd.read_parquet(file)["client"].nunique() == clients


def test_files_that_are_not_theirs_are_one_line(fedclust: Cli, tmp_path: Path) -> None:
    folder = theirs.tiny_imagenet(tmp_path / "theirs")
    words = ("data", "tiny_imagenet", "--root", "d", "--from", str(folder))
    fedclust.refused(*words, says="examples of n07000000 in train, and its publisher gives 500")
    fedclust.refused("data", "celeba", says="--from FOLDER names a folder with identity_CelebA.txt")


@pytest.mark.full
def test_files_of_torchvision_are_copied_once_they_can_be_read(
    fedclust: Cli, every_data_root: Path, tmp_path: Path
) -> None:
    words = ("data", "cifar10", "--root", "d", "--from")
    said = fedclust.done(*words, str(every_data_root)).out
    assert said.endswith(" examples in d\n")
    assert (tmp_path / "d" / "cifar-10-batches-py" / "test_batch").is_file()
    assert fedclust.done(*words, "d").out == said
    (tmp_path / "none").mkdir()
    fedclust.refused(*words, "none", says="--from must be the folder that holds cifar-10-")

"""What a bug report needs is printed, and what is missing is named with its remedy."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from cli.conftest import Cli, put
from packaging.requirements import Requirement

from fedclust.commands import data
from fedclust.commands.data import found
from fedclust.commands.doctor import _data_sets, _lack
from fedclust.datasets.publishers import PUBLISHERS


def test_the_doctor_names_what_is_there_and_what_is_missing(
    fedclust: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CC", "no-compiler")
    done = fedclust.done("doctor")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert f"torch {metadata.version('torch')}" in lines
    assert "C compiler none" in lines
    assert any(line.startswith("cpu ") and "GFLOP/s" in line for line in lines)
    assert any(
        line.startswith(f"looked in {tmp_path / 'nowhere'} (FEDCLUST_DATA)") for line in lines
    )
    assert any(line.startswith("free disk") and str(tmp_path) in line for line in lines)
    told = lines[lines.index("missing") :]
    assert [line for line in told if "`fedclust data " in line] == [
        f"{name}: {data.remedy(name)}" for name in data.known()
    ]
    assert "mnist: `fedclust data mnist` downloads it" in told
    assert any(
        line.startswith("hapt: `fedclust data hapt --from FOLDER` makes it") for line in told
    )
    assert any(line.startswith("a C compiler") for line in told)


@pytest.mark.full
def test_the_engine_of_a_model_is_named(fedclust: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    put(folder / "model/normed.yaml", "_target_: doctored.normed\n")
    (folder / "doctored.py").write_text(
        "from torch import nn\n\n\n"
        "def normed(in_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.RMSNorm(64), nn.Linear(64, num_classes))\n"
    )
    done = fedclust("doctor", "model=normed", "--config-dir", str(folder))
    assert "the fused engine does not know 1 (RMSNorm)" in done.out
    assert "714 numbers" in done.out
    assert "fused" in fedclust("doctor", "model=linear").out
    fedclust.refused("doctor", "normed", says="overrides as of fedclust run")


def test_an_extra_that_does_not_fit_is_told() -> None:
    there = metadata.version("packaging")
    assert _lack(Requirement("packaging")) == ""
    assert _lack(Requirement("packaging<1")) == f"packaging<1 (there is {there})"
    assert _lack(Requirement("no-such-package")) == "no-such-package"


def test_data_are_read_where_they_lie(fedclust: Cli, data_root: Path) -> None:
    done = fedclust("data", "mnist", "--root", str(data_root))
    assert done.out == f"mnist: 60000 + 10000 examples in {data_root}\n"


@pytest.mark.full
def test_a_natural_federation_is_made_of_a_folder(
    fedclust: Cli, data_root: Path, tmp_path: Path
) -> None:
    folder = data_root / "natural" / "heart_disease"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    words = ("data", "heart_disease", "--root", str(tmp_path), "--from")
    done = fedclust(*words, str(folder))
    assert f"in {tmp_path}/natural/heart_disease.csv; as published: 740 patients" in done.out
    for more, says in (
        ([], "--from needs a folder"),
        ([str(tmp_path), "mnist"], "and given is heart_disease, mnist"),
        ([str(tmp_path / "x")], "x is no folder: --from needs one that exists"),
    ):
        fedclust.refused(*words, *more, says=says)


def test_a_download_that_fails_is_one_line(
    fedclust: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.MNIST.download", fail)
    fedclust.refused("data", "mnist", "--root", str(tmp_path), says="MNIST: download into")


@pytest.mark.full
def test_the_doctor_looks_at_all_that_can_be_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that begin from another one's file, and natural federations, too."""
    downloadable = {"mnist", "fashion_mnist", "cifar10", "cifar100"}
    downloadable |= {"emnist", "emnist_letters", "emnist_bymerge"}
    assert set(data.downloadable()) == downloadable
    assert set(data.known()) == downloadable | set(PUBLISHERS)
    (tmp_path / "natural").mkdir()
    for file in ("flights.csv", "fsdd.npz", "fsdd_clients.csv"):
        (tmp_path / "natural" / file).touch()
    assert found("fsdd", str(tmp_path), download=False).startswith(
        f"in {tmp_path}/natural/fsdd.npz, {tmp_path}/natural/fsdd_clients.csv; as published: "
    )
    missing: list[str] = []
    monkeypatch.setenv("FEDCLUST_DATA", str(tmp_path))
    rows = dict(_data_sets(missing))
    assert list(rows) == ["looked in", *data.known()]
    assert "327,346 flights" in rows["flights"]
    assert "emnist-letters-train" in rows["emnist_letters"]
    lack = set(data.known()) - {"flights", "fsdd"}
    assert {line.partition(":")[0] for line in missing} == lack

"""Data sets that papers use, from files as their publishers pack them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import theirs
from refusals import refused
from torchvision.datasets import SVHN, CelebA

from fedclust.datasets import standard
from fedclust.datasets.npz import Npz
from fedclust.datasets.publishers import bring
from fedclust.datasets.tokens import LETTERS
from fedclust.helpers.errors import DataError


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs.unchecked(monkeypatch)


def arrays(name: str, root: Path, folder: Path) -> dict[str, Any]:
    (file,) = bring(name, root, folder)
    with np.load(file, allow_pickle=False) as found:
        return {key: found[key] for key in found}


@pytest.mark.usefixtures("unchecked")
def test_a_writer_of_the_hubs_table_is_a_client(tmp_path: Path) -> None:
    made = arrays("femnist", tmp_path, theirs.femnist(tmp_path / "hub"))
    assert made["x_train"].shape == (60, 28, 28)
    assert made["x_test"].shape == (0, 28, 28)
    assert made["clients"].tolist() == ["f0005_14", "f0006_14", "f0007_14"]
    assert made["client_train"].tolist() == [2] * 20 + [1] * 20 + [0] * 20
    assert made["x_train"][:, 0, 0].tolist() == [
        10 * w + one for w in range(3) for one in range(20)
    ]
    assert made["y_train"].tolist() == [*range(20)] * 3
    data = Npz(path=str(tmp_path / "natural" / "femnist.npz"), classes=62).load()
    assert data.names.clients == ("f0005_14", "f0006_14", "f0007_14")
    assert data.test_owner is None


def test_a_part_of_the_hubs_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs.femnist(tmp_path / "hub")
    with refused(DataError, r"femnist has 60 examples in all, and its publisher gives 814,277: do"):
        bring("femnist", tmp_path, tmp_path / "hub")
    monkeypatch.setattr(standard, "FEMNIST_ROWS", 60)
    bring("femnist", tmp_path, tmp_path / "hub")
    file = next((tmp_path / "hub").rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    with refused(DataError, r"femnist: cannot read .*hub"):
        bring("femnist", tmp_path, tmp_path / "hub")
    for one in (tmp_path / "hub").rglob("*.parquet"):
        one.unlink()
    with refused(DataError, r"femnist: .*hub lacks what is needed: data/train-\*.parquet"):
        bring("femnist", tmp_path, tmp_path / "hub")


def test_leafs_writers_keep_leafs_tests(tmp_path: Path) -> None:
    pixels = [[round(one / 784, 3) for one in range(784)]]
    users = {"f1_b": (pixels * 2, [0, 61]), "f1_a": (pixels, [5])}
    theirs.leaf(tmp_path / "leaf" / "data" / "train", users)
    theirs.leaf(tmp_path / "leaf" / "data" / "train", {"f0_c": (pixels, [3])}, "b")
    theirs.leaf(tmp_path / "leaf" / "data" / "test", {"f1_b": (pixels, [1])})
    made = arrays("femnist", tmp_path, tmp_path / "leaf")
    assert made["clients"].tolist() == ["f0_c", "f1_a", "f1_b"]
    assert made["client_train"].tolist() == [2, 2, 1, 0]
    assert made["client_test"].tolist() == [2]
    assert (made["y_train"].tolist(), made["y_test"].tolist()) == ([0, 61, 5, 3], [1])
    assert made["x_test"].dtype == np.uint8
    assert made["x_test"].reshape(-1).tolist() == [round(255 * one) for one in pixels[0]]
    for x, y, says in (
        ([[2.0] * 784], [1], r"femnist: pixels span 2 to 2: LEAF's lie in \[0, 1\]"),
        (pixels, [62], r"femnist: classes span 0 to 62: 0 to 61 are needed"),
        (pixels, [1.5], "femnist: a class is no whole number: 0 to 61 are needed"),
        ([[0.5] * 10], [1], r"femnist: cannot read .*leaf"),
    ):
        theirs.leaf(tmp_path / "leaf" / "data" / "train", {"f0_c": (x, y)}, "b")
        with refused(DataError, says):
            bring("femnist", tmp_path, tmp_path / "leaf")


@pytest.mark.usefixtures("unchecked")
def test_the_end_of_a_role_tests_and_shares_no_character(tmp_path: Path) -> None:
    folder = theirs.shakespeare(tmp_path / "hub")
    made = arrays("shakespeare", tmp_path, folder)
    # of 200 windows the last 20, and the 80 before them are left out
    assert np.bincount(made["client_train"]).tolist() == [100] * 3
    assert np.bincount(made["client_test"]).tolist() == [20] * 3
    text = " " * 80 + (theirs.SPEECH * 4)[:200]
    first = made["client_test"].tolist().index(0)
    assert "".join(LETTERS[one] for one in made["x_test"][first]) == text[180:260]
    assert LETTERS[made["y_test"][first]] == text[260]
    data = Npz(path=str(tmp_path / "natural/shakespeare.npz"), vocabulary=80, classes=80).load()
    assert data.shape == (80,)
    assert data.test_owner is not None


@pytest.mark.usefixtures("unchecked")
def test_a_role_with_few_windows_tests_nothing(tmp_path: Path) -> None:
    made = arrays("shakespeare", tmp_path, theirs.shakespeare(tmp_path / "hub", 1, 50))
    assert (len(made["y_train"]), len(made["y_test"])) == (50, 0)


def test_an_unknown_character_is_the_last_of_leafs(tmp_path: Path) -> None:
    text = "é[" + "a" * 78
    theirs.leaf(tmp_path / "train", {"b": ([text], ["…"]), "a": ([text], ["a"])})
    theirs.leaf(tmp_path / "test", {"b": ([text], ["["])})
    made = arrays("shakespeare", tmp_path, tmp_path)
    assert made["x_train"][0, :3].tolist() == [79, LETTERS.index("["), LETTERS.index("a")]
    assert made["y_train"].tolist() == [79, LETTERS.index("a")]
    assert made["client_train"].tolist() == [1, 0]
    theirs.leaf(tmp_path / "train", {"b": (["too short"], ["a"])})
    with refused(DataError, r"shakespeare: 'too short' is no text of 80 characters"):
        bring("shakespeare", tmp_path, tmp_path)


def test_a_table_of_speech_without_its_columns_or_rows(tmp_path: Path) -> None:
    folder = theirs.shakespeare(tmp_path / "hub", 1, 100)
    with refused(DataError, r"shakespeare has 100 examples in all, .* gives 4,226,158: download"):
        bring("shakespeare", tmp_path, folder)
    (folder / "shakespeare.csv").write_text("who,x,y\n")
    with refused(DataError, r"lacks the column character_id: character_id x y are needed"):
        bring("shakespeare", tmp_path, folder)


@pytest.mark.usefixtures("unchecked")
def test_celebrities_of_five_faces_smile_or_not(tmp_path: Path) -> None:
    folder = theirs.celeba(tmp_path / "celeba")
    made = arrays("celeba", tmp_path, folder)
    assert made["x_train"].shape == (22, 84, 84, 3)
    assert made["clients"].tolist() == ["100", "102"]
    assert np.bincount(made["client_train"]).tolist() == [12, 10]
    kept = [one for one in range(26) if not 12 <= one < 16]
    assert made["y_train"].tolist() == [int(one % 3 == 0) for one in kept]
    assert np.abs(made["x_train"][:, 9, 9, 0].astype(int) - 5 * np.array(kept)).max() <= 1
    (folder / "img_align_celeba" / "000003.jpg").unlink()
    with refused(DataError, r"celeba: cannot read .*000003.jpg"):
        bring("celeba", tmp_path, folder)


def test_lists_of_celebrities_have_the_digest_that_torchvision_knows(tmp_path: Path) -> None:
    folder = theirs.celeba(tmp_path / "celeba")
    digest = {name: md5 for _, md5, name in CelebA.file_list}["identity_CelebA.txt"]
    with refused(DataError, rf"celeba: .*identity_CelebA.txt is damaged or .* {digest} is needed"):
        bring("celeba", tmp_path, folder)
    with refused(DataError, r"celeba: no address is known to download from: --from FOLDER names"):
        bring("celeba", tmp_path)


def test_house_numbers_are_read_as_torchvision_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = theirs.svhn(tmp_path / "svhn")
    digest = SVHN.split_list["train"][2]
    with refused(DataError, rf"svhn: .*train_32x32.mat is damaged .* {digest} is needed"):
        bring("svhn", tmp_path, folder)
    theirs.known_digests(monkeypatch, folder)
    made = arrays("svhn", tmp_path, folder)
    assert made["x_train"].shape == (40, 32, 32, 3)
    assert made["x_test"][:, 0, 1, 2].tolist() == [*range(20)]
    assert made["y_test"][:11].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert Npz(path=str(tmp_path / "images" / "svhn.npz")).load().num_classes == 10
    (folder / "test_32x32.mat").unlink()
    with refused(DataError, r"svhn: .* lacks what is needed: train_32x32.mat and test_32x32.mat"):
        bring("svhn", tmp_path, folder)


def test_classes_of_cinic10_are_those_of_cifar10(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = theirs.cinic10(tmp_path / "cinic")
    says = r"cinic10 has 2 examples of airplane in train, and its publisher gives 9,000: download"
    with refused(DataError, says):
        bring("cinic10", tmp_path, folder)
    theirs.unchecked(monkeypatch)
    made = arrays("cinic10", tmp_path, folder)
    assert made["x_train"].shape == made["x_test"].shape == (20, 32, 32, 3)
    assert made["y_test"].tolist() == np.repeat(range(10), 2).tolist()
    assert made["x_train"][:, 0, 0, 1].tolist() == [n + one for n in range(10) for one in range(2)]


def test_pictures_of_val_test_tiny_imagenet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = theirs.tiny_imagenet(tmp_path / "tiny")
    says = r"tiny_imagenet has 2 examples of n07000000 in train, and its publisher gives 500: do"
    with refused(DataError, says):
        bring("tiny_imagenet", tmp_path, folder)
    theirs.unchecked(monkeypatch)
    made = arrays("tiny_imagenet", tmp_path, folder)
    assert made["x_train"].shape == (6, 64, 64, 3)
    assert made["y_train"].tolist() == [0, 0, 1, 1, 2, 2]
    # the classes are in the order of their names, which is not that of wnids.txt
    assert made["x_test"][:, 5, 5, 0].tolist() == [80, 40, 0]


@pytest.mark.parametrize("name", ["femnist", "shakespeare", "celeba", "svhn", "cinic10"])
def test_an_empty_folder_lacks_what_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(DataError, match=rf"{name}: .*in lacks what is needed: \w"):
        bring(name, tmp_path, tmp_path / "in")
    assert [one.name for one in tmp_path.iterdir()] == ["in"]


@pytest.mark.usefixtures("unchecked")
def test_files_of_the_hub_are_held_against_the_digests_that_it_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    digest = "0" * 64

    class Api:
        def dataset_info(self, name: str, *, files_metadata: bool) -> SimpleNamespace:
            assert (name, files_metadata) == ("flwrlabs/femnist", True)
            lfs = SimpleNamespace(sha256=digest)
            data = [f"data/train-0000{part}-of-00002.parquet" for part in range(2)]
            return SimpleNamespace(
                sha="abc",
                siblings=[
                    SimpleNamespace(rfilename="README.md", lfs=None),
                    *(SimpleNamespace(rfilename=name, lfs=lfs) for name in data[:1]),
                ],
            )

    def snapshot(name: str, *, repo_type: str, revision: str, local_dir: Path) -> None:
        assert (name, repo_type, revision) == ("flwrlabs/femnist", "dataset", "abc")
        theirs.femnist(Path(local_dir))

    monkeypatch.setattr(hub, "HfApi", Api)
    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    with refused(DataError, r"femnist: the download of data/train-00000-of-00002.parquet is damag"):
        bring("femnist", tmp_path)
    file = theirs.femnist(tmp_path / "same") / "data" / "train-00000-of-00002.parquet"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert bring("femnist", tmp_path) == [tmp_path / "natural" / "femnist.npz"]

    def offline(*_: object, **__: object) -> None:
        raise RuntimeError("no network")  # of a library's own kind

    monkeypatch.setattr(hub, "snapshot_download", offline)
    with refused(DataError, r"femnist: download from https://hugg.* failed \(no network\): check"):
        bring("femnist", tmp_path)


def test_a_download_of_two_files_is_read_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = theirs.svhn(tmp_path / "svhn")
    theirs.known_digests(monkeypatch, folder)
    asked: list[str] = []

    def opens(url: str, **_: object) -> Any:
        asked.append(url)
        return (folder / url.rsplit("/", 1)[-1]).open("rb")

    bring("svhn", tmp_path, download=opens)
    assert asked == [SVHN.split_list[part][0] for part in ("train", "test")]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"client_train": np.zeros(3, int)}, r"client_train of type int64 and shape \(3,\)"),
        ({"client_train": np.zeros(4)}, r"client_train of type float64 .*: one whole number for"),
        ({"client_train": np.zeros(4, int)}, r"client_test of none: one whole number for each of"),
        ({"clients": np.array(["a"])}, r"client_train of none"),
        (
            {"client_train": np.array([0, 1, 2, 0]), "client_test": np.array([-1, 0])},
            r"clients from -1 to 2: they are numbered from 0:|from -1 to 2: they are numbered f",
        ),
        (
            {
                **{"client_train": np.array([0, 1, 2, 0]), "client_test": np.array([0, 0])},
                "clients": np.array(["a", "b"]),
            },
            r"clients from 0 to 2: they are numbered from 0, and clients names 2",
        ),
    ],
)
def test_clients_of_arrays_that_do_not_fit(
    tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    x, y = np.zeros((4, 2)) + np.arange(4)[:, None], np.array([0, 1, 0, 1])
    whole = {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2], **given}
    np.savez(tmp_path / "own.npz", **whole)
    with refused(DataError, says):
        Npz(path=str(tmp_path / "own.npz")).load()


def test_a_file_that_can_be_made_says_how(tmp_path: Path) -> None:
    with refused(DataError, r"npz: .*femnist.npz not found: `fedclust data femnist` makes it"):
        Npz(path=str(tmp_path / "femnist.npz")).load()

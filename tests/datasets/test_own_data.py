"""A user's own arrays and images."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused

from fedclust.datasets.image_folder import ImageFolder
from fedclust.datasets.npz import Npz
from fedclust.helpers.errors import ConfigError, DataError, UserError

RNG = np.random.default_rng(0)


def save(path: Path, x: np.ndarray, tests: np.ndarray, **changes: np.ndarray | None) -> Path:
    arrays = {
        "x_train": x,
        "y_train": np.arange(len(x)) % 3,
        "x_test": tests,
        "y_test": np.arange(len(tests)) % 3,
    }
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})
    return path


@pytest.mark.parametrize(
    ("shape", "seen"),
    [((28, 28), (1, 28, 28)), ((8, 6, 3), (3, 8, 6)), ((8, 8, 1), (1, 8, 8)), ((7,), (7,))],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_npz_layouts(
    shape: tuple[int, ...], seen: tuple[int, ...], dtype: type, tmp_path: Path
) -> None:
    x = RNG.integers(0, 256, (12, *shape)).astype(dtype)
    dataset = Npz(path=str(save(tmp_path / "own.npz", x, x[:6]))).load()
    assert dataset.shape == seen
    assert dataset.num_classes == 3
    assert dataset.name == "own"
    assert dataset.x_train.dtype == (torch.uint8 if dtype is np.uint8 else torch.float32)
    if len(shape) == 3:
        np.testing.assert_array_equal(dataset.x_train, x.transpose(0, 3, 1, 2))
    else:
        np.testing.assert_array_equal(dataset.x_train.numpy().reshape(x.shape), x)
    inputs = (dataset.x_train * dataset.scale + dataset.shift).double()
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-5)


def test_npz_normalisation_words(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (12, 4, 4)).astype(np.uint8)
    path = str(save(tmp_path / "own.npz", x, x[:6]))
    for word, expected in (("unit", x / 255), ("inverted", 1 - x / 255), ("none", x)):
        dataset = Npz(path=path, normalise=word).load()
        seen = dataset.x_train * dataset.scale + dataset.shift
        np.testing.assert_allclose(seen[:, 0], expected, atol=1e-6)
    path = str(save(tmp_path / "real.npz", x / 255, x[:6] / 255))
    with pytest.raises(
        ConfigError, match=r"dataset.normalise=unit is not allowed: mean_std, pixel or none"
    ):
        Npz(path=path, normalise="unit").load()


X = RNG.integers(0, 256, (12, 4, 4)).astype(np.uint8)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"x_train": X[0]}, r"training examples have shape \(4,\)"),
        ({"x_train": X.reshape(12, 2, 4, 2)}, "has x_train of shape"),
        ({"x_test": X[:6, :3]}, "both must be equal"),
        ({"x_test": X[:6].astype(float)}, "x_test torch.float32: both must be equal"),
        ({"y_train": np.arange(11)}, "12 train examples but 11 train labels"),
        ({"y_train": np.linspace(0, 1, 12)}, "integers of shape"),
        ({"y_train": np.eye(12, dtype=int)}, r"save np.argmax\(y_train, 1\), the numbers"),
        ({"y_train": np.arange(24).reshape(12, 2)}, "integers of shape"),
        ({"y_train": np.array([1, None] * 6)}, r"y_train.astype\(int\) makes them"),
        (
            {"y_test": np.array([0, 1, 2, 3, 0, 1])},
            "test labels span 0 to 3: they must lie in 0 to 2",
        ),
        ({"y_train": np.arange(12) % 3 - 1}, "train labels span -1 to 1"),
        (
            {"y_train": np.array([0, 3] * 6), "y_test": np.zeros(6, int)},
            r"from 0 to 3 but no example of class 1, 2: .* without gaps",
        ),
        (
            {"y_train": np.arange(12) % 2 + 8, "y_test": np.zeros(6, int)},
            "no example of class 0, 1, 2, 3, 4, …: classes are numbered",
        ),
        ({"y_train": np.arange(12) * 10**17}, "no example of class 1, 2, 3, 4, 5, …: classes"),
        ({"y_train": -np.arange(12) - 5}, "train labels span -16 to -5"),
        ({"x_train": X[:0], "y_train": np.arange(0)}, "no training examples"),
        ({"y_train": np.zeros(12, int), "y_test": np.zeros(6, int)}, "nothing to learn"),
        ({"x_train": np.array(["a"] * 12)[:, None]}, "has x_train of type"),
        ({"x_train": np.ones((12, 0))}, r"shape \(12, 0\): .* H, W and F at least 1"),
        ({"x_train": np.ones((12, 0, 4))}, r"shape \(12, 0, 4, 1\): "),
        ({"y_test": np.full(6, 2**63, np.uint64)}, "has y_test up to 9223372036854775808: "),
        (
            {"x_train": np.array([{}] * 12, dtype=object)[:, None]},
            "x_train of type object: save numbers",
        ),
        ({"x_train": X * 1e-42}, "x_train of at most 2.6e-40: that is next to nothing in float32"),
        ({"x_test": X[:6] * 1e-50}, "x_test of at most"),
        (
            {"x_train": X[:, 0] * [1, 1e-42, 1, 1], "x_test": X[:6, 0] * 1.0},
            "a feature varies by less than float32 can scale: give it in another unit",
        ),
    ],
)
def test_npz_errors_are_one_line(changes: dict[str, np.ndarray], says: str, tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", X, X[:6], **changes)
    with refused(UserError, says):
        Npz(path=str(path)).load()


def test_npz_missing_damaged_or_not_finite(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not found: set dataset.path"):
        Npz(path=str(tmp_path / "no.npz")).load()
    path = save(tmp_path / "own.npz", X, X[:6])
    path.write_bytes(path.read_bytes()[:300])
    with refused(DataError, r"cannot read .*own.npz"):
        Npz(path=str(path)).load()
    path.write_text("hello")
    with pytest.raises(
        DataError, match=r"own.npz is no file that np.savez has written: save x_train"
    ):
        Npz(path=str(path)).load()
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(DataError, match=r"one.npy holds one array, .* np.savez writes the file"):
        Npz(path=str(tmp_path / "one.npy")).load()
    bad = X.astype(np.float32)
    bad[3, 1, 1] = np.nan
    save(path, bad, bad[:2] * 0)
    said = rf"npz: {path}: training examples hold values that are not finite, .* first example 3:"
    with pytest.raises(DataError, match=said):
        Npz(path=str(path)).load()
    huge = np.full((12, 4, 4), 1e300)
    for train, test in (
        (X.astype(np.float64), huge[:2]),
        (huge * (np.arange(12) - 6)[:, None, None], X),
    ):
        save(path, train, test[:2].astype(np.float64))
        with (
            warnings.catch_warnings(action="error"),
            pytest.raises(DataError, match=r"examples hold .* too large for float32"),
        ):
            Npz(path=str(path)).load()


def write_images(folder: Path, classes: tuple[str, ...] = ("cat", "dog")) -> None:
    for part, count in (("train", 3), ("test", 2)):
        for c, name in enumerate(classes):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                colour = (200, 0, 0) if c == 0 else (0, 0, 200)
                Image.new("RGB", (20 + i, 11), colour).save(folder / part / name / f"{i}.png")


def test_arrays_and_pictures_that_stand_in_both_parts_are_told(tmp_path: Path) -> None:
    x = RNG.normal(size=(60, 5))
    same = Npz(path=str(save(tmp_path / "own.npz", x, x[:12]))).load()
    assert "12 of 12 test examples stand among the training examples" in same.remarks[0]
    some = np.concatenate([x[:4], RNG.normal(size=(8, 5))])
    assert not Npz(path=str(save(tmp_path / "own.npz", x, some))).load().remarks
    write_images(tmp_path, ("a", "b", "c"))  # each of one colour
    found = ImageFolder(path=str(tmp_path), size=8).load()
    assert not found.remarks  # b and c look the same: equal pictures are no copies there
    write_images(tmp_path / "two", tuple("ab"))
    for name in "ab":
        for part in ("train", "test"):
            for i in range(3, 6):
                (tmp_path / f"two/{part}/{name}/{i}.png").write_bytes(
                    (tmp_path / f"two/{part}/{name}/0.png").read_bytes()
                )
    found = ImageFolder(path=str(tmp_path / "two"), size=8).load()
    assert "10 of 10 test examples stand among the training examples" in found.remarks[0]


def test_image_folder(tmp_path: Path) -> None:
    write_images(tmp_path)
    dataset = ImageFolder(path=str(tmp_path), size=8, normalise="unit").load()
    assert dataset.shape == (3, 8, 8)
    assert dataset.y_train.tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.y_test.tolist() == [0, 0, 1, 1]
    assert dataset.x_train[0, :, 4, 4].tolist() == [200, 0, 0]
    assert dataset.x_train[5, :, 4, 4].tolist() == [0, 0, 200]
    grey = ImageFolder(path=str(tmp_path), size=8, grayscale=True).load()
    assert grey.shape == (1, 8, 8)
    assert grey.x_train.dtype == torch.uint8


def test_image_folder_errors_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train not found: set dataset.path"):
        ImageFolder(path=str(tmp_path)).load()
    write_images(tmp_path / "a")
    (tmp_path / "a/test/cat/1.png").write_bytes(b"no image")
    with refused(DataError, r"cannot read .*1\.png.* or change dataset.path"):
        ImageFolder(path=str(tmp_path / "a")).load()
    write_images(tmp_path / "b")
    (tmp_path / "b/test/dog").rename(tmp_path / "b/test/wolf")
    with pytest.raises(DataError, match="class dog is not in both"):
        ImageFolder(path=str(tmp_path / "b")).load()
    (tmp_path / "c/train/cat").mkdir(parents=True)
    (tmp_path / "c/test/cat").mkdir(parents=True)
    with refused(DataError, r"cannot read .* or change dataset.path"):
        ImageFolder(path=str(tmp_path / "c")).load()
    with pytest.raises(ConfigError, match=r"ImageFolder.size=0"):
        ImageFolder(path=".", size=0)


@pytest.mark.slow
def test_real_cifar10_through_npz(data_root: Path, tmp_path: Path) -> None:
    path = tmp_path / "cifar10.npz"
    subprocess.run([sys.executable, str(data_root / "unpack_cifar10.py"), str(path)], check=True)
    dataset = Npz(path=str(path)).load()
    assert dataset.shape == (3, 32, 32)
    assert (len(dataset.x_train), len(dataset.x_test)) == (50_000, 10_000)
    assert dataset.y_train.bincount().tolist() == [5000] * 10
    # the published channel statistics, within the error of the JPEG copy
    std = 1 / dataset.scale.flatten() / 255
    mean = -dataset.shift.flatten() * std
    torch.testing.assert_close(mean, torch.tensor([0.4914, 0.4822, 0.4465]), atol=2e-3, rtol=0)
    torch.testing.assert_close(std, torch.tensor([0.2470, 0.2435, 0.2616]), atol=3e-3, rtol=0)


def test_files_of_an_image_folder_are_read_or_named(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("L", (4, 4), 200).save(tmp_path / part / name / "0.gif")
            (tmp_path / part / name / ".hidden").write_text("no picture")
    assert len(ImageFolder(path=str(tmp_path), size=4).load().x_train) == 2
    (tmp_path / "train" / "a" / "notes.txt").write_text("no picture")
    with pytest.raises(DataError, match=r"notes.txt is no picture that is read here"):
        ImageFolder(path=str(tmp_path), size=4).load()
    (tmp_path / "train" / "a" / "notes.txt").unlink()
    (tmp_path / "train" / "a" / "loop").symlink_to(tmp_path / "train" / "a")
    with pytest.raises(DataError, match=r"a/loop is the folder .*train/a, by a link"):
        ImageFolder(path=str(tmp_path), size=4).load()


def test_labels_of_truth_values_and_classes_without_an_example(tmp_path: Path) -> None:
    y = np.arange(12) % 2 == 1
    np.savez(tmp_path / "a.npz", x_train=X, y_train=y, x_test=X[:6], y_test=y[:6])
    dataset = Npz(path=str(tmp_path / "a.npz")).load()
    assert (dataset.y_train.tolist(), dataset.num_classes) == ([0, 1] * 6, 2)
    gaps = {"y_train": np.arange(12) % 3 * 2, "y_test": np.arange(6)}
    np.savez(tmp_path / "b.npz", x_train=X, x_test=X[:6], **gaps)
    dataset = Npz(path=str(tmp_path / "b.npz"), classes=7).load()
    assert (dataset.num_classes, dataset.y_test.tolist()) == (7, [0, 1, 2, 3, 4, 5])
    with pytest.raises(DataError, match=r"dataset.classes=N takes 0 to N - 1"):
        Npz(path=str(tmp_path / "b.npz")).load()
    with pytest.raises(DataError, match="test labels span 0 to 5: they must lie in 0 to 4"):
        Npz(path=str(tmp_path / "b.npz"), classes=5).load()

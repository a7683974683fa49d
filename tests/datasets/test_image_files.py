"""The loaders of torchvision's files: on the real files, on small and damaged ones in the same
format.
"""

import hashlib
import pickle
import re
import struct
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
import yaml
from refusals import refused

from fedclust.config.tree import CONF
from fedclust.core.types import Dataset
from fedclust.datasets.images import CIFAR10, CIFAR100, EMNIST, MNIST, FashionMNIST
from fedclust.helpers.errors import ConfigError, DataError


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def write_mnist(root: Path, name: str = "MNIST") -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 20), ("t10k", 10)):
        stem = root / name / "raw" / part
        write_idx(Path(f"{stem}-images-idx3-ubyte"), rng.integers(0, 256, (count, 28, 28)))
        write_idx(Path(f"{stem}-labels-idx1-ubyte"), np.arange(count) % 10)


def check(dataset: Dataset, num_train: int, num_test: int) -> None:
    assert dataset.x_train.dtype == dataset.x_test.dtype == torch.uint8
    assert dataset.y_train.dtype == dataset.y_test.dtype == torch.int64
    assert (len(dataset.x_train), len(dataset.y_train)) == (num_train, num_train)
    assert (len(dataset.x_test), len(dataset.y_test)) == (num_test, num_test)
    assert dataset.y_train.unique().tolist() == list(range(dataset.num_classes))
    torch.broadcast_to(dataset.scale, dataset.shape)
    torch.broadcast_to(dataset.shift, dataset.shape)


def test_mnist_as_the_models_see_it(data_root: Path) -> None:
    dataset = MNIST(root=str(data_root)).load()
    check(dataset, 60_000, 10_000)
    assert dataset.shape == (1, 28, 28)
    # class counts of the official file
    count = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert dataset.y_train.bincount().tolist() == count
    inputs = dataset.x_train[:20_000] * dataset.scale + dataset.shift
    assert abs(float(inputs.mean())) < 0.01
    assert abs(float(inputs.std()) - 1) < 0.01


def test_pixel_statistics_come_from_all_of_mnist_but_from_the_training_set_of_fashion(
    data_root: Path,
) -> None:
    for loader, pooled in ((MNIST, True), (FashionMNIST, False)):
        dataset = loader(root=str(data_root), normalise="pixel").load()
        check(dataset, 60_000, 10_000)
        images = torch.cat([dataset.x_train, dataset.x_test]) if pooled else dataset.x_train
        pixel = images[:, 0, 14, 14].double()
        seen = dataset.x_test[:100, 0, 14, 14] * dataset.scale[0, 14, 14] + dataset.shift[0, 14, 14]
        expected = (dataset.x_test[:100, 0, 14, 14] - pixel.mean()) / (
            pixel.std(correction=0) + 0.001
        )
        torch.testing.assert_close(seen.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("loader", "file"),
    [
        (MNIST, "MNIST/raw/train-images-idx3-ubyte"),
        (FashionMNIST, "FashionMNIST/raw/train-images-idx3-ubyte"),
        (CIFAR10, "cifar-10-batches-py/data_batch_1"),
        (CIFAR100, "cifar-100-python/train"),
        (EMNIST, "EMNIST/raw/emnist-byclass-train-images-idx3-ubyte"),
    ],
)
def test_a_missing_file_is_one_line_that_names_it_and_both_ways_out(
    loader: type, file: str, tmp_path: Path
) -> None:
    with refused(DataError, re.escape(str(tmp_path / file))) as error:
        loader(root=str(tmp_path)).load()
    assert "data.root=" in str(error.value)
    assert "`fedclust data` fetches it" in str(error.value)


def test_one_missing_file_of_four_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    check(MNIST(root=str(tmp_path)).load(), 20, 10)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with refused(DataError, "t10k-labels-idx1-ubyte not found"):
        MNIST(root=str(tmp_path)).load()


@pytest.mark.parametrize("kept", [0, 10, 16, 1000])
def test_a_truncated_file_is_one_line_that_names_it(kept: int, tmp_path: Path) -> None:
    write_mnist(tmp_path)
    file = tmp_path / "MNIST/raw/train-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:kept])
    with refused(DataError, r"cannot read .*train-images-idx3-ubyte.*data\.root"):
        MNIST(root=str(tmp_path)).load()


def test_labels_outside_the_classes_and_unequal_lengths_are_told(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_idx(tmp_path / "MNIST/raw/train-labels-idx1-ubyte", np.arange(20))
    with refused(DataError, "train labels span 0 to 19: they must lie in 0 to 9"):
        MNIST(root=str(tmp_path)).load()
    write_idx(tmp_path / "MNIST/raw/train-labels-idx1-ubyte", np.arange(19) % 10)
    with refused(DataError, "20 train examples but 19 train labels"):
        MNIST(root=str(tmp_path)).load()


@pytest.mark.parametrize(
    "failure",
    [
        urllib.error.URLError("Name or service not known"),
        RuntimeError("Error downloading\nTried a\nTried b"),
        PermissionError("read-only"),
    ],
)
def test_a_failed_download_is_one_line(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(self: object) -> None:
        raise failure

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", offline)
    with refused(DataError, r"MNIST.* download into .* failed") as error:
        MNIST(root=str(tmp_path), download=True).load()
    assert "train-images-idx3-ubyte" in str(error.value)


def test_nothing_is_downloaded_when_the_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object) -> None:
        raise AssertionError("called")

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", refuse)
    write_mnist(tmp_path)
    check(MNIST(root=str(tmp_path), download=True).load(), 20, 10)


def write_emnist(root: Path, split: str, labels: np.ndarray) -> np.ndarray:
    upright = np.zeros((len(labels), 28, 28), dtype=np.uint8)
    upright[:, 3, 5:20] = 200  # a horizontal bar near the top
    for part in ("train", "test"):
        stem = root / "EMNIST" / "raw" / f"emnist-{split}-{part}"
        write_idx(Path(f"{stem}-images-idx3-ubyte"), upright.swapaxes(1, 2))
        write_idx(Path(f"{stem}-labels-idx1-ubyte"), labels)
    return upright


@pytest.mark.parametrize(
    ("split", "first", "classes"),
    [("byclass", 0, 62), ("bymerge", 0, 47), ("balanced", 0, 47), ("letters", 1, 26)],
)
def test_emnist_is_upright_and_its_labels_start_at_zero(
    split: str, first: int, classes: int, tmp_path: Path
) -> None:
    upright = write_emnist(tmp_path, split, np.arange(first, first + classes))
    dataset = EMNIST(root=str(tmp_path), split=split, normalise="inverted").load()
    check(dataset, classes, classes)
    assert dataset.num_classes == classes
    np.testing.assert_array_equal(dataset.x_train[:, 0], upright)
    np.testing.assert_array_equal(dataset.x_test[:, 0], upright)
    seen = dataset.x_train[0] * dataset.scale + dataset.shift
    assert float(seen[0, 0, 0]) == pytest.approx(1.0)  # background white
    assert float(seen[0, 3, 10]) == pytest.approx(1 - 200 / 255, abs=1e-6)


def test_emnist_mean_and_deviation_are_those_of_its_training_images(tmp_path: Path) -> None:
    write_emnist(tmp_path, "balanced", np.arange(47))
    dataset = EMNIST(root=str(tmp_path), split="balanced").load()
    inputs = (dataset.x_train * dataset.scale + dataset.shift).double()
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-5)
    assert float(inputs.std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_an_unknown_emnist_split_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"EMNIST.split=digits is not allowed: one of byclass"):
        EMNIST(root="data", split="digits")


def test_cifar10_is_channels_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [str(i) for i in range(10)]
    parts = (
        ("data_batch_1", {"labels": [i % 10 for i in range(20)]}),
        ("test_batch", {"labels": list(range(10))}),
        ("batches.meta", {"label_names": names}),
    )
    planes = write_cifar(tmp_path, monkeypatch, "CIFAR10", "label_names", parts)
    dataset = CIFAR10(root=str(tmp_path)).load()
    check(dataset, 20, 10)
    np.testing.assert_array_equal(dataset.x_train, planes)
    expected = (planes[0, 2, 0, 0] / 255 - 0.44653124) / 0.26158768
    seen = float(dataset.x_train[0, 2, 0, 0] * dataset.scale[2, 0, 0] + dataset.shift[2, 0, 0])
    assert seen == pytest.approx(expected, abs=1e-5)
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"other")
    with refused(DataError, r"cannot read .*cifar-10-batches-py"):
        CIFAR10(root=str(tmp_path)).load()


def write_cifar(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    key: str,
    parts: Sequence[tuple[str, dict[str, Any]]],
) -> np.ndarray:
    """A small CIFAR in the files of the real one, whose checksums torchvision then expects; the
    images of the first part.
    """
    kind = getattr(torchvision.datasets, name)
    (root / kind.base_folder).mkdir()
    sums, planes = {}, []
    for part, content in parts:
        count = len(next(iter(content.values())))
        planes.append(np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8))
        data = pickle.dumps({**content, "data": planes[-1].reshape(count, -1)})
        (root / kind.base_folder / part).write_bytes(data)
        sums[part] = hashlib.md5(data).hexdigest()
    train, test, meta = sums
    monkeypatch.setattr(kind, "train_list", [[train, sums[train]]])
    monkeypatch.setattr(kind, "test_list", [[test, sums[test]]])
    monkeypatch.setattr(kind, "meta", {"filename": meta, "key": key, "md5": sums[meta]})
    return planes[0]


SUPERCLASSES = """
beaver dolphin otter seal whale, aquarium_fish flatfish ray shark trout,
orchid poppy rose sunflower tulip, bottle bowl can cup plate,
apple mushroom orange pear sweet_pepper, clock keyboard lamp telephone television,
bed chair couch table wardrobe, bee beetle butterfly caterpillar cockroach,
bear leopard lion tiger wolf, bridge castle house road skyscraper,
cloud forest mountain plain sea, camel cattle chimpanzee elephant kangaroo,
fox porcupine possum raccoon skunk, crab lobster snail spider worm,
baby boy girl man woman, crocodile dinosaur lizard snake turtle,
hamster mouse rabbit shrew squirrel, maple_tree oak_tree palm_tree pine_tree willow_tree,
bicycle bus motorcycle pickup_truck train, lawn_mower rocket streetcar tank tractor
"""  # in their order on the page of CIFAR-100, which is the alphabetical one of their names


def test_cifar100_in_classes_and_superclasses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = (
        ("train", {"fine_labels": [i % 100 for i in range(200)]}),
        ("test", {"fine_labels": list(range(100))}),
        ("meta", {"fine_label_names": [str(i) for i in range(100)]}),
    )
    planes = write_cifar(tmp_path, monkeypatch, "CIFAR100", "fine_label_names", parts)
    fine, coarse = (
        CIFAR100(root=str(tmp_path), labels=labels).load() for labels in ("fine", "coarse")
    )
    check(fine, 200, 100)
    check(coarse, 200, 100)
    np.testing.assert_array_equal(fine.x_train, planes)
    assert fine.y_train.tolist() == [i % 100 for i in range(200)]
    families = [family.split() for family in SUPERCLASSES.split(",")]
    names = sorted(name for family in families for name in family)
    members = [[names.index(name) for name in family] for family in families]
    assert [coarse.y_test[classes].unique().tolist() for classes in members] == [
        [i] for i in range(20)
    ]
    subsets = yaml.safe_load((CONF / "partition" / "superclasses.yaml").read_text())["subsets"]
    assert subsets == members
    seen = float(fine.x_train[0, 0, 0, 0] * fine.scale[0, 0, 0] + fine.shift[0, 0, 0])
    assert seen == pytest.approx((planes[0, 0, 0, 0] / 255 - 0.50707516) / 0.26733429, abs=1e-5)

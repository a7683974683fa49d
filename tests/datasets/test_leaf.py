"""The JSON files of LEAF, as its scripts write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused

from fedclust.config.data import federate
from fedclust.core.federation import build
from fedclust.datasets.leaf import Leaf
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.partitions.natural import Natural


def write(folder: Path, given: dict[str, tuple[list[Any], list[Any]]], **changes: Any) -> None:
    """A file of LEAF; `changes` are of its keys, a key of None is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(given),
        "num_samples": [len(y) for _, y in given.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in given.items()},
    } | changes
    kept = {key: value for key, value in content.items() if value is not None}
    (folder / f"all_data_{len(list(folder.iterdir()))}.json").write_text(json.dumps(kept))


def leaf(folder: Path) -> Path:
    """Two training files of three users, tests of two of them; labels 3 and 7."""
    write(folder / "train", {"f1_b": ([[0, 0.5, 1, 0], [1, 1, 1, 1]], [3, 7])})
    write(folder / "train", {"f0_a": ([[2, 2, 2, 2]], [7]), "f2_c": ([[3, 3, 3, 3]], [3])})
    write(folder / "test", {"f2_c": ([[4, 4, 4, 4]], [7]), "f1_b": ([[5, 5, 5, 5]], [7])})
    return folder


def test_users_are_clients_in_the_order_of_their_names(tmp_path: Path) -> None:
    data = Leaf(path=str(leaf(tmp_path))).load()
    assert data.x_train.tolist() == [[2, 2, 2, 2], [0, 0.5, 1, 0], [1, 1, 1, 1], [3, 3, 3, 3]]
    assert data.y_train.tolist() == [1, 0, 1, 0]
    assert data.owner.tolist() == [0, 1, 1, 2]
    assert data.x_test[:, 0].tolist() == [5, 4]
    assert data.y_test.tolist() == [1, 1]
    assert data.num_classes == 2
    assert data.names.clients == ("f0_a", "f1_b", "f2_c")
    assert data.names.classes == ("3", "7")
    fed = build(data, Natural(), 0)
    assert fed.train.count.tolist() == [1, 2, 1]
    assert fed.test.count.tolist() == [0, 1, 1]


def test_flat_pixels_become_images_and_classes_can_be_counted_beforehand(tmp_path: Path) -> None:
    data = Leaf(path=str(leaf(tmp_path)), side=2, classes=62, normalise="mean_std").load()
    assert data.shape == (1, 2, 2)
    assert data.x_train[1, 0].tolist() == [[0, 0.5], [1, 0]]
    assert data.y_train.tolist() == [7, 3, 7, 3]
    assert data.num_classes == 62
    seen = (data.x_train * data.scale + data.shift).double()
    assert float(seen.mean()) == pytest.approx(0, abs=1e-6)
    assert float(seen.std(correction=0)) == pytest.approx(1, abs=1e-6)


def test_without_test_files_the_partition_cuts(tmp_path: Path) -> None:
    write(tmp_path / "train", {"a": ([[i] for i in range(10)], [i % 2 for i in range(10)])})
    fed = build(Leaf(path=str(tmp_path)).load(), Natural(train_fraction=0.8), 0)
    assert (fed.train.count.tolist(), fed.test.count.tolist()) == ([8], [2])


def test_pictures_are_found_by_their_names(tmp_path: Path) -> None:
    for name, shade in (("000001.png", 0), ("000002.png", 255)):
        Image.new("RGB", (6, 8), (shade, 100, 50)).save(tmp_path / name)
    write(tmp_path / "train", {"5": (["000002.png", "000001.png"], [1, 0])})
    data = Leaf(path=str(tmp_path), images=str(tmp_path), side=4).load()
    assert data.shape == (3, 4, 4)
    assert data.x_train[:, :, 0, 0].tolist() == [[255, 100, 50], [0, 100, 50]]
    assert data.x_train.dtype == torch.uint8
    np.testing.assert_allclose(data.scale.numpy().reshape(-1), 1 / 255)
    (tmp_path / "000001.png").write_text("x")
    with pytest.raises(DataError, match=r"cannot read .*000001.png .* change dataset.images"):
        Leaf(path=str(tmp_path), images=str(tmp_path), side=4).load()
    with pytest.raises(ConfigError, match=r"dataset.side=None is not allowed: .*differ in size"):
        Leaf(path=str(tmp_path), images=str(tmp_path))


ONE = {"a": ([[1.0], [2.0]], [0, 1])}


@pytest.mark.parametrize(
    ("users", "changes", "says"),
    [
        ({"a": (["the cat", "the dog"], ["s", "e"])}, {}, r"inputs \(the cat\): dataset.text"),
        ({"a": ([["1", "u", "x"]], [4])}, {}, r"has text as inputs \(\['1', 'u', 'x'\]\)"),
        ({"a": ([[1.0], [2.0, 3.0]], [0, 1])}, {}, r"1 numbers, but 2 in one of user a"),
        (
            {"a": ([[1.0], [None]], [0, 1])},
            {},
            r"examples hold values that are not finite",
        ),
        ({"a": ([[1.0], [[2.0], [3.0, 1]]], [0, 1])}, {}, r"cannot read .*train "),
        ({"a": ([[1.0], [2.0]], [0, 0.5])}, {}, r"labels that are not whole numbers"),
        ({"a": ([[1.0], [2.0]], ["x", "y"])}, {}, r"labels that are not whole numbers"),
        ({"a": ([[1.0], [2.0]], [1, 1])}, {}, r"have one label, so there is nothing to learn"),
        (ONE, {"num_samples": None}, r"lacks num_samples"),
        (ONE, {"num_samples": [3]}, r"user a with num_samples 3, but x and y of 2 and 2: all must"),
        (ONE, {"num_samples": [2, 2]}, r"not one entry of num_samples for each of users"),
        (ONE, {"users": ["b"]}, r"user b with num_samples 2, but x and y of none"),
        (ONE, {"user_data": {"a": [1, 2]}}, r"user a with num_samples 2, but x and y of none"),
        ({}, {}, r"train has no examples"),
    ],
)
def test_a_bad_file_is_one_line(
    users: dict[str, Any], changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    write(tmp_path / "train", users, **changes)
    with refused(DataError, says):
        Leaf(path=str(tmp_path)).load()


def test_what_is_missing_or_stands_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train holds no JSON file: set dataset.path to a folder"):
        Leaf(path=str(tmp_path)).load()
    write(tmp_path / "train", ONE)
    with pytest.raises(ConfigError, match=r"dataset.side=3 is not allowed: inputs of 9 numbers"):
        Leaf(path=str(tmp_path), side=3).load()
    with pytest.raises(ConfigError, match=r"dataset.images=x is not allowed: null, since the inp"):
        Leaf(path=str(tmp_path), side=3, images="x").load()
    write(tmp_path / "test", {"a": ([[1.0]], [2])})
    with pytest.raises(DataError, match=r"test examples of class 2, which no training example"):
        Leaf(path=str(tmp_path)).load()
    with pytest.raises(DataError, match=r"test labels span 2 to 2: they must lie in 0 to 1"):
        Leaf(path=str(tmp_path), classes=2).load()
    write(tmp_path / "train", ONE)
    with pytest.raises(DataError, match=r"user a stands twice below .*train: once is needed"):
        Leaf(path=str(tmp_path)).load()
    (tmp_path / "train" / "all_data_1.json").write_text("{")
    with pytest.raises(DataError, match=r"cannot read .*all_data_1.json"):
        Leaf(path=str(tmp_path)).load()


def test_what_is_not_as_leaf_writes_it_is_told_and_no_user_is_lost(tmp_path: Path) -> None:
    pair = ([[1.0], [2.0], [3.0], [5.0]], [0.0, 1.0, 0.0, 1.0])
    for number, (given, changes, says) in enumerate(
        (
            ({"a": pair, "b": pair}, {"users": ["a"], "num_samples": [4]}, r"user_data of b, whom"),
            (
                {"a": pair},
                {"users": {}},
                r"lacks users: LEAF's files have lists of users and num_s",
            ),
            ({"a": pair}, {"user_data": [1]}, r"lacks user_data"),
            ({"a": pair}, {"user_data": {"a": {"x": 4, "y": 4}}}, r"but x and y of none"),
            ({"a": ([[], []], [0, 1])}, {}, r"has inputs without a number"),
            ({"a": ([[1.0], [2.0]], [0, 1e300])}, {}, r"labels that are not whole numbers"),
        )
    ):
        write(tmp_path / str(number) / "train", given, **changes)
        with pytest.raises(DataError, match=says):
            Leaf(path=str(tmp_path / str(number))).load()
    write(tmp_path / "train", {"a": pair, "z": ([], [])})
    data = Leaf(path=str(tmp_path), normalise="mean_std").load()
    assert data.names.classes == ("0", "1")
    with pytest.raises(DataError, match=r"client z has 0, none of them to train on"):
        build(data, Natural(), 0)
    partition = Natural(min_train=1, train_fraction=0.5)
    (fed,) = federate(data, partition, [0], torch.device("cpu")).values()
    assert fed.names.clients == ("a",)
    pool = fed.pool
    seen = (pool.x * pool.scale + pool.shift)[fed.train.index.long()]  # tests do not scale
    torch.testing.assert_close(seen.mean(), torch.tensor(0.0))
    torch.testing.assert_close(seen.square().mean(), torch.tensor(1.0))

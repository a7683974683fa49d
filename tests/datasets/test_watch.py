"""The smartwatch series of seglearn, which lie in the package."""

from __future__ import annotations

import os
import pickle
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused

from fedclust.core.federation import build
from fedclust.datasets.watch import Watch
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.partitions.natural import Natural


@cache
def seglearn() -> dict[str, Any]:
    """What `seglearn.datasets.load_watch` returns."""
    package = find_spec("seglearn")  # to import it takes a second
    file = Path(str(package.origin)).parent / "data" / "watch_dataset.npy"
    table: dict[str, Any] = np.load(file, allow_pickle=True).item()
    return table


def test_windows_are_those_of_the_series() -> None:
    dataset, table = Watch(length=50, overlap=0.2, test_share=0.3).load(), seglearn()
    first, train, test = table["X"][0], 0, 0
    begins = {False: 0, True: len(first) - int(0.3 * len(first))}
    for is_test, x in ((False, dataset.x_train), (True, dataset.x_test)):
        for window in range(3):
            begin = begins[is_test] + 40 * window
            expected = first[begin : begin + 50].T.astype(np.float32)
            np.testing.assert_array_equal(x[window, 0], expected)
    for one in table["X"]:
        held = int(0.3 * len(one))
        train += (len(one) - held - 50) // 40 + 1
        test += (held - 50) // 40 + 1
    assert (len(dataset.x_train), len(dataset.x_test)) == (train, test)
    assert dataset.shape == (1, 6, 50)
    assert int(dataset.y_train[0]) == int(table["y"][0])
    assert dataset.y_train.unique().tolist() == list(range(7))
    seen = (dataset.x_train * dataset.scale + dataset.shift).double()
    torch.testing.assert_close(seen.mean((0, 1, 3)), torch.zeros(6).double(), atol=1e-4, rtol=0)
    std = seen.std((0, 1, 3), correction=0)
    torch.testing.assert_close(std, torch.ones(6).double(), atol=1e-4, rtol=0)


def test_persons_or_their_arms_are_clients() -> None:
    persons = build(Watch().load(), Natural(), 0)
    assert persons.num_clients == 10
    assert persons.group.tolist() == [-1] * 10
    dataset, table = Watch(clients="arm").load(), seglearn()
    arms = build(dataset, Natural(), 0)
    assert arms.group.tolist() == [0, 1] * 10
    sizes = torch.zeros(10, 2, dtype=torch.int64)
    for one, subject, side in zip(table["X"], table["subject"], table["side"], strict=True):
        sizes[subject - 1, int(side)] += (len(one) - int(0.25 * len(one)) - 100) // 50 + 1
    assert arms.train.count.tolist() == sizes.flatten().tolist()
    assert int(arms.test.count.min()) > 0
    assert persons.train.count.tolist() == sizes.sum(1).tolist()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"length": 237}, r"dataset.length=237 is not allowed: at most 236, .* shortest series of"),
        ({"test_share": 0.01}, r"dataset.length=100 is not allowed: at most 9,"),
        ({"test_share": 0.99}, r"dataset.length=100 is not allowed: at most 9,"),
    ],
)
def test_windows_fit_the_parts(options: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Watch(**options).load()  # type: ignore[arg-type]


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("exit 3",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (np.array(Harmful(), dtype=object), r"it names (posix|nt).system"),
        (
            np.array({"X": [np.zeros((5, 4))], "y": [0], "subject": [1], "side": [0]}),
            "other than 6",
        ),
        (np.zeros(3), "cannot read"),
        (None, "cannot read"),
    ],
)
def test_another_file_is_refused_and_not_run(
    content: np.ndarray | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / "data" / "watch_dataset.npy"
    if content is not None:
        np.save(file, content, allow_pickle=True)
    monkeypatch.setattr("fedclust.datasets.watch.installed", lambda *_: tmp_path)
    with refused(DataError, says):
        Watch().load()
    assert pickle.dumps(Harmful())  # what it would run is harmless

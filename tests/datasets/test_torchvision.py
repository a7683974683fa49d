"""A torchvision that was built for another PyTorch is told in a line, by every way in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedclust.commands.data import found
from fedclust.config.objects import Objects
from fedclust.datasets.checks import fetch
from fedclust.helpers import extras
from fedclust.helpers.errors import ConfigError, DataError

WHY = "operator torchvision::nms does not exist"


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import fails as that of a wheel for an older PyTorch."""

    def refuse(_: str) -> None:
        raise RuntimeError(WHY)

    monkeypatch.setattr(extras, "import_module", refuse)


@pytest.mark.usefixtures("odd")
def test_it_says_why_and_what_helps() -> None:
    with pytest.raises(DataError, match=rf"cannot be imported \({WHY}\): install one that fits"):
        extras.of_torchvision("datasets")


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("name", ["cifar10", "fashion_mnist"])
def test_data_sets_say_so_and_blame_no_network(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="torchvision cannot be imported"):
        found(name, str(tmp_path), download=True)


def test_a_download_that_fails_blames_the_network(tmp_path: Path) -> None:
    def work() -> None:
        raise OSError("no route")

    with pytest.raises(DataError, match=r"failed \(no route\): check the network"):
        fetch("digits", [tmp_path / "a"], tmp_path, True, work)


def test_a_part_of_ours_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise RuntimeError(WHY)

    monkeypatch.setattr("fedclust.config.objects.import_module", refuse)
    target = {"_target_": "fedclust.datasets.image_folder.ImageFolder", "path": "x"}
    with pytest.raises(ConfigError, match=f"cannot be imported: {WHY}"):
        Objects().make(target, "dataset")

"""Data sets saved by Hugging Face's `datasets`, without a network."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused

from fedclust.core.federation import build
from fedclust.datasets.hf import HuggingFace
from fedclust.helpers.errors import ConfigError, DataError, UserError
from fedclust.partitions.natural import Natural


def library() -> Any:
    """`datasets`, imported here since environments of other tests lack it."""
    import datasets

    return datasets


GREY = np.random.default_rng(0).integers(0, 256, (7, 6, 6), dtype=np.uint8)
WRITERS = ["f2", "f1", "f2", "f3", "f1", "f3", "f2"]


def saved(path: Path, columns: dict[str, list[Any]], **kinds: Any) -> Path:
    table = library().Dataset.from_dict(columns)
    for name, kind in kinds.items():
        table = table.cast_column(name, kind)
    library().DatasetDict({"train": table}).save_to_disk(str(path))
    return path


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """Seven pictures of three writers, in the columns of flwrlabs/femnist."""
    columns = {
        "image": [Image.fromarray(one) for one in GREY],
        "writer_id": WRITERS,
        "character": [0, 2, 1, 2, 0, 1, 1],
    }
    names = library().ClassLabel(names=["a", "b", "c"])
    return saved(tmp_path / "letters", columns, image=library().Image(), character=names)


def test_pictures_of_writers(letters: Path) -> None:
    given = {"path": str(letters), "image": "image", "label": "character", "grayscale": True}
    dataset = HuggingFace(**given, client="writer_id", test=None, normalise="unit").load()
    assert (dataset.name, dataset.num_classes, dataset.shape) == ("letters", 3, (1, 6, 6))
    assert dataset.owner.bincount().tolist() == [1, 2, 1]
    assert dataset.test_owner.bincount().tolist() == [1, 1, 1]
    x, y = torch.cat([dataset.x_train, dataset.x_test]), [*dataset.y_train, *dataset.y_test]
    whose = torch.cat([dataset.owner, dataset.test_owner])
    for picture, label, writer in zip(x, y, whose, strict=True):
        (row,) = np.flatnonzero((picture[0].numpy() == GREY).all((1, 2)))
        assert [0, 2, 1, 2, 0, 1, 1][row] == int(label)
        assert WRITERS[row] == ["f1", "f2", "f3"][int(writer)]
    fed = build(dataset, Natural(), 0)
    assert (fed.names.classes, fed.names.clients) == (("a", "b", "c"), ("f1", "f2", "f3"))
    colour = HuggingFace(**given | {"grayscale": False}, test=None, size=4).load()
    assert colour.shape == (3, 4, 4)


def test_a_table_with_both_splits(tmp_path: Path) -> None:
    def part(rows: range) -> Any:
        columns = {"x": [float(i) for i in rows], "n": list(rows), "label": ["u", "v"] * 2}
        return library().Dataset.from_dict(
            columns | {"who": ["p", "q"] * 2, "land": ["s", "t"] * 2}
        )

    parts = library().DatasetDict({"train": part(range(4)), "valid": part(range(4, 8))})
    parts.save_to_disk(str(tmp_path / "table"))
    given = {"path": str(tmp_path / "table"), "client": "who", "group": "land"}
    dataset = HuggingFace(**given, test="valid", normalise="none").load()
    assert dataset.x_train.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert dataset.x_test.tolist() == [[4, 4], [5, 5], [6, 6], [7, 7]]
    fed = build(dataset, Natural(), 0)
    assert fed.group.tolist() == [0, 1]
    assert fed.test.of_client(1).tolist() == [5, 7]
    one = part(range(4)).select([3, 0])  # a selection is written as it is read
    one.save_to_disk(str(tmp_path / "one"))
    alone = HuggingFace(path=str(tmp_path / "one"), features=["n"], test=None).load()
    assert sorted([*alone.x_train.flatten().tolist(), *alone.x_test.flatten().tolist()]) == [0, 3]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no split test, which dataset.test names: it has train; null draws"),
        ({"train": "all"}, "no split all, which dataset.train names"),
        ({"test": None, "label": "letter"}, "no column letter, which dataset.label names: it has"),
        ({"test": None, "image": "character"}, "row 1 holds no picture: dataset.image must name"),
        ({"test": None, "image": None}, "in column image, row 1: features must be numbers"),
    ],
)
def test_what_will_not_do_is_one_line(letters: Path, options: dict[str, object], says: str) -> None:
    given = {"path": str(letters), "image": "image", "label": "character"} | options
    with refused(DataError, r"hf: .*letters") as error:
        HuggingFace(**given).load()  # type: ignore[arg-type]
    assert says in str(error.value)


def test_pictures_of_several_sizes_damaged_ones_and_kept_back_classes(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(GREY[0]).save(file, format="png")
    small = io.BytesIO()
    Image.fromarray(GREY[0, :3, :3]).save(small, format="png")
    for name, second, says in (
        ("sizes", small.getvalue(), "row 2 has 3 x 3 pixels, the first 6 x 6: set dataset.size"),
        ("cut", file.getvalue()[:30], "column image, row 2"),
        ("none", None, "no value in column image, row 2"),
    ):
        pictures = [{"bytes": file.getvalue(), "path": None}]
        pictures.append(None if second is None else {"bytes": second, "path": None})
        path = saved(tmp_path / name, {"image": pictures, "label": [0, 1]}, image=library().Image())
        with refused(DataError) as error:
            HuggingFace(path=str(path), image="image", test=None).load()
        assert says in str(error.value)
    classes = library().ClassLabel(names=["a", "b"])
    path = saved(tmp_path / "back", {"x": [1.0, 2.0], "label": [0, -1]}, label=classes)
    with pytest.raises(DataError, match="no value in column label, row 2"):
        HuggingFace(path=str(path), test=None).load()


def test_nothing_outside_the_folder_is_read_and_nothing_is_run(
    letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.png").touch()
    paths = [{"bytes": None, "path": "../secret.png"}, {"bytes": None, "path": "https://a.b/c"}]
    for i, one in enumerate(paths):
        path = saved(tmp_path / f"p{i}", {"image": [one], "label": [0], "who": [0]})
        with pytest.raises(DataError, match=r"outside of its folder|No such file"):
            HuggingFace(path=str(path), image="image", test=None, client="who").load()
    for script in (letters / "letters.py", letters / "train" / "letters.py"):
        script.write_text("raise SystemExit('run')")
    given = {"path": str(letters), "image": "image", "label": "character"}
    assert len(HuggingFace(**given, test=None).load().x_train) == 5
    with pytest.raises(DataError, match=r"not found: set dataset.path .* data.download=true"):
        HuggingFace(**given | {"path": "flwrlabs/femnist"}).load()
    asked = []

    def fetch(*given: object, **more: object) -> object:
        asked.append((given, more))
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(library(), "load_dataset", fetch)
    with refused(DataError, r"cannot read flwrlabs/femnist .no network"):
        HuggingFace(**given | {"path": "flwrlabs/femnist"}, download=True).load()
    assert asked == [(("flwrlabs/femnist", None), {"revision": None})]


def test_damaged_folders_options_and_a_missing_package_are_one_line(
    letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"path": str(letters), "image": "image", "label": "character"}
    for odd, says in (
        ({"group": "writer_id"}, r"dataset.group=writer_id is not allowed"),
        ({"features": ["a"]}, r"dataset.features=\['a'\] is not allowed: null with dataset.image"),
        ({"normalise": "none"}, r"dataset.normalise=none is not allowed"),
        ({"test": None, "test_share": 0}, r"dataset.test_share=0 is not allowed"),
    ):
        with pytest.raises(ConfigError, match=says):
            HuggingFace(**given | odd)  # type: ignore[arg-type]
    (file,) = (letters / "train").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:100])
    with refused(UserError, r"hf: cannot read .*letters"):
        HuggingFace(**given, test=None).load()
    (letters / "train" / "state.json").write_text(json.dumps({"_data_files": 3}))
    with pytest.raises(UserError, match=r"hf: cannot read .*letters"):
        HuggingFace(**given, test=None).load()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("fedclust.datasets.checks.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"dataset=hf needs the package datasets: .*pip install "):
        HuggingFace(**given).load()


def test_splits_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    more, columns = tmp_path / "more", {"x": [1, 2], "label": [0, 1]}
    plain = library().Dataset.from_dict(columns)
    library().DatasetDict({"train": plain.add_column("z", [1, 1]), "test": plain}).save_to_disk(
        str(more)
    )
    with pytest.raises(DataError, match="has the column z in one of the splits"):
        HuggingFace(path=str(more)).load()
    made = {}
    for name, order in (("train", ["no", "yes"]), ("test", ["yes", "no"])):
        table = library().Dataset.from_dict({"x": [1.0, 2.0], "label": [0, 1]})
        made[name] = table.cast_column("label", library().ClassLabel(names=order))
    library().DatasetDict(made).save_to_disk(str(tmp_path / "turned"))
    with pytest.raises(DataError, match="numbers the classes of column label differently"):
        HuggingFace(path=str(tmp_path / "turned")).load()


def test_options_that_nothing_reads_are_refused(letters: Path) -> None:
    for given, named in (
        ({"test": "train"}, "dataset.test=train"),
        ({"size": 8}, "dataset.size=8"),
        ({"config": "small", "test": None}, "dataset.config=small"),
        ({"revision": "main", "test": None}, "dataset.revision=main"),
    ):
        with pytest.raises(UserError, match=named):
            HuggingFace(path=str(letters), label="character", **given).load()

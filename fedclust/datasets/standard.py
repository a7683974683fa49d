"""FEMNIST, Shakespeare, CelebA, SVHN, CINIC-10 and Tiny-ImageNet: arrays that `npz` reads, of their
publishers' files.

Each function takes a folder that holds the files somewhere and returns arrays by name, or {} where
it lacks some. A digest is compared where the publisher's is known; else counts are.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclust.helpers.errors import DataError
from fedclust.helpers.extras import of_torchvision
from fedclust.helpers.files import found_below

if TYPE_CHECKING:  # a list of names does without
    import numpy as np
    import numpy.typing as npt

    _Array = npt.NDArray[Any]

Arrays = dict[str, Any]
_KEY = "--from"  # decides where the files are, for messages
FEMNIST_ROWS = 814_277  # of the hub's table
SHAKESPEARE_ROWS = 4_226_158
_CLASSES, _SIDE = 62, 28  # of FEMNIST
_WINDOW = 80  # characters of Shakespeare that a model sees
_CELEBA = 84  # pixels, as LEAF's model of CelebA takes them
_FEWEST = 5  # pictures of a celebrity, as LEAF keeps them
_ARRAYS = ("x", "y", "client")  # of each part of a natural federation
_TENTH = 10  # a test example for as many examples of a role
CINIC10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_UNCUT = ("rem_user_data", "sampled_data", "all_data")  # of LEAF, the last step first


def complete(what: str, found: Mapping[str, int], needed: int) -> None:
    """Refuse files that hold other numbers of examples than the publisher says, by part."""
    odd = next((part for part, count in found.items() if count != needed), None)
    if odd is not None:
        raise DataError(
            f"{what} has {found[odd]:,} examples {odd}, and its publisher gives {needed:,}: "
            "download or unpack it anew"
        )


def _same(what: str, file: Path, digest: str) -> None:
    """Refuse a file whose MD5 is not the publisher's."""
    found = of_torchvision("datasets.utils").calculate_md5(file)
    if found != digest:
        raise DataError(
            f"{what}: {file} is damaged or another one: MD5 {found}, {digest} is needed"
        )


def femnist(folder: Path) -> Arrays:
    """Handwritten characters [N, 28, 28] uint8 on white, a client for every writer: the hub's
    tables, or LEAF's files with its own tests where it has cut them.
    """
    import numpy as np
    import pyarrow.parquet as pq

    tables = [pq.ParquetFile(file) for file in sorted(folder.rglob("*.parquet"))]
    if not tables:
        return _of_leaf("femnist", folder, _greys, _whole)
    _check_columns("femnist", folder, tables[0].schema_arrow.names, "image writer_id character")
    rows = sum(table.metadata.num_rows for table in tables)
    complete("femnist", {"in all": rows}, FEMNIST_ROWS)
    both = [table.read(columns=["writer_id", "character"]).to_pandas() for table in tables]
    x = _pictures("femnist", _encoded(tables), rows, _SIDE, grayscale=True)[..., 0]
    y = np.concatenate([part["character"].to_numpy(dtype=np.int64) for part in both])
    who = np.concatenate([part["writer_id"].to_numpy(dtype=str) for part in both])
    return _femnist_checked(_natural(x, y, who, np.zeros(rows, dtype=bool)))


def _encoded(tables: Iterable[Any]) -> Iterator[tuple[str, io.BytesIO]]:
    row = 0
    for table in tables:
        for batch in table.iter_batches(columns=["image"]):
            for image in batch.column(0).to_pylist():
                row += 1
                yield f"row {row}", io.BytesIO(image["bytes"])


def _greys(given: list[Any]) -> npt.NDArray[np.uint8]:
    """LEAF's flat pixels in [0, 1], 1 is white, as [n, 28, 28] uint8."""
    import numpy as np

    x = np.asarray(given, dtype=np.float32).reshape(-1, _SIDE, _SIDE)
    if x.size and not (x.min() >= 0 and x.max() <= 1):
        raise DataError(f"femnist: pixels span {x.min():g} to {x.max():g}: LEAF's lie in [0, 1]")
    return np.round(x * 255).astype(np.uint8)


def shakespeare(folder: Path) -> Arrays:
    """Ids of 80 characters [N, 80] uint8 and of the next one, a client for every role of a play.

    Of the hub's table, and of files that LEAF has not cut, the last tenth of a role tests, and the
    80 windows before it, which share characters with it, are left out.
    """
    import numpy as np
    import pandas as pd

    file = found_below(folder, "shakespeare.csv")
    if file is None:
        return _cut_in_time(_of_leaf("shakespeare", folder, _ids, lambda y: _ids(y, 1)[:, 0]))
    columns = ["character_id", "x", "y"]
    _check_columns(
        "shakespeare", file, list(map(str, pd.read_csv(file, nrows=0))), " ".join(columns)
    )
    parts = pd.read_csv(file, usecols=columns, dtype=str, keep_default_na=False, chunksize=100_000)
    x, y, who = list[Any](), list[Any](), list[Any]()
    for part in parts:
        x.append(_ids(part["x"].tolist()))
        y.append(_ids(part["y"].tolist(), 1)[:, 0])
        who.append(part["character_id"].astype("category"))
    rows = sum(map(len, x))
    complete("shakespeare", {"in all": rows}, SHAKESPEARE_ROWS)
    names = pd.api.types.union_categoricals(who, sort_categories=True)
    arrays = _natural(np.concatenate(x), np.concatenate(y), names, np.zeros(rows, dtype=bool))
    return _cut_in_time(arrays)


def _ids(texts: list[Any], length: int = _WINDOW) -> npt.NDArray[np.uint8]:
    """Places of characters among LEAF's 80, [n, length]; another character is the last of them, as
    in LEAF's model.
    """
    import numpy as np

    from fedclust.datasets.tokens import LETTERS

    odd = next((text for text in texts if not isinstance(text, str) or len(text) != length), None)
    if odd is not None:
        raise DataError(f"shakespeare: {str(odd)[:40]!r} is no text of {length} characters")
    place = np.full(129, len(LETTERS) - 1, dtype=np.uint8)
    place[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS))
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")
    ids: npt.NDArray[np.uint8] = place[np.minimum(codes, 128)].reshape(-1, length)
    return ids


def _cut_in_time(arrays: Arrays) -> Arrays:
    """With the end of every client as its tests, where it has none yet."""
    import numpy as np

    if not arrays or len(arrays["y_test"]):
        return arrays
    whose = arrays["client_train"]
    order = np.argsort(whose, kind="stable")
    count = np.bincount(whose)
    place = np.arange(len(whose)) - np.repeat(np.cumsum(count) - count, count)
    begin = count - count // _TENTH
    # of a role with few windows nothing would be left to train on
    begin = np.where(begin > _WINDOW, begin, count)[whose[order]]
    tests = order[place >= begin]
    gap = np.where(begin < count[whose[order]], _WINDOW, 0)
    kept = order[place < begin - gap]
    both = ((part, rows) for part, rows in (("train", kept), ("test", tests)))
    cut = {f"{k}_{part}": arrays[f"{k}_train"][rows] for part, rows in both for k in _ARRAYS}
    return cut | {"clients": arrays["clients"]}


def celeba(folder: Path) -> Arrays:
    """Faces [N, 84, 84, 3] uint8, smiling or not, a client for every celebrity of five or more."""
    import pandas as pd

    names = ("identity_CelebA.txt", "list_attr_celeba.txt")
    whose, attributes = (found_below(folder, name) for name in names)
    faces = next((one for one in sorted(folder.rglob("img_align_celeba")) if one.is_dir()), None)
    if whose is None or attributes is None or faces is None:
        return {}
    digests = {name: digest for _, digest, name in of_torchvision("datasets").CelebA.file_list}
    for file in (whose, attributes):
        _same("celeba", file, digests[file.name])
    smiles = pd.read_csv(attributes, sep=r"\s+", skiprows=1)["Smiling"]
    table = pd.read_csv(whose, sep=r"\s+", names=["file", "celebrity"], index_col="file").join(
        smiles
    )
    sizes = table.groupby("celebrity")["celebrity"].transform("size")
    table = table[sizes >= _FEWEST].sort_values("celebrity", kind="stable")
    files = [faces / str(name) for name in table.index]
    x = _pictures("celeba", _paths(files), len(files), _CELEBA)
    y = (table["Smiling"].to_numpy() > 0).astype(int)
    return _natural(x, y, table["celebrity"].to_numpy(), y < 0)


def svhn(folder: Path) -> Arrays:
    """House numbers [N, 32, 32, 3] uint8: 73,257 + 26,032, whose MD5 torchvision compares."""
    kind = of_torchvision("datasets").SVHN
    arrays = dict[str, Any]()
    for part in ("train", "test"):
        _, name, digest = kind.split_list[part]
        file = found_below(folder, name)
        if file is None:
            return {}
        _same("svhn", file, digest)
        found = kind(file.parent, part)
        arrays |= {f"x_{part}": found.data.transpose(0, 2, 3, 1), f"y_{part}": found.labels}
    return arrays


def cinic10(folder: Path) -> Arrays:
    """CIFAR-10's classes [N, 32, 32, 3] uint8: 90,000 of train/ and 90,000 of test/; valid/ is left
    out.
    """
    around = next((one.parent.parent for one in sorted(folder.rglob("train/airplane"))), None)
    if around is None or not (around / "test").is_dir():
        return {}
    arrays = dict[str, Any]()
    for part in ("train", "test"):
        files = {one: sorted((around / part / one).glob("*.png")) for one in CINIC10}
        arrays |= _by_class("cinic10", part, files, 32, 9_000)
    return arrays


def tiny_imagenet(folder: Path) -> Arrays:
    """200 classes [N, 64, 64, 3] uint8: 100,000 of train/ and the 10,000 of val/, as the labels of
    test/ are not published.
    """
    table = found_below(folder, "val_annotations.txt")
    names = found_below(folder, "wnids.txt")
    if table is None or names is None or not (names.parent / "train").is_dir():
        return {}
    classes = sorted(names.read_text(encoding="utf-8").split())
    tests: dict[str, list[Path]] = {one: [] for one in classes}
    for line in table.read_text(encoding="utf-8").splitlines():
        picture, _, rest = line.partition("\t")
        tests.setdefault(rest.partition("\t")[0], []).append(table.parent / "images" / picture)
    train = names.parent / "train"
    files = {one: sorted((train / one / "images").glob("*.JPEG")) for one in classes}
    arrays = _by_class("tiny_imagenet", "train", files, 64, 500)
    return arrays | _by_class("tiny_imagenet", "test", tests, 64, 50)


def _by_class(
    what: str, part: str, files: Mapping[str, list[Path]], size: int, needed: int
) -> Arrays:
    """Pictures and labels of a part, class after class."""
    import numpy as np

    complete(what, {f"of {one} in {part}": len(some) for one, some in files.items()}, needed)
    every = [file for some in files.values() for file in some]
    y = np.repeat(np.arange(len(files)), [len(some) for some in files.values()])
    return {f"x_{part}": _pictures(what, _paths(every), len(every), size), f"y_{part}": y}


def _paths(files: Iterable[Path]) -> Iterator[tuple[str, str]]:
    return ((str(file), str(file)) for file in files)


def _pictures(
    what: str, sources: Iterable[Any], number: int, size: int, grayscale: bool = False
) -> _Array:
    """Pictures [N, size, size, 1 or 3] uint8."""
    from fedclust.datasets.pictures import WHITE, pictures

    found = pictures(what, _KEY, sources, number, size, grayscale, WHITE)
    return found.permute(0, 2, 3, 1).numpy()


def _natural(x: _Array, y: _Array, who: Any, tests: _Array) -> Arrays:
    """Examples of clients, numbered in the sorted order of their names; the order is kept."""
    import pandas as pd

    codes, names = pd.factorize(who, sort=True)
    every = {"x": x, "y": y, "client": codes.astype("int32")}
    parts = (("train", ~tests), ("test", tests)) if tests.any() else (("train", slice(None)),)
    arrays = {f"{key}_{part}": every[key][rows] for part, rows in parts for key in _ARRAYS}
    empty = {f"{key}_test": every[key][:0] for key in _ARRAYS}
    return empty | arrays | {"clients": pd.Index(names).astype(str).to_numpy(dtype=str)}


def _of_leaf(what: str, folder: Path, inputs: Any, labels: Any) -> Arrays:
    """The examples of LEAF's users, file after file, since a list of numbers is large."""
    import numpy as np

    from fedclust.datasets.leaf import users_by_file

    around = [base for base in (folder, folder / "data") if base.is_dir()]
    kinds = [("train", "test"), *((one,) for one in _UNCUT)]
    found = next(
        (parts for base in around for kind in kinds if (parts := _with_files(base, kind))), []
    )
    x, y, who, tests = [], [], list[str](), list[bool]()
    for part in found:
        for users in users_by_file(part):
            for user, (given, known) in users.items():
                x.append(inputs(given))
                y.append(labels(known))
                who += [user] * len(known)
                tests += [part.name == "test"] * len(known)
    if not who:
        return {}
    arrays = _natural(np.concatenate(x), np.concatenate(y), np.array(who), np.array(tests))
    return _femnist_checked(arrays) if what == "femnist" else arrays


def _with_files(base: Path, names: Iterable[str]) -> list[Path]:
    return [base / name for name in names if any((base / name).glob("*.json"))]


def _whole(labels: Any) -> _Array:
    import numpy as np

    found = np.asarray(labels, dtype=np.float64)
    if not np.array_equal(found, np.floor(found)):
        raise DataError("femnist: a class is no whole number: 0 to 61 are needed")
    return found.astype(np.int64)


def _femnist_checked(arrays: Arrays) -> Arrays:
    for part in ("train", "test"):
        y = arrays[f"y_{part}"]
        if len(y) and not (y.min() >= 0 and y.max() < _CLASSES):
            raise DataError(f"femnist: classes span {y.min()} to {y.max()}: 0 to 61 are needed")
    return arrays


def _check_columns(what: str, where: Path, found: list[str], needed: str) -> None:
    lacking = [name for name in needed.split() if name not in found]
    if lacking:
        raise DataError(f"{what}: {where} lacks the column {lacking[0]}: {needed} are needed")

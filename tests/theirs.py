"""Small files in the formats of the publishers of data sets, and what checks their digests and
counts put aside.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision.datasets import SVHN
from torchvision.datasets.utils import calculate_md5

from fedclust.datasets import standard

SPEECH = "Now is the winter of our discontent made glorious summer by this sun of York; and all"


def unchecked(patch: pytest.MonkeyPatch) -> None:
    """Files of any digest and count are taken."""
    patch.setattr(standard, "complete", lambda *_: None)
    patch.setattr(standard, "_same", lambda *_: None)


def png(value: int, size: int = 28, mode: str = "L") -> bytes:
    """A picture of one grey."""
    file = io.BytesIO()
    Image.new(mode, (size, size), value if mode == "L" else (value,) * 3).save(file, "PNG")
    return file.getvalue()


def femnist(folder: Path, writers: int = 3, each: int = 20) -> Path:
    """The hub's table in two files: image, writer_id, hsf_id, character."""
    (folder / "data").mkdir(parents=True)
    rows = [(writer, one) for writer in range(writers) for one in range(each)]
    image = pa.StructArray.from_arrays(
        [
            pa.array([png(10 * writer + one) for writer, one in rows]),
            pa.array(["a.png"] * len(rows)),
        ],
        ["bytes", "path"],
    )
    table = pa.table(
        {
            "image": image,
            "writer_id": [f"f{7 - writer:04d}_14" for writer, _ in rows],
            "hsf_id": [0] * len(rows),
            "character": [one % 62 for _, one in rows],
        }
    )
    half = len(rows) // 2
    for part, some in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(some, folder / "data" / f"train-0000{part}-of-00002.parquet")
    return folder


def leaf(folder: Path, users: Mapping[str, tuple[list[Any], list[Any]]], name: str = "a") -> Path:
    """A JSON file as LEAF writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    sizes = [len(y) for _, y in users.values()]
    whole = {"users": list(users), "num_samples": sizes, "user_data": data}
    (folder / f"{name}.json").write_text(json.dumps(whole))
    return folder


def shakespeare(folder: Path, roles: int = 3, each: int = 200) -> Path:
    """The hub's table: character_id, x, y, the windows of a role in order."""
    import pandas as pd

    folder.mkdir(parents=True)
    rows = []
    for role in range(roles):
        text = " " * 80 + (SPEECH[role:] * (each // 50))[:each]
        who = f"THE_TRAGEDY_{role}_HAMLET"
        rows += [(who, text[at : at + 80], text[at + 80]) for at in range(each)]
    table = pd.DataFrame(rows, columns=["character_id", "x", "y"])
    table.to_csv(folder / "shakespeare.csv", index=False)
    return folder


def celeba(folder: Path, sizes: tuple[int, ...] = (12, 4, 10)) -> Path:
    """The aligned faces 178 x 218, and the two lists of the publisher."""
    faces = folder / "img_align_celeba"
    faces.mkdir(parents=True)
    whose = [who + 100 for who, size in enumerate(sizes) for _ in range(size)]
    names = [f"{number + 1:06d}.jpg" for number in range(len(whose))]
    for number, name in enumerate(names):
        Image.new("RGB", (178, 218), (number * 5,) * 3).save(faces / name)
    lines = [f"{name} {who}\n" for name, who in zip(names, whose, strict=True)]
    (folder / "identity_CelebA.txt").write_text("".join(lines))
    values = [f"{name}  1 {'-1' if number % 3 else ' 1'} -1\n" for number, name in enumerate(names)]
    head = f"{len(names)}\nMale Smiling Young \n"
    (folder / "list_attr_celeba.txt").write_text(head + "".join(values))
    return folder


def svhn(folder: Path) -> Path:
    """MATLAB files: X [32, 32, 3, N] and y [N, 1], in which 10 is the digit 0."""
    folder.mkdir(parents=True)
    for part, size in (("train", 40), ("test", 20)):
        x = np.zeros((32, 32, 3, size), dtype=np.uint8)
        x[0, 1, 2] = np.arange(size)
        y = (np.arange(size) % 10 + 1).astype(np.uint8)[:, None]
        savemat(folder / f"{part}_32x32.mat", {"X": x, "y": y})
    return folder


def known_digests(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """The digests that torchvision knows become those of the files in a folder."""
    for part, (url, name, _) in list(SVHN.split_list.items()):
        if (folder / name).exists():
            known = [url, name, calculate_md5(folder / name)]
            patch.setitem(SVHN.split_list, part, known)


def cinic10(folder: Path, each: int = 2) -> Path:
    """Three parts with a folder of PNG files for each class."""
    for part in ("train", "valid", "test"):
        for number, name in enumerate(standard.CINIC10):
            place = folder / "CINIC-10" / part / name
            place.mkdir(parents=True)
            for one in range(each):
                (place / f"cifar10-{part}-{one}.png").write_bytes(png(number + one, 32, "RGB"))
    return folder


def tiny_imagenet(folder: Path, classes: int = 3, each: int = 2) -> Path:
    """A folder of pictures and a list of boxes for each class, and annotations of val/."""
    base = folder / "tiny-imagenet-200"
    names = [f"n0{9 - one}000000" for one in range(classes)]
    for one, name in enumerate(names):
        place = base / "train" / name / "images"
        place.mkdir(parents=True)
        for picture in range(each):
            mode = "RGB" if picture else "L"  # some are grey
            Image.new(mode, (64, 64)).save(place / f"{name}_{picture}.JPEG")
        (place.parent / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t0\t62\t62\n")
        images = base / "val" / "images"
        images.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), (one * 40,) * 3).save(images / f"val_{one}.JPEG")
    lines = [f"val_{one}.JPEG\t{name}\t0\t32\t44\t62\n" for one, name in enumerate(names)]
    (base / "val" / "val_annotations.txt").write_text("".join(lines))
    (base / "wnids.txt").write_text("\n".join(names))
    return folder

"""Files in the idx format of MNIST and its successors."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedclust.datasets.checks import fetch, read
from fedclust.helpers.extras import of_torchvision

_BYTES = 8  # the format's number for unsigned bytes
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"


def load_idx(
    name: str, root: Path, parts: tuple[str, str], download: bool, **options: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x_train [N, 1, 28, 28] uint8, y_train [N] int64, x_test and y_test of four files, whose names
    begin with `parts`.

    They lie in the folder of torchvision's class `name`, which with its `options` downloads them;
    to import it takes seconds.

    Raises:
        DataError: a file is missing, corrupt or cannot be downloaded.
    """
    raw = root / name / "raw"
    files = [raw / f"{part}-{what}" for part in parts for what in (IMAGES, LABELS)]

    def get() -> None:
        getattr(of_torchvision("datasets"), name)(root, download=True, **options)

    fetch(name, files, root, download, get)
    x_train, y_train, x_test, y_test = (read(name, file, partial(read_idx, file)) for file in files)
    return x_train.unsqueeze(1), y_train.long(), x_test.unsqueeze(1), y_test.long()


def read_idx(file: Path) -> Tensor:
    """The bytes of an idx file, in the shape that its header gives. Raises `ValueError` if the
    header is none of unsigned bytes, or the size is not what it says.
    """
    content = np.fromfile(file, dtype=np.uint8)
    if len(content) < 4 or content[:3].tolist() != [0, 0, _BYTES]:
        raise ValueError("this is no idx file of unsigned bytes")
    begin = 4 + 4 * int(content[3])  # every dimension is a big-endian number of four bytes
    if len(content) < begin:
        raise ValueError("it ends within its header")
    shape, values = content[4:begin].view(">u4").tolist(), content[begin:]
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} bytes follow the header, which says {shape}")
    return torch.from_numpy(values.reshape(shape))

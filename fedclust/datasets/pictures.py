"""Encoded pictures to arrays, resized to a square."""

from __future__ import annotations

from typing import IO

import numpy as np
import numpy.typing as npt
from PIL import Image

Bytes = npt.NDArray[np.uint8]


def picture(source: str | IO[bytes], size: int | None, grayscale: bool) -> Bytes:
    """The picture of a file, [size, size, 1 or 3] uint8, or of its own size [H, W, 1 or 3].

    Args:
        source: a path, or an open file.
        size: side after resizing, pixels; None leaves it.
        grayscale: one channel instead of three.
    """
    with Image.open(source) as image:
        plain = image.convert("L" if grayscale else "RGB")
    kept = plain if size is None else plain.resize((size, size))
    values = np.asarray(kept, dtype=np.uint8)
    return values.reshape(*values.shape[:2], -1)

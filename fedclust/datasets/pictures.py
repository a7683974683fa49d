"""Encoded pictures to arrays, resized to a square."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps
from torch import Tensor

from fedclust.datasets.checks import read
from fedclust.helpers.errors import DataError

Bytes = npt.NDArray[np.uint8]
Source = str | IO[bytes]  # a path, or an open file
WHITE = 65535  # of 16 bits


def white(sources: Iterable[Source]) -> int:
    """What is white in pictures of 16 bits: the largest number of as many bits as they use, so that
    12 bits in 16, as of computed tomography, keep 256 greys. 65535 where none has 16 bits.
    """
    largest = 0
    for source in sources:
        if isinstance(source, str) and not Path(source).is_file():  # which its reader tells
            continue
        with suppress(Exception), Image.open(source) as image:  # likewise a damaged one
            if image.mode.startswith("I;16"):
                largest = max(largest, int(np.asarray(image).max()))
    return max(2 ** largest.bit_length() - 1, 255) if largest else WHITE


def pictures(
    what: str,
    key: str,
    sources: Iterable[tuple[str, Source]],
    number: int,
    size: int | None,
    grayscale: bool,
    most: int,
) -> Tensor:
    """All N >= 1 pictures, [N, 1 or 3, H, W] uint8, each read and resized once; see `picture`.

    Args:
        what, key: the dataset's kind, and the key that decides where they are, for messages.
        sources: where each is, for messages, and itself.

    Raises:
        DataError: one cannot be read, or they differ in size where `size` is None.
    """
    images: Bytes = np.empty(0, dtype=np.uint8)
    for row, (where, source) in enumerate(sources):
        one = read(what, where, partial(picture, source, size, grayscale, most), key)
        if row == 0:
            images = np.empty((number, *one.shape), dtype=np.uint8)
        if one.shape != images.shape[1:]:
            height, width = images.shape[1:3]
            raise DataError(
                f"{where} has {one.shape[0]} x {one.shape[1]} pixels, the first "
                f"{height} x {width}: set dataset.size"
            )
        images[row] = one
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def picture(source: Source, size: int | None, grayscale: bool, most: int = WHITE) -> Bytes:
    """The picture of a file as a viewer shows it, [size, size, 1 or 3] uint8, or of its own size
    [H, W, 1 or 3].

    Args:
        size: side after resizing, pixels; None leaves it.
        most: what is white in a picture of 16 bits, see `white`.

    Raises:
        ValueError: it holds several, or numbers that no viewer shows alike.
    """
    if isinstance(source, str) and Path(source).is_fifo():  # which would be waited for
        raise ValueError("it is a pipe")
    with Image.open(source) as image:
        pages = getattr(image, "n_frames", 1)
        if pages > 1 and image.format != "MPO":  # a camera's second view of the same
            raise ValueError(f"it holds {pages} pages or frames, and one is needed")
        plain = _as_shown(ImageOps.exif_transpose(image), most).convert("L" if grayscale else "RGB")
    kept = plain if size is None else plain.resize((size, size))
    values = np.asarray(kept, dtype=np.uint8)
    return values.reshape(*values.shape[:2], -1)


def _as_shown(image: Image.Image, most: int) -> Image.Image:
    """A picture of 8 bits as a viewer shows it: 16 bits, of which `most` is white, on the scale of
    8; what is transparent on white.
    """
    if image.mode.startswith("I;16"):
        values = np.minimum(np.asarray(image).astype(np.int64), most)
        return Image.fromarray(((values * 255 + most // 2) // most).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(
            f"its numbers are of mode {image.mode}, whose white nobody knows: save 8 or 16 bits "
            "each, or give dataset=npz the numbers"
        )
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        shown = Image.new("RGBA", image.size, "white")
        shown.alpha_composite(image.convert("RGBA"))
        return shown.convert("RGB")
    return image

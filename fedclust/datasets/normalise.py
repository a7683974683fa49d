"""What a model sees of a stored value: x * scale + shift, for each word of `dataset.normalise`."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.datasets.view import PER_IMAGE
from fedclust.helpers.errors import require

# kept as one affine map, so that the pool stays uint8 and the engine pays one fused multiply-add
# per gather
Word = Literal["mean_std", "unit", "pixel", "inverted"]
WORDS: tuple[Word, ...] = get_args(Word)
# examples converted at once. Squares of 256 bytes add up to less than 2^24, so float32 adds them
# exactly, in a tenth of the time of float64
_BYTES, _NUMBERS = (256, np.float32), (4096, np.float64)
# a mean so many standard deviations off leaves 16 of the 24 bits of a float32
_FAR = 256
# a standard deviation of so little of the mean is what `moments` rounds off a constant, of which
# float32 holds no smaller part
_ROUNDED = 1e-7


def check_word(word: str, allowed: tuple[str, ...]) -> None:
    """Raise a `ConfigError` unless `word` is one of `allowed`."""
    require(word in allowed, "dataset.normalise", word, "one of " + ", ".join(allowed))


def affine(
    word: str,
    images: Tensor,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> tuple[Tensor, Tensor]:
    """Scale and shift, float32, broadcastable to one example.

    Args:
        word: mean_std (x/255, then minus mean, over std), by_row (mean_std for every row of an
            image, the channel of a series), unit (x/255), inverted (1 - x/255),
            pixel ((x - mu) / (sigma + 0.001) for every pixel, on raw values) or per_image (x/255
            here; the rest is `fedclust.datasets.view`).
        images: [N, *shape] the examples whose statistics `pixel` and a `mean_std` without constants
            use.
        mean, std: constants of `mean_std` per channel, in units of x/255; None takes them from
            `images`.
    """
    one = torch.ones([1] * (images.dim() - 1), dtype=torch.float64)
    if word in ("unit", PER_IMAGE):
        scale, shift = one / 255, one * 0
    elif word == "inverted":
        scale, shift = one / -255, one
    elif word == "pixel":
        mu, sigma = moments(images, per_channel=False)
        scale = 1 / (sigma + 0.001)
        shift = -mu * scale
    elif mean is not None and std is not None:
        mu, sigma = (torch.tensor(of, dtype=torch.float64).view(-1, 1, 1) for of in (mean, std))
        scale, shift = 1 / (255 * sigma), -mu / sigma
    else:
        mu, sigma = moments(images, per_channel=word != "by_row")
        if word == "by_row":
            square = (mu.square() + sigma.square()).mean(-1, keepdim=True)
            mu = mu.mean(-1, keepdim=True)
            sigma = (square - mu.square()).clamp_(min=0).sqrt()
            mu, sigma = (one.expand(images.shape[1:]) for one in (mu, sigma))
        varies = sigma > _ROUNDED * mu.abs()
        scale = 1 / torch.where(varies, sigma, 1)  # a constant feature becomes 0, not infinite
        shift = -mu * scale
    return scale.to(torch.float32), shift.to(torch.float32)


def centre(x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """What is taken off examples before they become float32, which would not tell them apart where
    their mean is far off; 0 elsewhere, and the scale makes good for it.

    Args:
        x: [N, *shape] numbers, NaN where there are none.

    Returns:
        [F] for features [N, F], of which each has its own; else one number.
    """
    parts = x.T if x.ndim == 2 else x[None]
    far = np.zeros(len(parts))
    for place, values in enumerate(parts if x.dtype.itemsize >= 4 else ()):
        known = values[np.isfinite(values)].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers too large for float32
            if known.size and abs(known.mean()) > _FAR * known.std() > 0:
                far[place] = known.mean()
    return far if x.ndim == 2 else far[0]


def as_float32(x: npt.NDArray[Any], off: npt.NDArray[np.float64] | float) -> Tensor:
    """Examples less what `centre` says of them; what does not fit becomes infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy((x - off if np.any(off) else x).astype(np.float32))


def unchanged(x: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and shift under which a model sees examples x [N, *shape] as they are."""
    one = torch.ones([1] * (x.dim() - 1))
    return one, one * 0


def moments(x: Tensor, *, per_channel: bool) -> tuple[Tensor, Tensor]:
    """Mean and population standard deviation over N >= 1 examples, float64 [*shape], or of images
    per channel [C, 1, 1].
    """
    total = torch.zeros(x.shape[1:], dtype=torch.float64)
    square = torch.zeros_like(total)
    chunk, exact = _BYTES if x.dtype == torch.uint8 else _NUMBERS
    # by NumPy, since threads that meet after every chunk wait for each other on a busy machine
    for part in torch.split(x, chunk):
        values = part.numpy().astype(exact)
        with np.errstate(over="ignore", invalid="ignore"):  # of examples that are refused later
            total += torch.from_numpy(values.sum(0))
            square += torch.from_numpy(np.square(values, out=values).sum(0))
    mean, square = total / len(x), square / len(x)
    if per_channel and x.dim() == 4:
        mean, square = mean.mean((1, 2), keepdim=True), square.mean((1, 2), keepdim=True)
    return mean, (square - mean.square()).clamp_(min=0).sqrt()

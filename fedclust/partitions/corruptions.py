"""Common corruptions of images, computed here: the formulas and severities of the code released
for CIFAR-10-C (Hendrycks and Dietterich, arXiv 1903.12261) and, for grey images, for MNIST-C (Mu
and Gilmer, arXiv 1906.02337), with the scikit-image of their time (0.16).

That code does what its names do not say, and so does this one: `gaussian_blur` and `glass_blur`
blur a grey image along its columns only; `glass_blur` copies a pixel of a colour image over its
neighbour, and exchanges one in two pixels of a grey image; `shear` takes angles.

Another generator draws what is random, and the result is rounded to 8 bits, not truncated. Left out
is what needs photographs or further packages: frost, snow, motion blur, spatter and edges; for grey
images also fog, saturate, pixelate and elastic.

An image is [C, H, W] float64 in [0, 1]; a function changes n of them at once, [n, C, H, W].
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

Images = npt.NDArray[np.float64]
Rngs = Sequence[np.random.Generator]


@dataclass(frozen=True)
class Corruption:
    """A corruption at five severities, or at one where a column has one entry."""

    # from images, the constants of a severity and a generator per image to images, which may leave
    # [0, 1]
    apply: Callable[[Images, Any, Rngs], Images]
    # constants of every severity for three channels, made for 32 pixels; None where it is not
    # defined
    colour: tuple[Any, ...] | None
    grey: tuple[Any, ...] | None  # likewise for one channel, made for 28 pixels
    draws: bool = False  # whether it draws from the generators

    def constants(self, channels: int) -> tuple[Any, ...] | None:
        """Constants of every severity for images with so many channels."""
        return {1: self.grey, 3: self.colour}.get(channels)


def corrupted(images: Images, corruption: Corruption, severity: int, rngs: Rngs) -> Images:
    """The images [n, C, H, W] at a severity from 1 to 5 of a corruption that is defined for C
    channels, clipped to [0, 1]; `rngs` has a generator per image, and none for what draws nothing.
    """
    constants = corruption.constants(images.shape[1])
    assert constants is not None
    return corruption.apply(images, constants[severity - 1], rngs).clip(0, 1)


def gaussian_noise(v: Images, std: float, rngs: Rngs) -> Images:
    """Normal noise of a standard deviation."""
    return v + std * _each(rngs, lambda rng: rng.standard_normal(v.shape[1:]))


def shot_noise(v: Images, rate: float, rngs: Rngs) -> Images:
    """As many photons as a Poisson variable counts, `rate` of them in white."""
    return np.stack([rng.poisson(one * rate) for rng, one in zip(rngs, v, strict=True)]) / rate


def impulse_noise(v: Images, part: float, rngs: Rngs) -> Images:
    """A part of all values black or white, half each."""
    chance = _each(rngs, lambda rng: rng.random(v.shape[1:]))
    return np.where(chance < part / 2, 0.0, np.where(chance >= 1 - part / 2, 1.0, v))


def speckle_noise(v: Images, std: float, rngs: Rngs) -> Images:
    """Normal noise that grows with the value."""
    return v + v * std * _each(rngs, lambda rng: rng.standard_normal(v.shape[1:]))


def gaussian_blur(v: Images, sigma: float, rngs: Rngs) -> Images:  # noqa: ARG001
    """A Gaussian filter of `sigma` pixels; along the columns only for a grey image."""
    return _blurred(v, sigma)


def defocus_blur(v: Images, constants: tuple[float, float], rngs: Rngs) -> Images:  # noqa: ARG001
    """A filter in the form of a disk (radius, sigma that smooths its border)."""
    radius, sigma = constants
    half = 8 if radius <= 8 else int(radius)
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    disk = (x**2 + y**2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    reach = 1 if radius <= 8 else 2  # pixels the smoothing looks to each side
    disk = ndimage.gaussian_filter(disk, sigma, mode="mirror", radius=reach)
    used = np.flatnonzero(disk.any(0))
    disk = disk[used[0] : used[-1] + 1, used[0] : used[-1] + 1]
    blurred: Images = ndimage.convolve(v, disk[None, None], mode="mirror")
    return blurred


def zoom_blur(v: Images, factors: tuple[float, ...], rngs: Rngs) -> Images:  # noqa: ARG001
    """The mean of the image and of its middle, magnified by each of the factors."""
    return (v + sum(_zoomed(v, factor) for factor in factors)) / (len(factors) + 1)


def fog(v: Images, constants: tuple[float, float], rngs: Rngs) -> Images:
    """A plasma cloud over the image (its weight, how fast its detail fades)."""
    weight, decay = constants
    height, width = v.shape[2:]
    cloud = _plasma(1 << (max(height, width) - 1).bit_length(), decay, rngs)
    white = v.max((1, 2, 3), keepdims=True)
    changed: Images = (v + weight * cloud[:, None, :height, :width]) * white / (white + weight)
    return changed


def brightness(v: Images, more: float, rngs: Rngs) -> Images:  # noqa: ARG001
    """A larger value in HSV, which is the largest channel; hue and saturation stay."""
    value = v.max(1, keepdims=True)
    brighter = (value + more).clip(0, 1)
    changed: Images = np.where(value > 0, v / np.where(value > 0, value, 1) * brighter, brighter)
    return changed


def saturate(v: Images, constants: tuple[float, float], rngs: Rngs) -> Images:  # noqa: ARG001
    """Another saturation in HSV, (factor, term); hue and value stay, grey has the hue of red."""
    factor, term = constants
    value = v.max(1, keepdims=True)
    spread = value - v.min(1, keepdims=True)
    old = spread / np.where(value > 0, value, 1)
    # a channel is value * (1 - saturation * depth), where the depth depends on the hue only
    depth = np.where(spread > 0, (value - v) / np.where(spread > 0, spread, 1), _RED)
    changed: Images = value * (1 - (old * factor + term).clip(0, 1) * depth)
    return changed


def contrast(v: Images, factor: float, rngs: Rngs) -> Images:  # noqa: ARG001
    """Smaller distances from the mean of every channel."""
    mean = v.mean((2, 3), keepdims=True)
    changed: Images = (v - mean) * factor + mean
    return changed


def jpeg(v: Images, quality: int, rngs: Rngs) -> Images:  # noqa: ARG001
    """The image after JPEG compression."""

    def compressed(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _by_pillow(v, compressed)


def pixelate(v: Images, part: float, rngs: Rngs) -> Images:  # noqa: ARG001
    """The image reduced to a part of its size and enlarged again, by boxes."""
    height, width = v.shape[2:]
    small, full = (int(width * part), int(height * part)), (width, height)
    box = Image.Resampling.BOX
    return _by_pillow(v, lambda image: image.resize(small, box).resize(full, box))


def glass_blur(v: Images, constants: tuple[float, int, int], rngs: Rngs) -> Images:
    """Pixels moved to random neighbours, between two blurs (sigma, distance, rounds).

    Of a grey image one in two pixels is exchanged, with a neighbour; of a colour image each one
    becomes equal to its neighbour, since the released code exchanges two views of one array.
    """
    sigma, reach, rounds = constants
    grey = v.shape[1] == 1
    v = np.floor(_blurred(v, sigma) * 255) / 255
    height, width = v.shape[2:]
    rows, columns = range(height - reach, reach, -1), range(width - reach, reach, -1)
    shape = (rounds, len(rows), len(columns))
    steps = _each(rngs, lambda rng: rng.integers(-reach, reach, (*shape, 2))).astype(np.int64)
    if grey:  # a pixel that is left alone changes with itself
        steps *= _each(rngs, lambda rng: rng.random(shape) < 0.5)[..., None].astype(np.int64)
    every = np.arange(len(v))
    for k in range(rounds):
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                to = row + steps[:, k, i, j, 1], column + steps[:, k, i, j, 0]
                given = v[:, :, row, column].copy()
                v[:, :, row, column] = v[every, :, *to]
                if grey:
                    v[every, :, *to] = given
    return _blurred(v, sigma)


def elastic(v: Images, constants: tuple[float, float, float], rngs: Rngs) -> Images:
    """A random affine map, then a smooth random displacement; (reach, smoothness, size of the
    affine map) in parts of the width.
    """
    height, width = v.shape[2:]
    reach, sigma, affine = (part * width for part in constants)
    middle, third = np.array([width, height]) // 2, min(height, width) // 3
    corners = middle + third * np.array([[1, 1], [1, -1], [-1, -1]])
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij")).astype(float)
    out = np.empty_like(v)
    for one, rng, to in zip(v, rngs, out, strict=True):
        moved = corners + rng.uniform(-affine, affine, corners.shape)
        # from a pixel of the result to its source: the affine map that takes `moved` to `corners`
        solved = np.linalg.solve(np.column_stack([moved, np.ones(3)]), corners.astype(float))
        x = grid[1] * solved[0, 0] + grid[0] * solved[1, 0] + solved[2, 0]
        y = grid[1] * solved[0, 1] + grid[0] * solved[1, 1] + solved[2, 1]
        noise = (rng.uniform(-1, 1, (height, width)) for _ in range(2))
        smooth = partial(ndimage.gaussian_filter, sigma=sigma, mode="reflect", truncate=3)
        shift = [smooth(each) for each in noise]
        for channel, target in zip(one, to, strict=True):
            warped = ndimage.map_coordinates(channel, [y, x], order=1, mode="mirror")
            place = [g + reach * s for g, s in zip(grid, shift, strict=True)]
            target[:] = ndimage.map_coordinates(warped, place, order=1, mode="reflect")
    return out


def quantize(v: Images, bits: int, rngs: Rngs) -> Images:  # noqa: ARG001
    """Values rounded to so many bits."""
    steps = (1 << bits) - 1
    return np.rint(v * steps) / steps


def inverse(v: Images, constants: None, rngs: Rngs) -> Images:  # noqa: ARG001
    """Black for white."""
    return 1 - v


def stripe(v: Images, constants: None, rngs: Rngs) -> Images:  # noqa: ARG001
    """The outer quarters of the columns inverted."""
    width = v.shape[3]
    column = np.arange(width)
    return np.where((column < width // 4) | (column >= width - width // 4), 1 - v, v)


def translate(v: Images, pixels: int, rngs: Rngs) -> Images:
    """Moved by so many pixels along both axes, each way at random; black comes in."""
    out = np.zeros_like(v)
    for one, rng, to in zip(v, rngs, out, strict=True):
        down, right = pixels * rng.choice((-1, 1), 2)
        to[:] = ndimage.shift(one, (0, down, right), order=0, mode="constant")
    return out


def shear(v: Images, angle: float, rngs: Rngs) -> Images:
    """Sheared about the middle by an angle in radians, either way at random; the rows come from
    nearer the middle by its cosine.
    """
    turns = (sign * angle for sign in _signs(rngs))
    return _mapped(v, (np.array([[np.cos(a), 0.0], [-np.sin(a), 1.0]]) for a in turns))


def tilt(v: Images, angle: float, rngs: Rngs) -> Images:
    """Rotated about the middle by an angle in radians, either way at random."""
    turns = (sign * angle for sign in _signs(rngs))
    return _mapped(v, (np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in turns))


def scale(v: Images, part: float, rngs: Rngs) -> Images:  # noqa: ARG001
    """Shrunk about the middle to a part of its size."""
    return _mapped(v, repeat(np.eye(2) / part, len(v)))


def _each(rngs: Rngs, draw: Callable[[np.random.Generator], npt.NDArray[Any]]) -> Images:
    """A draw from every generator, stacked."""
    return np.stack([draw(rng) for rng in rngs])


def _blurred(v: Images, sigma: float) -> Images:
    """Blurred as by scikit-image told that the last axis is the channels', which for a grey image
    is that of its rows.
    """
    across = 0.0 if v.shape[1] == 1 else sigma
    blurred: Images = ndimage.gaussian_filter(v, (0, 0, sigma, across), mode="nearest", truncate=4)
    return blurred


def _zoomed(v: Images, factor: float) -> Images:
    """The middle of the images, magnified to their size by linear interpolation."""
    for axis in (2, 3):
        size = v.shape[axis]
        inner = int(np.ceil(size / factor))
        first, large = (size - inner) // 2, round(inner * factor)
        place = (np.arange(size) + (large - size) // 2) * ((inner - 1) / max(large - 1, 1))
        low = np.minimum(place.astype(np.int64), max(inner - 2, 0))
        part = (place - low).reshape([-1 if a == axis else 1 for a in range(4)])
        high = np.minimum(low + 1, inner - 1)
        v = v.take(first + low, axis) * (1 - part) + v.take(first + high, axis) * part
    return v


def _plasma(size: int, decay: float, rngs: Rngs) -> Images:
    """Clouds [n, size, size] in [0, 1] by the diamond-square algorithm; size is a power of two."""
    cloud = np.zeros((len(rngs), size, size))
    step, rough = size, 100.0

    def around(total: Images) -> Images:
        noise = _each(rngs, lambda rng: rng.uniform(-rough, rough, total.shape[1:]))
        return total / 4 + rough * noise

    while step >= 2:
        half = step // 2
        corner = cloud[:, ::step, ::step]
        rows = corner + np.roll(corner, -1, 1)
        cloud[:, half::step, half::step] = around(rows + np.roll(rows, -1, 2))
        middle = cloud[:, half::step, half::step]
        above = middle + np.roll(middle, 1, 1) + corner + np.roll(corner, -1, 2)
        cloud[:, ::step, half::step] = around(above)
        beside = middle + np.roll(middle, 1, 2) + corner + np.roll(corner, -1, 1)
        cloud[:, half::step, ::step] = around(beside)
        step, rough = half, rough / decay
    cloud -= cloud.min((1, 2), keepdims=True)
    scaled: Images = cloud / cloud.max((1, 2), keepdims=True)
    return scaled


def _signs(rngs: Rngs) -> Iterator[int]:
    """1 or -1 from every generator."""
    return (int(rng.choice((-1, 1))) for rng in rngs)


def _mapped(v: Images, sources: Iterable[npt.NDArray[np.float64]]) -> Images:
    """Each image under a linear map about its middle, which `sources` [2, 2] give from a pixel of
    the result to where it is taken from; black comes in.
    """
    middle = (np.array(v.shape[2:]) - 1) / 2
    out = np.empty_like(v)
    for one, source, to in zip(v, sources, out, strict=True):
        for channel, target in zip(one, to, strict=True):
            target[:] = ndimage.affine_transform(
                channel, source, middle - source @ middle, order=1, mode="grid-constant"
            )
    return out


def _by_pillow(v: Images, change: Callable[[Image.Image], Image.Image]) -> Images:
    """Each image, rounded to 8 bits, changed by Pillow."""
    stored = np.rint(v * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    pictures = stored[..., 0] if v.shape[1] == 1 else stored
    changed = np.stack([np.asarray(change(Image.fromarray(picture))) for picture in pictures])
    back: Images = changed.reshape(stored.shape).transpose(0, 3, 1, 2) / 255
    return back


def _steps(end: float, by: float) -> tuple[float, ...]:
    """1, 1 + by, … below `end`, which rounding may let in."""
    return tuple(np.arange(1, end, by).tolist())


_RED = np.array([0.0, 1.0, 1.0]).reshape(1, 3, 1, 1)  # depth of the channels of red

CORRUPTIONS: Mapping[str, Corruption] = {
    "gaussian_noise": Corruption(
        gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38), True
    ),
    "shot_noise": Corruption(shot_noise, (500, 250, 100, 75, 50), (60, 25, 12, 5, 3), True),
    "impulse_noise": Corruption(
        impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27), True
    ),
    "speckle_noise": Corruption(
        speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2), (0.15, 0.2, 0.35, 0.45, 0.6), True
    ),
    "gaussian_blur": Corruption(gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1.0), (1, 2, 3, 4, 6)),
    "defocus_blur": Corruption(
        defocus_blur,
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "zoom_blur": Corruption(
        zoom_blur,
        tuple(_steps(end, 0.01) for end in (1.06, 1.11, 1.16, 1.21, 1.26)),
        (
            _steps(1.11, 0.01),
            _steps(1.16, 0.01),
            _steps(1.21, 0.02),
            _steps(1.26, 0.02),
            _steps(1.31, 0.03),
        ),
    ),
    "fog": Corruption(fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), None, True),
    "brightness": Corruption(brightness, (0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5)),
    "saturate": Corruption(saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), None),
    "contrast": Corruption(contrast, (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
    "jpeg": Corruption(jpeg, (80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
    "pixelate": Corruption(pixelate, (0.95, 0.9, 0.85, 0.75, 0.65), None),
    "glass_blur": Corruption(
        glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        True,
    ),
    "elastic": Corruption(
        elastic,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        None,
        True,
    ),
    "quantize": Corruption(quantize, None, (5, 4, 3, 2, 1)),
    "inverse": Corruption(inverse, (None,), (None,)),
    "stripe": Corruption(stripe, (None,), (None,)),
    "translate": Corruption(translate, None, (1, 2, 3, 4, 5), True),
    "shear": Corruption(shear, None, (0.2, 0.4, 0.6, 0.8, 1.0), True),
    "tilt": Corruption(tilt, None, (0.2, 0.4, 0.6, 0.8, 1.0), True),
    "scale": Corruption(scale, None, (0.9, 0.8, 0.7, 0.6, 0.5)),
}

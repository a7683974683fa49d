"""Changes of images by their names: what a bank of `partition=transform` lists.

`rotate 15`, `colour red`, `tint red`, `gaussian_noise 3`, `identity`; or several, one after the
other, joined by +: `rotate 90 + colour red`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.rng import Stream
from fedclust.partitions.corruptions import CORRUPTIONS, Corruption, corrupted

Stored = npt.NDArray[np.uint8]
_COLOURS = {"red": 0, "green": 1, "blue": 2}
_AT_ONCE = 512  # images, 10 MB of MNIST in float64


@dataclass(frozen=True)
class Canvas:
    """What a change needs to know of the images besides their pixels."""

    first: int  # number of the first image, which names its randomness
    white: int  # the largest value there is
    data_seed: int  # of what is drawn


@dataclass(frozen=True)
class ChangeStep:
    """One step of a change."""

    apply: Callable[[Stored, Canvas], Stored]  # from images [n, C, H, W] to as many
    name: str  # the word it is called by
    colours: bool = False  # whether the result has three channels, whatever the images have
    corruption: Corruption | None = None  # what it is made of, for a corruption


@dataclass(frozen=True)
class Change:
    """A change of images."""

    name: str  # as given
    steps: tuple[ChangeStep, ...]  # one after the other; none for the identity

    @property
    def colours(self) -> bool:
        """Whether the result has three channels, whatever the images have."""
        return any(step.colours for step in self.steps)

    @property
    def turns(self) -> bool:
        """Whether images must be square."""
        return any(step.name == "rotate" for step in self.steps)

    @property
    def draws(self) -> bool:
        """Whether anything in it is drawn."""
        return any(step.corruption and step.corruption.draws for step in self.steps)

    def check(self, channels: int, dataset: str) -> None:
        """Refuse, by a `ConfigError`, corruptions that images of so many channels cannot have."""
        for step in self.steps:
            channels = 3 if step.colours else channels
            part = step.corruption
            made_for = [c for c in (1, 3) if part is None or part.constants(c) is not None]
            needed = f"{step.name} is for images with {' or '.join(map(str, made_for))} channels"
            allowed = f"{needed}, and those of dataset={dataset} have {channels}"
            require(channels in made_for, "partition.bank", self.name, allowed)


def parsed(text: str) -> Change:
    """The change that a text names; a `ConfigError` if it names none."""
    steps = [_step(part.split(), text) for part in text.split("+")]
    return Change(text, tuple(step for step in steps if step is not None))


def _step(words: Sequence[str], text: str) -> ChangeStep | None:
    """The step that some words of a text name; None for the identity."""
    match words:
        case ["identity"]:
            return None
        case ["rotate", angle] if _is_angle(angle):
            return _rotation(float(angle))
        case ["colour" | "tint" as name, colour] if colour in _COLOURS:
            return _colouring(name, _COLOURS[colour], filled=name == "colour")
        case [name, *rest] if name in CORRUPTIONS and _is_severity(CORRUPTIONS[name], rest):
            return _corruption(name, int(rest[0]) if rest else 1)
    raise ConfigError(
        f"partition.bank={text} is not allowed: identity, rotate DEGREES, colour or tint with red, "
        "green or blue, inverse, stripe, or a severity from 1 to 5 of "
        + ", ".join(sorted(set(CORRUPTIONS) - {"inverse", "stripe"}))
        + "; several joined by +"
    )


def changed_into(
    images: torch.Tensor, change: Change, out: torch.Tensor, white: int, data_seed: int
) -> None:
    """Writes the changed images [n, C, H, W] uint8 to `out` [n, C', H, W], with C' of 3 where C is
    1 for a bank with colours; `white` is the largest value there is.

    What is drawn is a function of (data_seed, corruption, severity, number of the image).
    """
    for first in range(0, len(images), _AT_ONCE):
        part = images[first : first + _AT_ONCE].numpy()
        for step in change.steps:
            part = step.apply(part, Canvas(first, white, data_seed))
        # one channel becomes three equal ones
        out.numpy()[first : first + len(part)] = part


def _is_angle(text: str) -> bool:
    try:
        return abs(float(text)) <= 360
    except ValueError:
        return False


def _is_severity(corruption: Corruption, rest: Sequence[str]) -> bool:
    """Whether what stands behind a name is a severity, or nothing where there is only one."""
    columns = [column for column in (corruption.grey, corruption.colour) if column is not None]
    if len(columns[0]) == 1:
        return not rest
    return len(rest) == 1 and rest[0] in "12345" and len(rest[0]) == 1


def _rotation(angle: float) -> ChangeStep:
    """Counter-clockwise by degrees: quarter turns exactly, others by the nearest pixel on black."""

    def turned_exactly(images: Stored, canvas: Canvas) -> Stored:  # noqa: ARG001
        return np.rot90(images, int(angle // 90), (2, 3))

    def rotated(images: Stored, canvas: Canvas) -> Stored:  # noqa: ARG001
        height, width = images.shape[2:]
        sine, cosine = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
        # of every pixel's middle, from the middle of the image
        y, x = np.mgrid[:height, :width] + 0.5 - np.array([height, width]).reshape(2, 1, 1) / 2
        row = np.floor(sine * x + cosine * y + height / 2).astype(np.int64)
        column = np.floor(cosine * x - sine * y + width / 2).astype(np.int64)
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        source = np.where(inside, row * width + column + 1, 0).ravel()  # 0 is black
        black = np.zeros((*images.shape[:2], 1), dtype=images.dtype)
        flat = np.concatenate([black, images.reshape(*images.shape[:2], -1)], 2)
        turned: Stored = flat[:, :, source].reshape(images.shape)
        return turned

    return ChangeStep(turned_exactly if angle % 90 == 0 else rotated, "rotate")


def _colouring(name: str, channel: int, *, filled: bool) -> ChangeStep:
    """One channel white everywhere, or all others black."""

    def coloured(images: Stored, canvas: Canvas) -> Stored:
        three: Stored = np.broadcast_to(images, (len(images), 3, *images.shape[2:])).copy()
        if filled:
            three[:, channel] = canvas.white
        else:
            three[:, [c for c in range(3) if c != channel]] = 0
        return three

    return ChangeStep(coloured, name, colours=True)


def _corruption(name: str, severity: int) -> ChangeStep:
    """A corruption at a severity."""
    corruption = CORRUPTIONS[name]

    def apply(images: Stored, canvas: Canvas) -> Stored:
        stream, drawn = Stream.of(canvas.data_seed, name, severity), len(images) * corruption.draws
        rngs = [stream.fold(canvas.first + i).numpy() for i in range(drawn)]
        v = corrupted(images / float(canvas.white), corruption, severity, rngs)
        rounded: Stored = np.rint(v * canvas.white).astype(np.uint8)
        return rounded

    return ChangeStep(apply, name, corruption=corruption)

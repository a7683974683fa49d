"""What a model sees of a stored image: a crop, standardised by itself, changed at random while
training.

The pipeline of the TensorFlow CIFAR-10 tutorial, which IFCA's released code (arXiv 2006.04088)
uses. Its random brightness is left out: it adds one number to the whole image, which
standardisation takes away again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedclust.helpers.errors import require
from fedclust.helpers.rng import fold, uniform

Augment = Literal["none", "crop_flip", "crop_flip_contrast"]

PER_IMAGE = "per_image"
# "augment"; keeps it apart from batch order and dropout, which fold the same key
_PURPOSE = 0x6175676D656E74
_CONTRAST = (0.2, 1.8)  # least and largest factor on the distances from a channel's mean


@dataclass(frozen=True, kw_only=True)
class ImageToInput:
    """From stored images to inputs."""

    # side of the part that is seen, in the middle unless it is drawn; None for the whole image
    crop: int | None
    standardise: bool  # every input minus its own mean, over its own standard deviation
    # what training draws anew in every step: the place of the crop and a flip from left to right,
    # and a contrast in [0.2, 1.8]
    augment: Augment

    @property
    def changes(self) -> bool:
        """Whether training draws anew in every step what it sees."""
        return self.augment != "none"

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of an input, from that of a stored image."""
        return stored if self.crop is None else (*stored[:-2], self.crop, self.crop)

    def middle(self, x: Tensor, index: Tensor) -> Tensor:
        """The middle of the images `index` [n] of x [N, C, H, W], [n, C, h, w] float32."""
        return self._middle(x)[index].to(torch.float32)

    def fixed(self, x: Tensor) -> Tensor | None:
        """The part of the images x [N, C, H, W] that is seen in every step as it is, [N, C, h, w];
        None where they are seen whole, drawn anew or standardised.
        """
        alike = self.crop is not None and not self.changes and not self.standardise
        return self._middle(x) if alike else None

    def _middle(self, x: Tensor) -> Tensor:
        height, width = self.shape(tuple(x.shape[1:]))[-2:]
        top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
        return x[:, :, top : top + height, left : left + width]

    def drawn(self, x: Tensor, index: Tensor, key: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Random crops of the images `index` [R, B] of x [N, C, H, W], flipped or not, [R * B, C,
        h, w] float32, and a contrast for each [R * B, 1, 1, 1], 1 where none is drawn.

        The example at place j of a batch has its own key, of the row key [R] of the call and its
        0-based local step: what it becomes depends neither on the padded width of the batch nor on
        who else is in the call.
        """
        row = fold(fold(key, _PURPOSE), step)
        place = fold(row.unsqueeze(1), torch.arange(index.shape[1], device=key.device))
        draws = uniform(place.flatten(), 4)  # [R * B, 4]
        height, width = self.shape(tuple(x.shape[1:]))[-2:]
        windows = x.unfold(2, height, 1).unfold(3, width, 1)  # [N, C, tops, lefts, h, w], a view
        top = (draws[:, 0] * windows.shape[2]).long()
        left = (draws[:, 1] * windows.shape[3]).long()
        cut = windows[index.flatten(), :, top, left].to(torch.float32)
        cut = torch.where((draws[:, 2] < 0.5).view(-1, 1, 1, 1), cut, cut.flip(3))
        low, high = _CONTRAST if self.augment == "crop_flip_contrast" else (1.0, 1.0)
        return cut, (low + (high - low) * draws[:, 3]).view(-1, 1, 1, 1)

    def finish(self, x: Tensor, contrast: Tensor | None = None) -> Tensor:
        """Inputs from scaled images x [n, C, h, w], which are changed in place."""
        if contrast is not None:
            mean = x.mean((2, 3), keepdim=True)  # of every channel
            x.sub_(mean).mul_(contrast).add_(mean)
        if self.standardise:
            x.sub_(x.mean((1, 2, 3), keepdim=True))
            std = x.square().mean((1, 2, 3), keepdim=True).sqrt_()
            # as TensorFlow: an image of one colour stays 0 instead of becoming noise
            x.div_(std.clamp_(min=x[0].numel() ** -0.5) if len(x) else std)
        return x


def check_view(normalise: str, crop: int | None) -> None:
    """Raise a `ConfigError` for options of `view_of` that do not go together."""
    another = (
        "another one with dataset.crop, since a crop moves the pixels whose statistics these are"
    )
    require(crop is None or normalise != "pixel", "dataset.normalise", normalise, another)


def view_of(
    stored: tuple[int, ...], normalise: str, crop: int | None, augment: Augment
) -> ImageToInput | None:
    """The view that the options of a dataset ask for, from the shape of a stored example; None
    where a model sees the stored values. `per_image` standardises; see `ImageToInput`.

    Raises:
        ConfigError: the examples are no images, or smaller than the crop.
    """
    if normalise != PER_IMAGE and crop is None and augment == "none":
        return None
    key, value = "dataset.crop", str(crop)
    if crop is None:
        key, value = "dataset.augment", augment
        if normalise == PER_IMAGE:
            key, value = "dataset.normalise", normalise
    allowed = f"something for images only; an example has shape {stored}"
    require(len(stored) == 3, key, value, allowed)
    side = min(stored[1:])
    allowed = f"at most {side}, the side of the images"
    require(crop is None or crop <= side, "dataset.crop", crop, allowed)
    return ImageToInput(crop=crop, standardise=normalise == PER_IMAGE, augment=augment)

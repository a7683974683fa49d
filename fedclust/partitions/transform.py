"""Groups that see the same kinds of images transformed their own way: P(X) differs.

Rotations by any angle (IFCA, CFL-GP, FLUX), colours (ANDA) and common corruptions (FedRC); see
`fedclust.partitions.image_changes` for their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.core.verbs import Partition
from fedclust.helpers.effects import OnlyIf
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import Ranged, Seed
from fedclust.helpers.rng import Stream
from fedclust.partitions.concepts import Assignment, base_pool, dealt, with_concepts
from fedclust.partitions.cut import check_scale
from fedclust.partitions.image_changes import Change, changed_into, parsed


def draws(given: Mapping[str, Any]) -> bool:
    """Whether a change in the bank draws."""
    return any(change.draws for change in changes_of(given["bank"]))


@dataclass(frozen=True, kw_only=True)
class Transform(Ranged):
    """A client's images are transformed by the entry of the bank that its concept names, for
    training and test alike.

    The pool holds the images once for every entry: 55 MB each of MNIST, 184 MB of CIFAR-10, three
    times as much of grey images where an entry colours them. Group of a client: its entry.
    """

    base: Partition  # who owns which example; its own groups are not kept
    # two changes of images or more, each once
    bank: Sequence[str] = ("identity", "rotate 90", "rotate 180", "rotate 270")
    # of noise; the images are the same for every seed of the run
    data_seed: Annotated[Seed, OnlyIf(draws, "nothing in partition.bank is drawn")] = 0
    assignment: Assignment = "balanced"  # see `fedclust.partitions.concepts.dealt`

    def __post_init__(self) -> None:
        super().__post_init__()
        changes_of(self.bank)

    def pool(self, dataset: Dataset) -> Pool:
        """The images under every entry of the bank. Raises `ConfigError` if the examples are no
        images, or the bank is not for such images.
        """
        pool, changes = base_pool(self.base, dataset), changes_of(self.bank)
        everything = torch.arange(len(pool.x))
        x, place = transformed(pool, changes, everything, False, self.data_seed, dataset.name)
        image = everything if pool.image is None else pool.image
        return with_concepts(pool, x=x, image=place[image])

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        return dealt(self.base, len(self.bank), self.assignment, dataset, stream)

    def concepts(self, dataset: Dataset) -> int:
        return len(self.bank)


def changes_of(bank: Sequence[str]) -> list[Change]:
    """The changes of a bank; `ConfigError` if one is unknown or repeated, or fewer than two are."""
    changes = [parsed(text) for text in bank]
    distinct = len(set(bank)) == len(bank) >= 2
    require(distinct, "partition.bank", list(bank), "two changes of images or more, each once")
    return changes


def transformed(
    pool: Pool, changes: Sequence[Change], chosen: Tensor, kept: bool, data_seed: int, name: str
) -> tuple[Tensor, Tensor]:
    """Stored images [.., C, H, W] uint8, and where every image of the pool stands in them under
    each of G changes, [n, G] int64.

    Args:
        chosen: [m] int64 ascending numbers of the images that are changed; the place of the others
            is that of the image as it is.
        kept: whether the images as they are are needed, though every change does something.

    Raises:
        ConfigError: the examples are no images, or the changes are not for such images.
    """
    check_images(pool, changes, name)
    shape, num_images = list(pool.x.shape[1:]), len(pool.x)
    for change in changes:
        change.check(shape[0], name)
    shape[0] = 3 if any(change.colours for change in changes) else shape[0]
    plain = kept or not all(change.steps for change in changes)
    changing = [change for change in changes if change.steps]
    x = torch.empty(num_images * plain + len(chosen) * len(changing), *shape, dtype=torch.uint8)
    end = num_images * plain
    if plain:
        x[:end] = pool.x
    source = pool.x if len(chosen) == num_images else pool.x[chosen]
    white = max(1, int(pool.x.max()))
    place = torch.arange(num_images).unsqueeze(1).repeat(1, len(changes))
    for g, change in enumerate(changes):
        if change.steps:
            changed_into(source, change, x[end : end + len(chosen)], white, data_seed)
            place[chosen, g] = end + torch.arange(len(chosen))
            end += len(chosen)
    return x, place


def check_images(pool: Pool, changes: Sequence[Change], name: str) -> None:
    """Refuse what is no image, or cannot be turned, by a `ConfigError` that names the key."""
    shape = tuple(pool.x.shape[1:])
    is_image = len(shape) == 3 and shape[0] in (1, 3) and pool.x.dtype == torch.uint8
    allowed = "it needs 8-bit images with one or three channels, but an example of "
    described = f"dataset={name} has shape {shape} and type {str(pool.x.dtype).split('.')[1]}"
    require(is_image, "partition", "transform", allowed + described)
    square = shape[1] == shape[2] or not any(change.turns for change in changes)
    require(square, "partition.bank", "rotate", f"dataset={name} has no square images")
    check_scale(pool, "transformed")

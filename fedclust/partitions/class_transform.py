"""Groups that see the images of some classes transformed: P(X | Y) differs.

ANDA (FLUX, arXiv 2511.22305; FEROMA) makes such federations; it calls them label condition skew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool
from fedclust.helpers.effects import OnlyIf
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastZero, Seed
from fedclust.helpers.rng import Stream
from fedclust.partitions.concepts import base_pool, with_concepts
from fedclust.partitions.transform import Transform, changes_of, draws, transformed


def _draws(given: Mapping[str, Any]) -> bool:
    """Whether the classes are drawn, or a change in the bank draws."""
    return isinstance(given["classes"], int) or draws(given)


@dataclass(frozen=True, kw_only=True)
class ClassTransform(Transform):
    """A client's images of the chosen classes are transformed by the entry of the bank that its
    concept names; those of the other classes are as they are, for all.

    Only images that differ take memory: the chosen classes once for every entry. Group of a client:
    its entry.

    Attributes:
        classes: the chosen classes, or how many of them are drawn.
        data_seed: of noise and of the classes that are drawn; the same for every seed of the run.
        base, bank, assignment: see `Transform`.
    """

    needs_classes: ClassVar[bool] = True

    classes: AtLeastZero | Sequence[AtLeastZero] = 3
    data_seed: Annotated[
        Seed, OnlyIf(_draws, "nothing in partition.bank is drawn, nor classes")
    ] = 0

    def pool(self, dataset: Dataset) -> Pool:
        """The images, and those of the chosen classes under every entry of the bank.

        Raises:
            ConfigError: the examples are no images, the bank is not for such images, or the classes
                are none of the dataset.
        """
        pool = base_pool(self.base, dataset)
        image = torch.arange(len(pool.y)) if pool.image is None else pool.image
        own = torch.isin(pool.y, self.chosen(dataset))
        differs = torch.zeros(len(pool.x), dtype=torch.bool)
        differs[image[own]] = True
        images, changes = differs.nonzero().squeeze(1), changes_of(self.bank)
        x, place = transformed(pool, changes, images, True, self.data_seed, dataset.name)
        # an image that the base gives several labels changes only for the chosen ones
        plain = image.unsqueeze(1).expand(-1, len(changes))
        return with_concepts(pool, x=x, image=torch.where(own.unsqueeze(1), place[image], plain))

    def chosen(self, dataset: Dataset) -> Tensor:
        """The classes whose images differ, [m] int64 ascending. Raises `ConfigError` if the dataset
        has not such classes, or not so many.
        """
        num_classes = dataset.num_classes
        if isinstance(self.classes, int):
            fits = 1 <= self.classes <= num_classes
            allowed = f"1 to the {num_classes} classes of dataset={dataset.name}, or a list of them"
            require(fits, "partition.classes", self.classes, allowed)
            rng = Stream.of(self.data_seed, "class_transform").numpy()
            return torch.from_numpy(rng.permutation(num_classes)[: self.classes]).sort().values
        classes = sorted(set(self.classes))
        fits = len(classes) >= 1 and all(0 <= y < num_classes for y in classes)
        allowed = f"classes 0 to {num_classes - 1} of dataset={dataset.name}, or how many"
        require(fits, "partition.classes", list(self.classes), allowed)
        return torch.tensor(classes)

"""Rotated images: LCFL (arXiv 2407.09360), CFL-MGD (Electronics 2023, 12, 1972), IFCA
(2006.04088).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Pool, Split
from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastOne, Clients, Ranged
from fedclust.helpers.rng import Stream
from fedclust.partitions.cut import Rows, check_scale, check_test, consecutive, even, too_few


@dataclass(frozen=True, kw_only=True)
class Rotated(Ranged):
    """Group r holds the whole dataset rotated counter-clockwise by 360 r / num_rotations degrees.

    Within a group the training images are permuted and cut into equal parts, the test images cut as
    they are; so every image occurs once per rotation and never twice within one. Group of a client:
    its rotation.
    """

    # M, a multiple of `num_rotations`; LCFL 1200 and 2400 on MNIST, 200 on CIFAR-10
    num_clients: Clients
    num_rotations: AtLeastOne  # 1, 2 or 4, since only quarter turns map pixels to pixels
    # at most this many training examples per client, None for all
    examples_per_client: AtLeastOne | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        turns, clients = self.num_rotations, self.num_clients
        allowed = "1, 2 or 4, because only multiples of 90 degrees map pixels to pixels"
        require(turns in (1, 2, 4), "partition.num_rotations", turns, allowed)
        allowed = f"a multiple of partition.num_rotations={turns}"
        require(clients % turns == 0, "partition.num_clients", clients, allowed)

    def pool(self, dataset: Dataset) -> Pool:
        """Rotation after rotation, the training then the test images; rotated once, in uint8.
        Raises `ConfigError` if the examples are no square images, or are normalised pixel by pixel.
        """
        shape = dataset.shape
        needed = f"it needs square images, but an example of dataset={dataset.name} has shape "
        square = len(shape) == 3 and shape[1] == shape[2]
        require(square, "partition", "rotated", f"{needed}{tuple(shape)}")
        check_scale(dataset, "rotated")
        total = len(dataset.x_train) + len(dataset.x_test)
        x = torch.empty(self.num_rotations * total, *shape, dtype=dataset.x_train.dtype)
        row = 0
        for rotation in range(self.num_rotations):
            for part in (dataset.x_train, dataset.x_test):
                # NumPy rotates without a copy, so every image is written once
                turned = np.rot90(part.numpy(), rotation * 4 // self.num_rotations, (2, 3))
                x.numpy()[row : row + len(part)] = turned
                row += len(part)
        return Pool(
            x=x,
            y=torch.cat([dataset.y_train, dataset.y_test] * self.num_rotations),
            scale=dataset.scale,
            shift=dataset.shift,
            num_classes=dataset.num_classes,
            view=dataset.view,
        )

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        """Train split, test split and group [M]; the test split is the same for every seed."""
        check_test(dataset)
        num_train, num_test = len(dataset.x_train), len(dataset.x_test)
        parts = self.num_clients // self.num_rotations
        if parts > num_train:
            what = f"{num_train} for {parts} clients per rotation"
            raise too_few(dataset, what, "lower partition.num_clients")
        # pool row where a rotation starts
        first = np.arange(self.num_rotations) * (num_train + num_test)
        train: Rows = np.concatenate(
            [row + stream.fold(r).numpy().permutation(num_train) for r, row in enumerate(first)]
        )
        test: Rows = (first[:, None] + num_train + np.arange(num_test)).reshape(-1)
        sizes = [np.tile(even(size, parts), self.num_rotations) for size in (num_train, num_test)]
        learnt = consecutive(train, sizes[0], self.examples_per_client)
        return learnt, consecutive(test, sizes[1]), torch.arange(self.num_clients) // parts

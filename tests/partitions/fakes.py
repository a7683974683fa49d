"""A dataset of any size whose pixels say which example they are."""

import torch

from fedclust.core.types import Dataset


def fake(
    num_train: int,
    num_test: int,
    num_classes: int = 10,
    shape: tuple[int, ...] = (1, 2, 2),
    per_pixel: bool = False,
) -> Dataset:
    """Balanced classes in turn, and pixels that say which example they are of."""

    def examples(count: int) -> torch.Tensor:
        values = torch.arange(count * torch.Size(shape).numel()) % 251
        return values.to(torch.uint8).view(count, *shape)

    flat = (1,) * len(shape)
    return Dataset(
        name="fake",
        x_train=examples(num_train),
        y_train=torch.arange(num_train) % num_classes,
        x_test=examples(num_test),
        y_test=torch.arange(num_test) % num_classes,
        num_classes=num_classes,
        scale=torch.ones(shape if per_pixel else flat),
        shift=torch.zeros(shape if per_pixel else flat),
    )

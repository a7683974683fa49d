"""Examples that stand in both parts, or may once they are drawn: a model knows them by heart."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedclust.core.types import Dataset

_FEWEST, _SHARE = 5, 0.05  # fewer, or a smaller share, may be an accident
_ROWS = 4096  # examples whose bytes are looked at together


def told_of_copies(dataset: Dataset) -> Dataset:
    """The dataset, with a remark where many test examples stand among the training examples too, or
    may once they are drawn. Where equal inputs often have different targets, they are told by few
    values, and equal examples are no copies.
    """
    inputs = np.concatenate([_keys(x, 0) for x in (dataset.x_train, dataset.x_test)])
    targets = np.concatenate([_keys(y, 1) for y in (dataset.y_train, dataset.y_test)])
    whole = inputs + targets
    learnt, size = len(dataset.y_train), len(dataset.y_test)
    divided = dataset.test_share is None and size > 0
    if divided:
        copies = int(np.isin(whole[learnt:], whole[:learnt]).sum())
        shared = np.intersect1d(inputs[:learnt], inputs[learnt:])
    else:
        _, codes, times = np.unique(whole, return_inverse=True, return_counts=True)
        copies, size = int((times[codes] > 1).sum()), len(whole)
        known, often = np.unique(inputs, return_counts=True)
        shared = known[often > 1]
    kinds = len(np.unique(whole[np.isin(inputs, shared)]))
    if copies < max(_FEWEST, _SHARE * size) or kinds > (1 + _SHARE) * len(shared):
        return dataset
    remark = (
        f"{copies} of {size} test examples stand among the training examples, too, with the same "
        "target: a model may know them by heart"
        if divided
        else f"{copies} of {size} rows stand more than once, inputs and target, so that copies of "
        "training rows are tested on"
    )
    return replace(dataset, remarks=(*dataset.remarks, f"{dataset.name}: {remark}"))


def _keys(rows: Tensor, seed: int) -> npt.NDArray[np.int64]:
    """A number [N] for the bytes of every row; rows of another seed can be added to it."""
    flat = rows.reshape(len(rows), prod(rows.shape[1:]))
    size = flat.shape[1] * flat.element_size()
    odd = np.random.default_rng(seed).integers(0, 2**62, -(-size // 8)) * 2 + 1
    keys = np.zeros(len(flat), dtype=np.int64)
    for start in range(0, len(flat), _ROWS):
        some = flat[start : start + _ROWS].contiguous().numpy().view(np.uint8)
        padded = np.zeros((len(some), 8 * len(odd)), dtype=np.uint8)
        padded[:, :size] = some.reshape(len(some), size)
        words = padded.view(np.int64)
        keys[start : start + _ROWS] = ((words ^ (words >> 29)) * odd).sum(1)
    return keys

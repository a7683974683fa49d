"""Dropout masks depend on the row's key, the step, the layer and the place in the batch only."""

from __future__ import annotations

import torch

from fedclust.core.calls import Shards
from fedclust.engines.schedule import schedule
from fedclust.helpers.rng import Stream
from fedclust.models.dropout import keep
from fedclust.solver import Solver

KEYS = Stream.of(0, "train", 4).keys(torch.arange(6))


def test_shape_values_and_rate() -> None:
    mask = keep(KEYS, 0, 3, 50, (4, 5, 5), 0.4)
    assert mask.shape == (6, 50, 4, 5, 5)
    assert mask.dtype == torch.float32
    torch.testing.assert_close(mask.unique(), torch.tensor([0, 1 / 0.6]))
    n = mask.numel()
    assert abs(float((mask == 0).double().mean()) - 0.4) < 5 * (0.4 * 0.6 / n) ** 0.5


def test_company_and_padding_change_nothing() -> None:
    mask = keep(KEYS, 2, 3, 10, (7,), 0.5)
    assert torch.equal(keep(KEYS[4:], 2, 3, 4, (7,), 0.5), mask[4:, :4])


def test_steps_layers_rows_and_places_differ() -> None:
    mask = keep(KEYS, 2, 3, 2, (64,), 0.5)
    others = (
        keep(KEYS, 3, 3, 2, (64,), 0.5),
        keep(KEYS, 2, 4, 2, (64,), 0.5),
        keep(KEYS, 3, 2, 2, (64,), 0.5),
    )
    assert all(not torch.equal(mask, other) for other in others)
    assert len(mask.view(12, 64).unique(dim=0)) == 12


def test_masks_are_not_the_numbers_that_order_the_batches() -> None:
    """Places in the first epoch, which the same key decides, must not say what is dropped."""
    keys = Stream.of(0, "train").keys(torch.arange(4000))
    shards = Shards(
        index=torch.zeros(4000, 2, dtype=torch.int64), count=torch.full((4000,), 2), key=keys
    )
    first = schedule(shards, Solver(lr=0.1, batch_size=1)).position[:, 0, 0]
    kept = keep(keys, 0, 0, 1, (1,), 0.5).flatten() > 0
    assert abs(float((kept == (first == 0)).double().mean()) - 0.5) < 5 * 0.5 / 4000**0.5

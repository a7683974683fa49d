"""Masks of dropout drawn by compiled code have the bits of `fedclust.models.dropout`."""

from __future__ import annotations

import pytest
import torch

from fedclust.engines.fused.native import masks
from fedclust.helpers.rng import Stream
from fedclust.models import dropout

KEYS = Stream.of(3, "train", 7).keys(torch.arange(5))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.25, 0.3, 0.5, 1 / 3, 0.999])
@pytest.mark.parametrize("features", [(), (1,), (17,), (3, 5, 7), (4096,)])
def test_bits(features: tuple[int, ...], p: float) -> None:
    for step, layer, batch in ((0, 2, 10), (5, 4, 1)):
        drawn = masks.keep(KEYS, step, layer, batch, features, p)
        assert torch.equal(drawn, dropout.keep(KEYS, step, layer, batch, features, p))


def test_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other row, which do not lie beside each other; and without a compiler."""
    want = dropout.keep(KEYS[::2], 1, 1, 3, (9,), 0.4)
    assert torch.equal(masks.keep(KEYS[::2], 1, 1, 3, (9,), 0.4), want)
    monkeypatch.setattr(masks, "compiled", lambda: None)
    assert torch.equal(masks.keep(KEYS[::2], 1, 1, 3, (9,), 0.4), want)

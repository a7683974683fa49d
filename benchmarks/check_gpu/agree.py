"""How far two computations of the same are apart."""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.core.calls import Alignment, LocalResult, Sums, TestResult

# of the way that training has gone: float32 in another order, and rounded factors
LIMITS = {"highest": 0.01, "high": 0.05, "bf16": 0.15}


def apart(found: object, expected: object, starts: Tensor | None = None) -> Tensor:
    """Distance of every row over the way it has gone, or over its own size; infinite where one of
    the two is not finite.

    Args:
        found, expected: what two calls gave, on any device.
        starts: [K, P] where rows of parameters may have begun; None to compare sizes.

    Returns:
        [C] float64; of sums [K + C], those of the models first, then the rows' losses.
    """
    if isinstance(expected, Sums):
        assert isinstance(found, Sums)
        models = _apart(found.params, expected.params, _way_of_sums(expected.params, starts))
        return torch.cat([models, _apart(found.loss, expected.loss)])
    if isinstance(expected, LocalResult):
        assert isinstance(found, LocalResult)
        params = _apart(found.params, expected.params, _way(expected.params, starts))
        return torch.maximum(params, _apart(found.loss, expected.loss))
    if isinstance(expected, TestResult | Alignment):
        assert isinstance(found, TestResult | Alignment)
        parts = [_apart(a, b) for a, b in zip(found, expected, strict=True)]
        return torch.stack(parts).amax(0)
    assert isinstance(found, Tensor)
    assert isinstance(expected, Tensor)
    return _apart(found, expected, _way(expected, starts))


def _way(params: Tensor, starts: Tensor | None) -> Tensor | None:
    """How far every row has gone from the nearest of the models it may have begun with, [C]."""
    if starts is None:
        return None
    rows = _finite(_rows(params))
    return torch.stack([(rows - start).norm(dim=1) for start in _rows(starts)]).amin(0)


def _way_of_sums(sums: Tensor, starts: Tensor | None) -> Tensor | None:
    """How far the rows of every model have gone together, [K]: what their sum has beside a multiple
    of the model that they began with.
    """
    if starts is None:
        return None
    total, start = _finite(_rows(sums)), _rows(starts)
    along = (total * start).sum(1, keepdim=True) / (start * start).sum(1, keepdim=True)
    return (total - along * start).norm(dim=1)


def _rows(x: Tensor) -> Tensor:
    return x.detach().cpu().double().reshape(len(x), -1)


def _finite(x: Tensor) -> Tensor:
    return x.nan_to_num(0, 0, 0)


def _apart(found: Tensor, expected: Tensor, size: Tensor | None = None) -> Tensor:
    """Distance of every row over `size` [C], or over its own."""
    one, other = _rows(found), _rows(expected)
    finite = (one.isfinite() == other.isfinite()).all(1)
    one, other = _finite(one), _finite(other)
    size = other.norm(dim=1) if size is None else size
    off = (one - other).norm(dim=1)
    # a row that stays where it is has no way
    relative = torch.where(
        size > 0, off / size.clamp(min=1e-300), torch.where(off > 1e-6, torch.inf, 0.0)
    )
    return torch.where(finite, relative, torch.inf)

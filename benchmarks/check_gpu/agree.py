"""How far two computations of the same are apart."""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.calls import Alignment, LocalResult, TestResult

# of the way that training has gone: float32 in another order, and rounded factors
LIMITS = {"highest": 0.01, "high": 0.05, "bf16": 0.15}


def apart(found: object, expected: object, starts: Tensor | None = None) -> Tensor:
    """Distance of every row over the way it has gone, or over its own size; infinite where one of
    the two is not finite.

    Args:
        found, expected: what two calls gave, on any device.
        starts: [K, P] where rows of parameters may have begun; None to compare sizes.

    Returns:
        [C] float64.
    """
    if isinstance(expected, LocalResult):
        assert isinstance(found, LocalResult)
        params = _apart(found.params, expected.params, starts)
        return torch.maximum(params, _apart(found.loss, expected.loss, None))
    if isinstance(expected, TestResult | Alignment):
        assert isinstance(found, TestResult | Alignment)
        parts = [_apart(a, b, None) for a, b in zip(found, expected, strict=True)]
        return torch.stack(parts).amax(0)
    assert isinstance(found, Tensor)
    assert isinstance(expected, Tensor)
    return _apart(found, expected, starts)


def _apart(found: Tensor, expected: Tensor, starts: Tensor | None) -> Tensor:
    one, other = (x.detach().cpu().double().reshape(len(x), -1) for x in (found, expected))
    same = one.isfinite() == other.isfinite()
    finite = same.all(1)
    one, other = one.nan_to_num(0, 0, 0), other.nan_to_num(0, 0, 0)
    if starts is None:
        size = other.norm(dim=1)
    else:
        ways = [(other - start).norm(dim=1) for start in starts.detach().cpu().double()]
        size = torch.stack(ways).amin(0)
    off = (one - other).norm(dim=1)
    # a row that stays where it is has no way
    relative = torch.where(
        size > 0, off / size.clamp(min=1e-300), torch.where(off > 1e-6, torch.inf, 0.0)
    )
    return torch.where(finite, relative, torch.inf)

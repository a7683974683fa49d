"""Shares of a count as whole numbers.

In binary 0.29 * 100 is less than 29 and 0.07 * 100 more than 7: right for shares of up to eight
digits and counts of up to a few millions.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

_SLACK = 1e-9  # above the error of a product in binary, below every other distance to a whole one

Count = TypeVar("Count", int, npt.NDArray[np.int64], Tensor)


def rounded_down(share: Any, count: Count) -> Count:
    """The largest whole numbers of at most share * count, int64 where there are several."""
    found: Count = _whole(share, count, -1)
    return found


def rounded_up(share: Any, count: Count) -> Count:
    """The smallest whole numbers of at least share * count, int64 where there are several."""
    found: Count = _whole(share, count, 1)
    return found


def _whole(share: Any, count: Any, way: int) -> Any:
    # torch multiplies whole numbers by a float in float32
    exact = share * (count.double() if isinstance(count, Tensor) else count) - way * _SLACK
    if isinstance(exact, Tensor):
        return (exact.ceil() if way > 0 else exact.floor()).long()
    found = np.ceil(exact) if way > 0 else np.floor(exact)
    return int(found) if isinstance(count, int) else found.astype(np.int64)

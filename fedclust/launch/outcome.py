"""What has come out of a job, and where: the line with which it ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.helpers.errors import counted
from fedclust.metrics import headline_of
from fedclust.report.formats import decimals, factor, in_percent, inside, plus_minus, title


def outcome(
    folder: Path, last: Mapping[str, NDArray[np.float64]], config: Mapping[str, Any], how: str
) -> str:
    """The line on a finished job.

    Args:
        folder: the job's.
        last: of every metric the last values of the seeds that have not failed.
        config: the job's.
        how: the word for what became of it, such as "is done".
    """
    own = headline_of(last)
    told = [_words(one, last[one]) for one in (own, "purity", "ari") if one in last]
    num, asked = max(map(len, last.values()), default=0), len(config["seeds"])
    seeds = counted(asked, "seed") if num == asked else f"{num} of {counted(asked, 'seed')}"
    return f"{folder} {how}: {', '.join(told)} ({seeds}, {counted(config['rounds'], 'round')})"


def _words(metric: str, values: NDArray[np.float64]) -> str:
    shown = factor(metric) * values
    unit = " %" if in_percent(metric) else ""
    return f"{inside(title(metric))} {plus_minus(shown, decimals(metric, shown))}{unit}"

"""The numbers of some arms as pandas frames, for somebody who goes on with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedclust.metrics import METRICS
from fedclust.report.arms import Arm
from fedclust.report.formats import sign
from fedclust.report.runs import Curve


def rounds_frame(arms: Sequence[Arm]) -> pd.DataFrame:
    """Columns arm, seed, round (from 0) and one per metric; NaN where nothing was recorded."""
    frames = []
    for arm in arms:
        columns = {name: _stacked(curve) for name, curve in arm.run.curves.items()}
        frame = pd.concat(columns, axis=1).rename_axis(["seed", "round"]).sort_index()
        frames.append(_named(arm, frame.reset_index()))
    return pd.concat(frames, ignore_index=True)


def _stacked(curve: Curve) -> pd.Series[float]:
    """One metric by seed and round."""
    index = pd.MultiIndex.from_product([curve.seeds, curve.rounds])
    return pd.Series(curve.values.T.ravel(), index=index).dropna()


def clients_frame(arms: Sequence[Arm]) -> pd.DataFrame:
    """Column arm, and the columns of clients.parquet."""
    return pd.concat([_named(arm, arm.run.all_clients()) for arm in arms], ignore_index=True)


def predictions_frame(arms: Sequence[Arm]) -> pd.DataFrame:
    """Column arm, and the columns of the files in `predictions/`; empty without any."""
    frames = [_named(arm, arm.run.predictions()) for arm in arms]
    return pd.concat([one for one in frames if len(one)] or frames[:1], ignore_index=True)


def _named(arm: Arm, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the arm in front."""
    frame.insert(0, "arm", arm.label)
    return frame


def summary_frame(arms: Sequence[Arm]) -> pd.DataFrame:
    """By arm and metric: mean and standard deviation over seeds of the last and the best value.

    Columns last, last_std, best, best_std, seeds; NaN without a direction; failed seeds left out.
    """
    rows = {}
    for arm in arms:
        for metric in arm.run.curves:
            curve = arm.curve(metric)
            assert curve is not None
            last = curve.last()
            best, seeds = _over_seeds(_best(metric, curve)), len(last)
            rows[arm.label, metric] = (*_over_seeds(last), *best, seeds)
    columns = ["last", "last_std", "best", "best_std", "seeds"]
    index = pd.MultiIndex.from_tuples(rows, names=["arm", "metric"])
    return pd.DataFrame(list(rows.values()), index, columns).astype({"seeds": int})


def _best(metric: str, curve: Curve) -> NDArray[np.float64]:
    """[S] the best value of every seed, NaN where no direction is better."""
    if metric not in METRICS or METRICS[metric].better == "neither":
        return np.full(len(curve.seeds), np.nan)
    return np.asarray(sign(metric) * np.fmax.reduce(sign(metric) * curve.values, axis=0))


def _over_seeds(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard deviation (ddof=0) of the seeds that have a value."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.nan, np.nan
    with np.errstate(over="ignore", invalid="ignore"):  # a loss that explodes
        return float(known.mean()), float(known.std())

"""Every method in every federation, as a share of what knowing the true groups gives there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedclust.metrics import METRICS
from fedclust.report.arms import Arm, settings_of
from fedclust.report.columns import TableColumn, tabulate
from fedclust.report.formats import factor, title
from fedclust.report.headline import final_scores, in_panels
from fedclust.report.spec import Spec
from fedclust.report.table import Table

# what a score is divided by: the first of these that ran, with default settings where there are
# tuned ones beside them; with one group for all, knowing the groups is FedAvg
_ORACLE = ("oracle", "oracle default")
_ONE_FOR_ALL = ("fedavg", "fedavg default")
BELOW = "▾"  # behind a share that one model for all exceeds
LACKS = "†"  # behind a share of fewer seeds than others have in the same federation


@dataclass(frozen=True)
class Relative:
    """Scores over those of the method that knows the groups.

    Attributes:
        names: [k] methods, the best mean first; those that did not run everywhere at the end.
        settings: [F] federations.
        knowing: [F] the method whose score the others of a federation are divided by.
        base: [F] that score, mean over its seeds, as shown.
        shares: [k, F] mean over the seeds of both, 1 as good as knowing the groups; NaN where a
            method did not run to its end.
        lacks: [k, F] bool, whether seeds are missing that another method has there.
        common: [F] the share of one model for all, FedAvg's; NaN where that did not run.
    """

    names: tuple[str, ...]
    settings: tuple[str, ...]
    knowing: tuple[str, ...]
    base: NDArray[np.float64]
    shares: NDArray[np.float64]
    lacks: NDArray[np.bool_]
    common: NDArray[np.float64]

    @property
    def means(self) -> NDArray[np.float64]:
        """[k] mean over the federations; NaN for a method that did not run in all of them."""
        mean: NDArray[np.float64] = self.shares.mean(axis=1)
        return mean

    def cell_text(self, row: int, column: int) -> str:
        """A share with its marks; a dash where the method did not run."""
        share = self.shares[row, column]
        below, lacks = bool(share < self.common[column]), bool(self.lacks[row, column])
        return f"{percent(share)} {BELOW * below}{LACKS * lacks}".rstrip()

    def mean_text(self, row: int) -> str:
        """The mean of a row, marked where one of its shares lacks seeds."""
        return f"{percent(self.means[row])} {LACKS * bool(self.lacks[row].any())}".rstrip()


def relative(spec: Spec, arms: Sequence[Arm]) -> Relative | None:
    """The shares of a sweep; None where they have no base, or scores are not above zero."""
    if not in_panels(arms) or METRICS[spec.metric].better != "higher":
        return None
    scores = {key: values for key, values in final_scores(spec, arms).items() if values}

    def first(setting: str, names: Sequence[str]) -> str:
        return next((name for name in names if (setting, name) in scores), "")

    knowing = {s: first(s, (*_ORACLE, *_ONE_FOR_ALL)) for s in settings_of(arms)}
    settings = tuple(setting for setting, name in knowing.items() if name)
    names = tuple(dict.fromkeys(arm.name for arm in arms))
    if not set(_ORACLE) & set(knowing.values()):
        return None

    def share(setting: str, name: str) -> float:
        own, best = scores.get((setting, name), {}), scores[setting, knowing[setting]]
        common = [seed for seed in own if seed in best]
        below = sum(best[seed] for seed in common)
        return sum(own[seed] for seed in common) / below if below > 0 else np.nan

    # a row of its own would be 100 all along
    names = tuple(n for n in names if any(n != k and (s, n) in scores for s, k in knowing.items()))
    if not names:
        return None
    shares = np.array([[share(setting, name) for setting in settings] for name in names])
    if not np.isfinite(shares).any():  # of a score below zero, as R² may be
        return None
    most = {s: max(len(v) for (where, _), v in scores.items() if where == s) for s in settings}
    lacks = [[0 < len(scores.get((s, n), ())) < most[s] for s in settings] for n in names]
    complete = np.isfinite(shares).all(axis=1)
    order = np.lexsort((-np.nan_to_num(shares).mean(axis=1), ~complete))
    return Relative(
        names=tuple(names[i] for i in order),
        settings=settings,
        knowing=tuple(knowing[setting] for setting in settings),
        base=factor(spec.metric)
        * np.array([np.mean(list(scores[s, knowing[s]].values())) for s in settings]),
        shares=shares[order],
        lacks=np.array(lacks)[order],
        common=np.array([share(setting, first(setting, _ONE_FOR_ALL)) for setting in settings]),
    )


def relative_table(spec: Spec, arms: Sequence[Arm]) -> Table | None:
    """A row per method, a column per federation; None as for `relative`."""
    results = relative(spec, arms)
    if results is None:
        return None

    def of(column: int, setting: str) -> TableColumn:
        return TableColumn(
            setting,
            lambda row: row,
            lambda row: results.cell_text(row, column),
            lambda row: {setting: _or_blank(results.shares[row, column])},
        )

    columns = [
        TableColumn("arm", results.names.__getitem__, record="arm"),
        TableColumn(
            "mean",
            lambda row: row,
            results.mean_text,
            lambda row: {"mean": _or_blank(results.means[row])},
        ),
        *(of(column, setting) for column, setting in enumerate(results.settings)),
    ]
    heading = f"{title(spec.metric)} in percent of what knowing the true groups gives"
    rows = range(len(results.names))
    return tabulate("relative", heading, columns, rows, notes=(explained(results),))


def _or_blank(value: float) -> float | str:
    return "" if np.isnan(value) else float(value)


def explained(results: Relative) -> str:
    """The caption: how the numbers are computed."""
    others = [s for s, k in zip(results.settings, results.knowing, strict=True) if k not in _ORACLE]
    with_defaults = ", with default settings," if _ORACLE[1] in results.knowing else ""
    without = (
        f" {' and '.join(others)} {'has' if len(others) == 1 else 'have'} no oracle; there, scores "
        "are divided by FedAvg's, which equals an oracle with a single group."
        if others
        else ""
    )
    return (
        f"Score divided by the oracle's{with_defaults} in the same federation and seeds, in "
        "percent: 100 is as good as "
        f"FedAvg inside the true groups.{without} {BELOW}: below FedAvg, one model for all. "
        "Methods are ordered by their mean over the federations; those that did not run in all of "
        "them come last."
        + (f" {LACKS}: some seeds that others have are missing." if results.lacks.any() else "")
    )


def percent(share: float) -> str:
    """A share as tables and figures show it."""
    return "–" if np.isnan(share) else f"{100 * share:.0f}"

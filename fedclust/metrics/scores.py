"""Scores by name. Each gets targets, predictions and the client of every example.

Targets of T numbers are [n, T] in the unit of the file, flags [n, T] of 0 and 1, classes [n] int64.
Predictions are [n, Y] float64: probabilities, or numbers in that unit. A score that is not defined
for some examples, as AUROC is where all are of one class, is NaN.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedclust.core.task import Score, Targets
from fedclust.helpers.errors import ConfigError

Floats = NDArray[np.float64]
Numbers = NDArray[Any]  # targets
Function = Callable[[Numbers, Floats], float]
BINS = 15  # of probabilities, as in Guo et al. (ICML 2017)


class Measure(Protocol):
    """A score of predictions; one of a user's own is a class with these members."""

    @property
    def about(self) -> Score:
        """Its name and what it is."""
        ...

    @property
    def targets(self) -> tuple[Targets, ...]:
        """The kinds of targets that it is for."""
        ...

    def __call__(self, targets: Numbers, predictions: Floats, client: NDArray[np.int64]) -> float:
        """The score of some examples, NaN where it is not defined; `client` [n] has each."""
        ...


@dataclass(frozen=True)
class Named:
    """One of the scores of the package.

    Attributes:
        about, targets: see `Measure`.
        function: of targets and predictions; None where there is a picture only.
        picture: the array of `fedclust.metrics.score_pictures` that a report draws of it; "" for
            none.
    """

    about: Score
    targets: tuple[Targets, ...]
    function: Function | None
    picture: str = ""

    def __call__(
        self,
        targets: Numbers,
        predictions: Floats,
        client: NDArray[np.int64],  # noqa: ARG002
    ) -> float:
        assert self.function is not None
        return self.function(targets, predictions) if len(targets) else math.nan


def flags_of(targets: Numbers, predictions: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Targets as flags [n, L] and the probability of each; of two classes the second alone."""
    if targets.ndim == 2:
        return targets > 0, predictions
    if predictions.shape[1] == 2:
        return targets[:, None] == 1, predictions[:, 1:]
    return targets[:, None] == np.arange(predictions.shape[1]), predictions


def _f1_macro(targets: Numbers, predictions: Floats) -> float:
    if targets.ndim == 2:
        held, said = targets > 0, predictions > 0.5
    else:
        classes = np.arange(predictions.shape[1])
        held, said = targets[:, None] == classes, predictions.argmax(1)[:, None] == classes
    right, all_of = (held & said).sum(0), held.sum(0) + said.sum(0)
    return _mean(2 * right[all_of > 0] / all_of[all_of > 0])


def _balanced_accuracy(targets: Numbers, predictions: Floats) -> float:
    right = predictions.argmax(1) == targets
    return _mean(np.array([right[targets == one].mean() for one in np.unique(targets)]))


def _auroc(targets: Numbers, predictions: Floats) -> float:
    """Mean over the labels of which there are both; NaN without any, which `judged` counts."""
    from scipy.stats import rankdata  # it takes long to import

    held, said = _mixed(*flags_of(targets, predictions))
    have = held.sum(0)
    ranks = (rankdata(said, axis=0) * held).sum(0) if said.size else np.empty(0)
    return _mean((ranks - have * (have + 1) / 2) / (have * (len(held) - have)))


def _auprc(targets: Numbers, predictions: Floats) -> float:
    from sklearn.metrics import average_precision_score  # it takes a second to import

    held, said = _mixed(*flags_of(targets, predictions))
    each = [average_precision_score(h, s) for h, s in zip(held.T, said.T, strict=True)]
    return _mean(np.array(each))


def _brier(targets: Numbers, predictions: Floats) -> float:
    held, said = flags_of(targets, predictions)
    each = (said - held) ** 2
    return float((each.mean(1) if targets.ndim == 2 else each.sum(1)).mean())


def calibration(targets: Numbers, predictions: Floats) -> Floats:
    """Of every bin of confidence its examples, their summed confidence, and how many were right,
    [3, BINS]. Classes: the probability of the predicted one; labels: that of each.
    """
    if targets.ndim == 2:
        return binned(predictions.ravel(), targets.ravel() > 0)
    return binned(predictions.max(1), predictions.argmax(1) == targets)


def binned(sure: Floats, right: NDArray[np.bool_]) -> Floats:
    """Of every bin of probabilities [n] their number, their sum, and how many came true,
    [3, BINS].
    """
    place = (np.ceil(sure * BINS).astype(int) - 1).clip(0, BINS - 1)
    return np.stack([np.bincount(place, of, BINS) for of in (np.ones(len(sure)), sure, right)])


def _ece(targets: Numbers, predictions: Floats) -> float:
    count, sure, right = calibration(targets, predictions)
    return float(np.abs(sure - right).sum() / count.sum())


def _log_loss(targets: Numbers, predictions: Floats) -> float:
    least = np.finfo(np.float64).eps
    said = predictions.clip(least, 1 - least)
    if targets.ndim == 2:
        return float(-np.log(np.where(targets > 0, said, 1 - said)).mean())
    return float(-np.log(said[np.arange(len(targets)), targets]).mean())


def _perplexity(targets: Numbers, predictions: Floats) -> float:
    return math.exp(_log_loss(targets, predictions))


def _mae(targets: Numbers, predictions: Floats) -> float:
    return float(np.abs(predictions - targets).mean())


def _rmse(targets: Numbers, predictions: Floats) -> float:
    return float(np.sqrt(((predictions - targets) ** 2).mean(0)).mean())


def _r2(targets: Numbers, predictions: Floats) -> float:
    if (targets == targets[0]).all(0).any():  # all equal: nothing to explain
        return math.nan
    spread = ((targets - targets.mean(0)) ** 2).sum(0)
    return float((1 - ((predictions - targets) ** 2).sum(0) / spread).mean())


def _mixed(held: NDArray[np.bool_], said: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """The labels that some of the examples have and others do not."""
    both = held.any(0) & ~held.all(0)
    return held[:, both], said[:, both]


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


_CLASSES: tuple[Targets, ...] = ("classes",)
_FLAGS: tuple[Targets, ...] = ("classes", "flags")
_NUMBERS: tuple[Targets, ...] = ("numbers",)
_REST = "of more than two classes the mean of each against the rest"

_SUMMED = "of more than two classes summed over them"


def _up(name: str, title: str, text: str, unit: str = "") -> Score:
    return Score(name, text, title, "higher", unit)


def _down(name: str, title: str, text: str, unit: str = "") -> Score:
    return Score(name, text, title, "lower", unit)


_ALL = (
    Named(
        _up(
            "f1_macro",
            "Macro F1",
            "mean F1 score of the classes, or labels, that occur",
            "fraction",
        ),
        _FLAGS,
        _f1_macro,
    ),
    Named(
        _up(
            "balanced_accuracy",
            "Balanced accuracy",
            "mean recall of the classes that occur",
            "fraction",
        ),
        _CLASSES,
        _balanced_accuracy,
    ),
    Named(_up("auroc", "AUROC", f"area under the ROC curve, {_REST}"), _FLAGS, _auroc, "roc"),
    Named(_up("auprc", "AUPRC", f"average precision, {_REST}"), _FLAGS, _auprc),
    Named(
        _down(
            "brier",
            "Brier score",
            f"mean squared error of the probabilities, {_SUMMED}",
        ),
        _FLAGS,
        _brier,
        "calibration",
    ),
    Named(
        _down(
            "ece",
            "Calibration error",
            f"expected calibration error of the predicted class, {BINS} bins",
        ),
        _CLASSES,
        _ece,
        "calibration",
    ),
    Named(
        _down(
            "log_loss",
            "Log loss",
            "mean of -log of the probability of what is true",
            "nats/example",
        ),
        _FLAGS,
        _log_loss,
        "calibration",
    ),
    Named(
        _down(
            "perplexity",
            "Perplexity",
            "exp of the log loss; equal probabilities: the number of classes",
        ),
        _CLASSES,
        _perplexity,
    ),
    Named(
        _up("confusion", "Confusion", "examples by class and predicted class"),
        _CLASSES,
        None,
        "confusion",
    ),
    Named(
        _down("mae", "Mean absolute error", "mean absolute error, in the target's unit"),
        _NUMBERS,
        _mae,
        "residuals",
    ),
    Named(
        _down(
            "rmse",
            "Root mean squared error",
            "root of the mean squared error, in the target's unit",
        ),
        _NUMBERS,
        _rmse,
        "residuals",
    ),
    Named(
        _up("r2", "R²", "1 - squared error / that of the mean of the targets"),
        _NUMBERS,
        _r2,
        "residuals",
    ),
)
MEASURES: Mapping[str, Named] = {one.about.name: one for one in _ALL}
NAMES = tuple(name for name, one in MEASURES.items() if one.function is not None)


def taken(
    measure: Measure, targets: Numbers, predictions: Floats, client: NDArray[np.int64]
) -> float:
    """The score of some examples; NaN where a prediction is not finite.

    Raises:
        ConfigError: a score of a user's own returns no number.
    """
    if not np.isfinite(predictions).all():
        return math.nan
    with warnings.catch_warnings():  # of scikit-learn, of what is not defined
        warnings.simplefilter("ignore")
        found: Any = measure(targets, predictions, client)
    try:
        return float(found)
    except (TypeError, ValueError) as error:
        shape = f" of shape {found.shape}" if isinstance(found, np.ndarray) else ""
        raise ConfigError(
            f"scores: {measure.about.name} returned a {type(found).__name__}{shape}: a number is "
            "needed, nan where it is not defined"
        ) from error

"""Scores by name. Each gets targets, predictions and the client of every example.

Targets of T numbers are [n, T] in the unit of the file, flags [n, T] of 0 and 1, classes [n] int64.
Predictions are [n, Y] float64: probabilities, or numbers in that unit. A score that is not defined
for some examples, as AUROC is where all are of one class, is NaN.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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
    """One of the scores of the package."""

    # about, targets: see `Measure`
    about: Score
    targets: tuple[Targets, ...]
    function: Function | None  # of targets and predictions; None where there is a picture only
    # the array of `fedclust.metrics.score_pictures` that a report draws of it; "" for none
    picture: str = ""

    def __call__(
        self,
        targets: Numbers,
        predictions: Floats,
        client: NDArray[np.int64],  # noqa: ARG002
    ) -> float:
        assert self.function is not None
        return self.function(targets, predictions) if len(targets) else math.nan


_CLASSES: tuple[Targets, ...] = ("classes",)
_FLAGS: tuple[Targets, ...] = ("classes", "flags")
_NUMBERS: tuple[Targets, ...] = ("numbers",)
_REST = "of more than two classes the mean of each against the rest"
_SQUARED = "mean squared error of the probabilities, of more than two classes summed over them"
_BINNED = f"expected calibration error of the predicted class, {BINS} bins"
_SAID = "mean of -log of the probability of what is true"
_EXP = "exp of the log loss; equal probabilities: the number of classes"
_ABSOLUTE = "mean absolute error, in the target's unit"
_EXPLAINED = "1 - squared error / that of the mean of the targets"
_ROOT = "root of the mean squared error, in the target's unit"
MEASURES: dict[str, Named] = {}


def _measure(
    better: Literal["higher", "lower"],
    title: str,
    text: str,
    targets: tuple[Targets, ...],
    unit: str = "",
    picture: str = "",
) -> Callable[[Function], Function]:
    """The function below is a score by its name; see `Named` and `Score`."""

    def kept(function: Function) -> Function:
        name = function.__name__.removeprefix("_")
        MEASURES[name] = Named(Score(name, text, title, better, unit), targets, function, picture)
        return function

    return kept


def flags_of(targets: Numbers, predictions: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Targets as flags [n, L] and the probability of each; of two classes the second alone."""
    if targets.ndim == 2:
        return targets > 0, predictions
    if predictions.shape[1] == 2:
        return targets[:, None] == 1, predictions[:, 1:]
    return targets[:, None] == np.arange(predictions.shape[1]), predictions


@_measure(
    "higher", "Macro F1", "mean F1 score of the classes, or labels, that occur", _FLAGS, "fraction"
)
def _f1_macro(targets: Numbers, predictions: Floats) -> float:
    if targets.ndim == 2:
        held, predicted = targets > 0, predictions > 0.5
    else:
        classes = np.arange(predictions.shape[1])
        held, predicted = targets[:, None] == classes, predictions.argmax(1)[:, None] == classes
    right, all_of = (held & predicted).sum(0), held.sum(0) + predicted.sum(0)
    return _mean(2 * right[all_of > 0] / all_of[all_of > 0])


@_measure(
    "higher", "Balanced accuracy", "mean recall of the classes that occur", _CLASSES, "fraction"
)
def _balanced_accuracy(targets: Numbers, predictions: Floats) -> float:
    right = predictions.argmax(1) == targets
    return _mean(np.array([right[targets == one].mean() for one in np.unique(targets)]))


@_measure("higher", "AUROC", f"area under the ROC curve, {_REST}", _FLAGS, picture="roc")
def _auroc(targets: Numbers, predictions: Floats) -> float:
    """Mean over the labels of which there are both; NaN without any, which `judged` counts."""
    from scipy.stats import rankdata  # it takes long to import

    held, probability = _mixed(*flags_of(targets, predictions))
    have = held.sum(0)
    ranks = (rankdata(probability, axis=0) * held).sum(0) if probability.size else np.empty(0)
    return _mean((ranks - have * (have + 1) / 2) / (have * (len(held) - have)))


@_measure("higher", "AUPRC", f"average precision, {_REST}", _FLAGS)
def _auprc(targets: Numbers, predictions: Floats) -> float:
    from sklearn.metrics import average_precision_score  # it takes a second to import

    held, probability = _mixed(*flags_of(targets, predictions))
    each = [average_precision_score(h, s) for h, s in zip(held.T, probability.T, strict=True)]
    return _mean(np.array(each))


@_measure("lower", "Brier score", _SQUARED, _FLAGS, picture="calibration")
def _brier(targets: Numbers, predictions: Floats) -> float:
    held, probability = flags_of(targets, predictions)
    each = (probability - held) ** 2
    return float((each.mean(1) if targets.ndim == 2 else each.sum(1)).mean())


def calibration(targets: Numbers, predictions: Floats) -> Floats:
    """Of every bin of confidence its examples, their summed confidence, and how many were right,
    [3, BINS]. Classes: the probability of the predicted one; labels: that of each.
    """
    if targets.ndim == 2:
        return binned(predictions.ravel(), targets.ravel() > 0)
    return binned(predictions.max(1), predictions.argmax(1) == targets)


def binned(sure: Floats, right: NDArray[np.bool_]) -> Floats:
    """Of every bin of probabilities [n] number, sum, and how many came true, [3, BINS]."""
    place = (np.ceil(sure * BINS).astype(int) - 1).clip(0, BINS - 1)
    return np.stack([np.bincount(place, of, BINS) for of in (np.ones(len(sure)), sure, right)])


@_measure("lower", "Calibration error", _BINNED, _CLASSES, picture="calibration")
def _ece(targets: Numbers, predictions: Floats) -> float:
    count, sure, right = calibration(targets, predictions)
    return float(np.abs(sure - right).sum() / count.sum())


@_measure("lower", "Log loss", _SAID, _FLAGS, "nats/example", "calibration")
def _log_loss(targets: Numbers, predictions: Floats) -> float:
    least = np.finfo(np.float64).eps
    probability = predictions.clip(least, 1 - least)
    if targets.ndim == 2:
        return float(-np.log(np.where(targets > 0, probability, 1 - probability)).mean())
    return float(-np.log(probability[np.arange(len(targets)), targets]).mean())


@_measure("lower", "Perplexity", _EXP, _CLASSES)
def _perplexity(targets: Numbers, predictions: Floats) -> float:
    return math.exp(_log_loss(targets, predictions))


_COUNTED = Score("confusion", "examples by class and predicted class", "Confusion", "higher", "")
MEASURES["confusion"] = Named(_COUNTED, _CLASSES, None, "confusion")


@_measure("lower", "Mean absolute error", _ABSOLUTE, _NUMBERS, picture="residuals")
def _mae(targets: Numbers, predictions: Floats) -> float:
    return float(np.abs(predictions - targets).mean())


@_measure("lower", "Root mean squared error", _ROOT, _NUMBERS, picture="residuals")
def _rmse(targets: Numbers, predictions: Floats) -> float:
    return float(np.sqrt(((predictions - targets) ** 2).mean(0)).mean())


@_measure("higher", "R²", _EXPLAINED, _NUMBERS, picture="residuals")
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


NAMES = tuple(name for name, one in MEASURES.items() if one.function is not None)


def taken(
    measure: Measure, targets: Numbers, predictions: Floats, client: NDArray[np.int64]
) -> float:
    """The score of some examples; NaN where a prediction is not finite. Raises `ConfigError` if a
    score of a user's own returns no number.
    """
    if not np.isfinite(predictions).all():
        return math.nan
    with warnings.catch_warnings():  # of scikit-learn, of what is not defined
        warnings.simplefilter("ignore")
        score: Any = measure(targets, predictions, client)
    try:
        return float(score)
    except (TypeError, ValueError) as error:
        shape = f" of shape {score.shape}" if isinstance(score, np.ndarray) else ""
        raise ConfigError(
            f"scores: {measure.about.name} returned a {type(score).__name__}{shape}: a number is "
            "needed, nan where it is not defined"
        ) from error

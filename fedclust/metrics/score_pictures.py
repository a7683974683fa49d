"""What a report draws of predictions: one array by name, whose numbers are small."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedclust.metrics.scores import Floats, Numbers, binned, calibration, flags_of

GRID = np.linspace(0, 1, 101)  # of false positive rates
_MOST = 1000  # points of a cloud


def confusion(targets: Numbers, predictions: Floats) -> NDArray[np.int64]:
    """Examples by class and predicted class, [Y, Y] int64."""
    classes = predictions.shape[1]
    cell = targets * classes + predictions.argmax(1)
    return np.bincount(cell, minlength=classes**2).reshape(classes, classes)


def roc(targets: Numbers, predictions: Floats) -> Floats:
    """True positive rate at every false positive rate of `GRID`, the mean over classes of each
    against the rest, or over labels; NaN where all examples are of one class.
    """
    from sklearn.metrics import roc_curve  # it takes a second to import

    curves = []
    for held, said in zip(*(part.T for part in flags_of(targets, predictions)), strict=True):
        if held.any() and not held.all():
            false, true, _ = roc_curve(held, said)
            curves.append(np.interp(GRID, false, true))
    return np.mean(curves, axis=0) if curves else np.full(len(GRID), np.nan)


def reliability(targets: Numbers, predictions: Floats) -> Floats:
    """`calibration`, but of two classes the probability of the second, from 0 to 1."""
    if targets.ndim == 1 and predictions.shape[1] == 2:
        return binned(predictions[:, 1], targets == 1)
    return calibration(targets, predictions)


def residuals(targets: Numbers, predictions: Floats) -> Floats:
    """Targets and predictions of at most 1000 examples, by target, [2, n]; the first of several."""
    order = np.argsort(targets[:, 0], kind="stable")[:: -(-len(targets) // _MOST) or 1]
    return np.stack([targets[order, 0], predictions[order, 0]])


PICTURES: Mapping[str, Callable[[Numbers, Floats], NDArray[np.generic]]] = {
    "confusion": confusion,
    "roc": roc,
    "calibration": reliability,
    "residuals": residuals,
}

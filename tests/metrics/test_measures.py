"""Scores against scikit-learn and by hand, over all examples and over clients."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn import metrics

from fedclust.core.types import Predictions
from fedclust.helpers.errors import ConfigError
from fedclust.metrics.judged import judged
from fedclust.metrics.score_pictures import calibration, confusion, reliability, residuals, roc
from fedclust.metrics.scores import MEASURES, taken

DRAW = np.random.default_rng(3)
Y = 4
CLASSES = DRAW.integers(0, Y, 200)
LOGITS = DRAW.normal(size=(200, Y)) + 2 * np.eye(Y)[CLASSES]
SAID = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
TWO = CLASSES % 2
SAID_TWO = np.stack([SAID[:, ::2].sum(1), SAID[:, 1::2].sum(1)], 1)
FLAGS = (DRAW.random((200, 3)) < 0.3).astype(np.uint8)
SAID_FLAGS = DRAW.random((200, 3))
NUMBERS = DRAW.normal(50, 9, (200, 2))
SAID_NUMBERS = NUMBERS + DRAW.normal(0, 4, (200, 2))


def score(name: str, targets: NDArray[Any], predictions: NDArray[np.float64]) -> float:
    return taken(MEASURES[name], targets, predictions, np.zeros(len(targets), np.int64))


def theirs(name: str, y: NDArray[Any], p: NDArray[np.float64]) -> float:
    """The same of scikit-learn."""
    binary, flags = p.shape[1] == 2 and y.ndim == 1, y.ndim == 2
    column = p[:, 1] if binary else p
    said = (p > 0.5) if flags else p.argmax(1)
    match name:
        case "f1_macro":
            return metrics.f1_score(y, said, average="macro")
        case "balanced_accuracy":
            return metrics.balanced_accuracy_score(y, said)
        case "auroc":
            return metrics.roc_auc_score(y, column, multi_class="ovr", average="macro")
        case "auprc":
            return metrics.average_precision_score(y, column, average="macro")
        case "log_loss":
            each = [metrics.log_loss(a, b) for a, b in zip(y.T, p.T, strict=True)] if flags else []
            return float(np.mean(each)) if flags else metrics.log_loss(y, p)
        case "brier":
            if flags:
                each = [metrics.brier_score_loss(a, b) for a, b in zip(y.T, p.T, strict=True)]
                return float(np.mean(each))
            if binary:
                return metrics.brier_score_loss(y, column)
            return float(((p - np.eye(p.shape[1])[y]) ** 2).sum(1).mean())
        case "mae":
            return metrics.mean_absolute_error(y, p)
        case "rmse":
            return metrics.root_mean_squared_error(y, p)
    return metrics.r2_score(y, p)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *((name, data) for name in ("f1_macro", "auroc", "auprc", "log_loss") for data in "abc"),
        *(("brier", data) for data in "abc"),
        *(("balanced_accuracy", data) for data in "ab"),
        *((name, "d") for name in ("mae", "rmse", "r2")),
    ],
)
def test_a_score_is_that_of_scikit_learn(name: str, data: str) -> None:
    y, p = {
        "a": (CLASSES, SAID),
        "b": (TWO, SAID_TWO),
        "c": (FLAGS, SAID_FLAGS),
        "d": (NUMBERS, SAID_NUMBERS),
    }[data]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = theirs(name, y, p)
    assert score(name, y, p) == pytest.approx(want, abs=1e-12)


def test_a_score_with_classes_that_do_not_occur() -> None:
    """Of two of four classes: those alone count, as a client has them that lacks the others."""
    some = CLASSES < 2
    y, p = CLASSES[some], SAID[some]
    each = [metrics.roc_auc_score(y == one, p[:, one]) for one in (0, 1)]
    assert score("auroc", y, p) == pytest.approx(np.mean(each))
    each = [metrics.average_precision_score(y == one, p[:, one]) for one in (0, 1)]
    assert score("auprc", y, p) == pytest.approx(np.mean(each))
    want = metrics.f1_score(y, p.argmax(1), average="macro")  # of classes in targets or predictions
    assert score("f1_macro", y, p) == pytest.approx(want)
    said = np.eye(4)[[0, 1, 1]]  # of four classes two are in none of both
    assert score("f1_macro", np.array([0, 0, 1]), said) == pytest.approx(2 / 3)


def test_calibration_by_hand() -> None:
    """Bins end at multiples of 1/15; 0.9 is right twice of three times, and 0.6 once of two."""
    sure = np.array([0.9, 0.9, 0.9, 0.61, 0.61])
    p, y = np.stack([sure, 1 - sure], 1), np.array([0, 0, 1, 0, 1])
    assert score("ece", y, p) == pytest.approx(abs(2.7 - 2) / 5 + abs(1.22 - 1) / 5)
    bins = calibration(y, p)
    assert bins[:, 13].tolist() == pytest.approx([3, 2.7, 2])
    assert bins[:, 9].tolist() == pytest.approx([2, 1.22, 1])
    drawn = reliability(y, p)  # of the second class: 0.1 comes true once of three times
    assert drawn[:, 1].tolist() == pytest.approx([3, 0.3, 1])
    assert drawn[:, 5].tolist() == pytest.approx([2, 0.78, 1])
    three = np.concatenate([p, np.zeros((5, 1))], 1)
    np.testing.assert_array_equal(reliability(y, three), calibration(y, three))


def test_equal_predictions_share_their_rank() -> None:
    same = np.full((6, 2), 0.5)
    assert score("auroc", np.array([1, 0, 0, 1, 0, 0]), same) == 0.5
    assert score("auroc", np.array([0, 0, 0, 0, 1, 1]), same) == 0.5


@pytest.mark.parametrize("name", ["auroc", "auprc"])
def test_one_class_alone_has_no_ranking(name: str) -> None:
    assert math.isnan(score(name, np.ones(5, np.int64), SAID_TWO[:5]))


def test_equal_targets_have_no_r2_and_nan_has_no_score() -> None:
    assert math.isnan(score("r2", np.full((4, 1), 7.0), np.arange(4.0)[:, None]))
    broken = SAID.copy()
    broken[3, 1] = np.nan
    assert math.isnan(score("f1_macro", CLASSES, broken))


def test_targets_that_vary_little_around_a_large_number_have_r2() -> None:
    at = np.array([[0.0], [1.0], [2.0], [3.0]])
    # 1 - 4 * 0.25 / (2.25 + 0.25 + 0.25 + 2.25)
    assert score("r2", 1e8 + at, 1e8 + at + 0.5) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize(
    ("returned", "words"),
    [(None, "a NoneType"), (np.zeros(2), r"a ndarray of shape \(2,\)"), ("much", "a str")],
)
def test_a_score_that_returns_no_number_is_named(returned: Any, words: str) -> None:
    own = replace(MEASURES["mae"], function=lambda *_: returned)
    with pytest.raises(ConfigError, match=f"scores: mae returned {words}: a number is needed"):
        taken(own, NUMBERS, SAID_NUMBERS, np.zeros(len(NUMBERS), np.int64))


def test_over_clients() -> None:
    """Client 3 has one class: its AUROC is undefined, left out of the mean and counted. Client 1 is
    not tested.
    """
    client = np.repeat([0, 2, 3], [80, 80, 40])
    y = np.where(client == 3, 1, TWO)
    said = Predictions(
        client=torch.from_numpy(client),
        row=torch.arange(200),
        targets=torch.from_numpy(y),
        predictions=torch.from_numpy(SAID_TWO),
    )
    found = judged(said, [MEASURES["auroc"], MEASURES["confusion"], MEASURES["brier"]], 4)
    own = [metrics.roc_auc_score(y[client == c], SAID_TWO[client == c, 1]) for c in (0, 2)]
    assert found.values["auroc"] == pytest.approx(metrics.roc_auc_score(y, SAID_TWO[:, 1]))
    assert found.values["auroc_over_clients"] == pytest.approx(np.mean(own))
    assert found.values["auroc_worst_decile"] == pytest.approx(min(own))
    assert found.values["auroc_undefined"] == 1
    brier = [((SAID_TWO[client == c, 1] - y[client == c]) ** 2).mean() for c in (0, 2, 3)]
    assert found.values["brier_worst_decile"] == pytest.approx(max(brier))  # lower is better
    assert found.values["brier_undefined"] == 0
    np.testing.assert_allclose(found.clients["auroc"], [own[0], np.nan, own[1], np.nan])
    assert "confusion" not in found.clients


def test_pictures() -> None:
    want = metrics.confusion_matrix(CLASSES, SAID.argmax(1), labels=range(Y))
    np.testing.assert_array_equal(confusion(CLASSES, SAID), want)
    curve = roc(TWO, SAID_TWO)
    assert np.trapezoid(curve, dx=0.01) == pytest.approx(score("auroc", TWO, SAID_TWO), abs=0.005)
    assert roc(TWO, np.eye(2)[TWO]).tolist() == [1.0] * 101
    assert np.isnan(roc(np.zeros(4, np.int64), SAID_TWO[:4])).all()
    many = np.arange(2500.0)[:, None]
    points = residuals(many[::-1], many)
    assert points.shape == (2, 834)
    assert points[:, 1].tolist() == [3, 2496]

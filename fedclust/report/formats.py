"""How metrics and their values are written for readers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedclust.metrics import METRICS

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_HUGE = 1e12  # with more digits than these nobody counts them
_MOST_DECIMALS = 15  # as many as floats tell apart
_TITLES = {
    "accuracy": "Test accuracy",
    "accuracy_client_mean": "Test accuracy, mean over clients",
    "accuracy_last_local": "Test accuracy of participants' own last models",
    "accuracy_newcomers": "Test accuracy of clients that never took part",
    "ari": "ARI",
    "nmi": "NMI",
    "num_clusters": "Clusters",
    "test_loss": "Test loss",
    "train_loss": "Training loss",
    "train_loss_first_epoch": "Training loss, first local epoch",
}


def title(metric: str) -> str:
    """A heading for the metric."""
    own = METRICS[metric].title if metric in METRICS else ""
    name = own or _TITLES.get(metric, metric.replace("_", " "))
    return name[0].upper() + name[1:]


def heading(metric: str) -> str:
    """A heading with the unit."""
    return f"{title(metric)} (%)" if in_percent(metric) else title(metric)


def meant(metric: str) -> str:
    """The metric with what it means: "Purity: clients in …"."""
    return f"{title(metric)}: {METRICS[metric].text}"


def inside(words: str) -> str:
    """A title inside a sentence: "Purity" is "purity", and "ARI" and "R²" stay."""
    return words[:1].lower() + words[1:] if words[1:2].islower() else words


def axis(metric: str) -> str:
    """The label of an axis that shows the metric."""
    nats = METRICS[metric].unit == "nats/example"
    return inside(heading(metric)) + (", nats per example" if nats else "")


def in_percent(metric: str) -> bool:
    """Whether readers expect the metric in percent."""
    known = METRICS[metric]
    return known.unit == "fraction" and ("accuracy" in metric or bool(known.title))


def factor(metric: str) -> float:
    """The factor by which values are multiplied before they are shown."""
    return 100.0 if in_percent(metric) else 1.0


def lower_is_better(metric: str) -> bool:
    """Whether less of the metric is better; not of an unknown one."""
    return metric in METRICS and METRICS[metric].better == "lower"


def sign(metric: str) -> float:
    """What values are multiplied by so that more is better: -1 or 1."""
    return -1.0 if lower_is_better(metric) else 1.0


def bounds(metric: str) -> tuple[float, float]:
    """The least and the largest value a metric can have, as shown."""
    if metric == "ari":
        return -1.0, 1.0
    if METRICS[metric].unit == "fraction" or metric == "nmi":
        return 0.0, factor(metric)
    return 0.0, np.inf


def show(metric: str, value: float) -> str:
    """One value: accuracies in percent, others with three decimals, a dash for none."""
    if np.isnan(value):
        return "–"
    if in_percent(metric):
        return f"{100 * value:.2f} %"
    return f"{value:.{decimals(metric, value, usual=3)}f}"


def decimals(metric: str, values: NDArray[np.float64] | float, usual: int = 2) -> int:
    """Decimals of a metric: the usual ones; of scores in a target's unit those of four digits."""
    known, size = METRICS.get(metric), abs(float(np.mean(values))) if np.size(values) else 0.0
    own = known is not None and known.title and known.unit != "fraction"
    if known is None or not own or not 0 < size < np.inf:
        return usual
    most = _MOST_DECIMALS if known.better == "lower" else 4
    return int(np.clip(3 - np.floor(np.log10(size)), 0, most))


_TIMES = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86_400.0, "days"))


def byte_unit(largest: float) -> tuple[float, str]:
    """The decimal unit in which `largest` is at least 1: its size in bytes and its name."""
    power = 0
    while largest >= 1000 and power < len(_UNITS) - 1:
        largest, power = largest / 1000, power + 1
    return 1000.0**power, _UNITS[power]


def time_unit(largest: float) -> tuple[float, str]:
    """The unit of time in which `largest` seconds are at least 2: its size in seconds, its name."""
    fits = [(size, name) for size, name in _TIMES if largest >= 2 * size]
    return fits[-1] if fits else _TIMES[0]


def in_time(value: float) -> str:
    """A number of seconds with its unit."""
    size, unit = time_unit(value)
    return f"{value / size:.3g} {unit}"


def signed(value: float, digits: int) -> str:
    """A difference with its sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def in_bytes(value: float) -> str:
    """A number of bytes with its unit."""
    size, unit = byte_unit(value)
    return f"{value / size:.3g} {unit}"


def mean_std(metric: str, values: NDArray[np.float64]) -> str:
    """`mean ± std` of a metric's values [S], as shown."""
    shown = factor(metric) * values
    return plus_minus(shown, decimals(metric, shown))


def plus_minus(values: NDArray[np.float64], digits: int = 2) -> str:
    """`mean ± std` (ddof=0); no ± for one seed, a dash for none, an exponent for what exploded."""
    if not len(values):
        return "–"
    form = ".3e" if _HUGE <= abs(values.mean()) < np.inf else f".{digits}f"
    mean = f"{values.mean():{form}}"
    return f"{mean} ± {values.std():{form}}" if len(values) > 1 else mean

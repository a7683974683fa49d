"""Scores of predictions over all examples and over clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedclust.core.task import Score
from fedclust.core.types import Predictions
from fedclust.metrics.scores import Floats, Measure, Named, taken

OVER = {
    "": "over all test examples",
    "_over_clients": "mean over the clients where it is defined",
    "_worst_decile": "mean over the worst tenth of the clients where it is defined",
}
_UNDEFINED = "clients with test examples for whom it is not defined"


def meanings(measure: Measure) -> list[Score]:
    """The numbers that are recorded of a score; none of one that is a picture only."""
    if isinstance(measure, Named) and measure.function is None:
        return []
    about = measure.about
    name, text, title, better, unit = about.name, about.text, about.title, about.better, about.unit
    over = [
        Score(name + end, f"{text}; {words}", title + end.replace("_", " "), better, unit)
        for end, words in OVER.items()
    ]
    undefined = Score(f"{name}_undefined", _UNDEFINED, f"{title} undefined", "lower", "clients")
    text, title = f"{text}; over all validation examples", f"{title}, validation"
    return [*over, undefined, Score(f"validation_{name}", text, title, better, unit)]


@dataclass(frozen=True)
class Judged:
    """What scores say of the predictions of one seed."""

    # by metric, without those that are not defined
    values: dict[str, float] = field(default_factory=dict)
    # of every client [M], by score; NaN where it is not defined or not tested
    clients: dict[str, Floats] = field(default_factory=dict)


def judged(said: Predictions, measures: Sequence[Measure], clients: int) -> Judged:
    """Every score over all examples, and over each of `clients` clients."""
    result = Judged()
    client = said.client.numpy()
    order = np.argsort(client, kind="stable")
    there, first = np.unique(client[order], return_index=True)
    parts = dict(zip(there.tolist(), np.split(order, first[1:]), strict=True)) if len(there) else {}
    targets, predictions = said.targets.numpy(), said.predictions.numpy()
    for measure in measures:
        if not meanings(measure):
            continue
        name, own = measure.about.name, np.full(clients, math.nan)
        for one, rows in parts.items():
            own[one] = taken(measure, targets[rows], predictions[rows], client[rows])
        known = own[~np.isnan(own)]
        values = {"": taken(measure, targets, predictions, client) if len(client) else math.nan}
        if len(known):
            worst = np.sort(known)[:: 1 if measure.about.better == "higher" else -1]
            tenth = float(worst[: math.ceil(len(known) / 10)].mean())
            values |= {"_over_clients": float(known.mean()), "_worst_decile": tenth}
        values["_undefined"] = float(len(parts) - len(known))
        result.values.update({name + end: x for end, x in values.items() if not math.isnan(x)})
        result.clients[name] = own
    return result


def pictures_of(measures: Sequence[Measure]) -> list[str]:
    """The arrays that a report draws of these scores, by name."""
    named = [one.picture for one in measures if isinstance(one, Named) and one.picture]
    return list(dict.fromkeys(named))

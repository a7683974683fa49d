"""Every number a run records: its name, meaning and unit, in one place.

`rounds.csv` holds these names only; the recorder refuses others and the report reads units and
directions from here. A method that keeps a number of its own adds it with `document`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedclust.helpers.errors import ConfigError, did_you_mean

if TYPE_CHECKING:  # it takes a tenth of a second, which `fedclust list` does without
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Meaning:
    """What a metric is."""

    text: str  # one line for tables and axes' captions
    # fraction, nats/example, models, numbers, bytes, steps, passes, seconds, clients, clusters, or
    # "" for none
    unit: str
    better: Literal["higher", "lower", "neither"]  # which direction is good, or neither
    title: str = ""  # what tables and figures call a score of a task; "" where its name says it


def _share(text: str) -> Meaning:
    return Meaning(text, "fraction", "higher")


def _cost(text: str, unit: str) -> Meaning:
    return Meaning(text, unit, "lower")


def _plain(text: str, unit: str = "") -> Meaning:
    return Meaning(text, unit, "neither")


METRICS: dict[str, Meaning] = {
    "accuracy": _share("correct test examples of all clients / their number"),
    "accuracy_client_mean": _share("mean over clients of the client's test accuracy"),
    "accuracy_last_local": _share(
        "correct test examples of the round's participants, each with the model it trained last / "
        "their number"
    ),
    "accuracy_newcomers": _share(
        "correct test examples of the clients that have never taken part / their number, where "
        "each of them has a model"
    ),
    "newcomers_served": _share(
        "clients that have never taken part and have a model / clients that have never taken part"
    ),
    "test_loss": _cost("mean test loss over all test examples", "nats/example"),
    "validation_accuracy": _share("correct validation examples of all clients / their number"),
    "validation_loss": _cost("mean validation loss over all validation examples", "nats/example"),
    "train_loss": _cost("mean over the cohort of the local training loss", "nats/example"),
    "train_loss_first_epoch": _cost(
        "mean over the cohort's examples of the loss in the first local epoch, each before the "
        "step it is part of",
        "nats/example",
    ),
    "served": _plain("clients that some model serves / clients", "fraction"),
    "purity": _share("clients in the commonest group of their cluster / clients"),
    "attackers_apart": _plain(
        "hostile clients whose cluster holds no honest one / hostile clients that are served",
        "fraction",
    ),
    "epsilon": Meaning(
        "what a client's taking part can change so far in the published models of one seed, by "
        "differential privacy; those of n seeds are n releases",
        "",
        "lower",
    ),
    "ari": Meaning("adjusted Rand index of labels and groups", "", "higher"),
    "nmi": Meaning(
        "mutual information of labels and groups, normalised by their mean entropy", "", "higher"
    ),
    "matched_accuracy": _share(
        "clients right under the best one-to-one match of clusters and groups / clients"
    ),
    "num_clusters": _plain("clusters with at least one client", "clusters"),
    "empty": _cost("clusters without a client", "clusters"),
    "largest_cluster": _plain("clients of the largest cluster", "clients"),
    "smallest_cluster": _plain("clients of the smallest cluster that has any", "clients"),
    "churn": _cost(
        "clients that changed their cluster since the evaluation before / clients served at both, "
        "under the best one-to-one match of clusters",
        "fraction",
    ),
    "median_instead": _cost(
        "clusters' means that are the median, with too few participants for aggregation's rule",
        "means",
    ),
    "discrepancy": Meaning(
        "mean distance of local models to the model they form, with discrepancy=true", "", "lower"
    ),
    "mean_update_norm": _plain("norm of the mean update, least over the clusters"),
    "max_update_norm": _plain("largest norm of a client's update"),
    "signature_bytes": _cost("bytes of data signatures that clients sent in this round", "bytes"),
    "num_clusters_found": _plain("clusters the clustering step returned", "clusters"),
    "moved": _plain("participants moved into another cluster to fill an empty one", "clients"),
    "joined": _plain("clients that got their first cluster in this round", "clients"),
    "migrated": _plain("clients that changed cluster because their data changed", "clients"),
    "mixture_entropy": _plain(
        "mean entropy of the participants' shares of the clusters; 0 if each has one"
    ),
    "least_share": _plain(
        "mean share of the cluster that the participants have the least part in", "fraction"
    ),
    "share_error": Meaning(
        "mean over clients of the sum of differences between the shares of a mixture's models and "
        "the true shares of concepts, under the best one-to-one match; 0 to 2",
        "",
        "lower",
    ),
    "changed_clients": _plain(
        "clients whose data a scenario changed at the start of this round", "clients"
    ),
    "changed_before": _share(
        "test accuracy of the changed clients at the last evaluation before the change"
    ),
    "changed_at_once": _share(
        "test accuracy of the changed clients after the change, before this round trains"
    ),
    "changed_accuracy": _share("test accuracy of the clients that changed last"),
    "recovery_rounds": Meaning(
        "rounds since the change until the changed clients are within 0.01 of their accuracy "
        "before it; recorded in the round when they are, never if another change comes first",
        "",
        "lower",
    ),
    "models_down": _cost("models sent from the server to clients in this round", "models"),
    "models_up": _cost("models sent from clients to the server in this round", "models"),
    "bytes": _cost(
        "4 bytes per number of what is sent in either direction: models, their layers, "
        "descriptions of data; fewer with `compression`, counted to the bit; not the single "
        "numbers of `scalars_up`",
        "bytes",
    ),
    "scalars_up": _cost(
        "single numbers that clients sent in this round: losses, chosen clusters", "numbers"
    ),
    "gradient_steps": _cost("local steps of all clients in this round", "steps"),
    "forward_passes": _cost(
        "(model, client) pairs whose training loss was computed apart from local training and "
        "testing",
        "passes",
    ),
    "backward_passes": _cost(
        "(model, client) pairs whose gradient was computed apart from the local solver", "passes"
    ),
    "simulated_seconds": _cost(
        "time of the round on clients' devices, computed by `clock`; no time that anything took",
        "seconds",
    ),
    "seconds": _cost(
        "time of the seed's round: its own, and its share by rows of what is computed together",
        "seconds",
    ),
}


def headline_of(names: Collection[str]) -> str:
    """The score by which a task judges: the recorded one that also has a mean over clients."""
    return next((name for name in names if f"{name}_client_mean" in names), "accuracy")


def worse(metric: str, values: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether values of a metric are worse than others, on average; not where there are none."""
    if not len(values) or not len(others):
        return False
    sign = -1.0 if METRICS[metric].better == "lower" else 1.0
    return bool(sign * values.mean() < sign * others.mean())


def of_another_task(name: str, own: Collection[str]) -> bool:
    """Whether a metric is a score of another task than the one with the scores `own`."""
    bare = name.removeprefix("validation_")
    for form in FORMS:
        bare = bare.removesuffix(form)
    means = [one for one in METRICS if one.endswith("_client_mean")]
    return bare in {one.removesuffix("_client_mean") for one in means} - set(own)


def may_note(name: str) -> bool:
    """Whether a method may record a documented metric in `Cost.notes`: no run records it itself."""
    if name in OURS:
        return name in _NOTED
    return f"{name.removesuffix('_client_mean')}_client_mean" not in METRICS  # the score of a task


OURS = frozenset(METRICS)
# of these, what methods record and not every run
_NOTED = frozenset(
    {
        *("accuracy_last_local", "accuracy_newcomers", "newcomers_served"),
        *("train_loss_first_epoch", "discrepancy", "mean_update_norm", "max_update_norm"),
        *("signature_bytes", "num_clusters_found", "moved", "joined", "migrated"),
        *("mixture_entropy", "least_share", "simulated_seconds"),
    }
)
# numbers that every task has of its headline, by the end of their names: what is another in them
FORMS = {
    "_client_mean": "mean over clients",
    "_last_local": "participants' own last models",
    "_newcomers": "of clients that have never taken part",
}
_learned: set[str] = set()  # known from a job's folder only


def document(
    name: str,
    text: str,
    unit: str = "",
    better: Literal["higher", "lower", "neither"] = "neither",
    title: str = "",
) -> None:
    """Add a metric, which may be recorded from now on under its name in `rounds.csv`; for the rest
    see `Meaning`. Raises `ConfigError` when the name already means something else.
    """
    meaning = Meaning(text, unit, better, title)
    if name in _learned:  # the file itself says it better than what an earlier job has kept of it
        _learned.remove(name)
        METRICS[name] = meaning
    if METRICS.setdefault(name, meaning) != meaning:
        raise ConfigError(
            f"metric {name} is not allowed: it already means {METRICS[name].text!r}, take another "
            "name"
        )


def changed_names(score: str) -> tuple[str, str, str]:
    """What the score of the changed clients is called before the change, at once, and after it."""
    after = f"changed_{score}"
    if after in OURS:
        return "changed_before", "changed_at_once", after
    return f"{after}_before", f"{after}_at_once", after


def learn(name: str, meaning: Meaning) -> Meaning:
    """What the metric means from now on: what this process knew, else what a job's folder says."""
    if name not in METRICS:
        METRICS[name] = meaning
        _learned.add(name)
    return METRICS[name]


def meaning(name: str, key: str) -> Meaning:
    """What the metric `name` is; `key` is the config key, or the place, that it was given in.
    Raises `ConfigError` for a name that nobody documented.
    """
    if str(name) not in METRICS:  # a config may give anything
        others = f"one of {', '.join(METRICS)}, or one added by fedclust.metrics.document"
        meant = did_you_mean(str(name), METRICS) or others
        raise ConfigError(f"{key}={name} is not allowed: {meant}")
    return METRICS[name]

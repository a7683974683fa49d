"""Every key of small jobs, changed: numbers change, or it is refused or said to have no effect."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from configs import composed, unresolved
from digits_jobs import ALGORITHMS, SETTINGS, play
from omegaconf import OmegaConf

from fedclust.config.build import build
from fedclust.config.idle import idle
from fedclust.config.job import Job
from fedclust.config.objects import Objects
from fedclust.config.schema import values_of
from fedclust.engines import make_engine
from fedclust.helpers.errors import UserError
from fedclust.helpers.ranges import hints_of
from fedclust.launch.typed import Typed
from fedclust.launch.unread import unread, without_effect, yield_to_typed

SMALL = (
    *("seeds=1", "rounds=4", "device=cpu", "model=linear", "solver.lr=0.2", "solver.batch_size=10"),
    *("solver.epochs=1", "participation=0.5", "checkpoint_seconds=3600"),
)
DIGITS = (
    *("partition=class_subsets", "partition.num_clients=8", "partition.examples_per_client=24"),
    *SMALL,
)
JOBS = {
    "fedavg": ("algorithm=fedavg", *DIGITS),
    "lcfl": ("algorithm=lcfl", *DIGITS, "algorithm.warmup.rounds=2"),
    "ifca": ("algorithm=ifca", *DIGITS),
    "fesem": ("algorithm=fesem", *DIGITS),
    # six clients form the groups; the others find theirs later
    "flexcfl": (
        *("algorithm=flexcfl", *DIGITS, "num_clusters=3", "algorithm.cold_start.scale=2"),
        *("algorithm.cold_start.solver.steps=5", "scenario=swap_all", "scenario.probability=0.5"),
    ),
    "feddrift": (
        *("algorithm=feddrift", *DIGITS, "scenario=swap_all", "scenario.probability=0.3"),
        *("algorithm.merge_delta=0.3", "rounds=6"),
    ),
    "served": (
        *("algorithm=fedavg", "server=yogi", "aggregation=trimmed_mean", "attack=sign_flip"),
        *("aggregation.trim=0.3", "attack.share=0.25", *DIGITS, "partition.num_clients=16"),
    ),
    "pfedme": ("algorithm=pfedme", *DIGITS, "algorithm.local_rounds=2"),
    "fedem": ("algorithm=fedem", *DIGITS),
    "fedprox": (
        *("algorithm=fedprox", *DIGITS, "scenario=unavailable"),
        *("scenario.dropout=0.3", "scenario.stragglers=0.5"),
    ),
    "synthetic": (
        *("algorithm=fedavg", "dataset=synthetic", "dataset.num_devices=8", "dataset.total=1000"),
        *("partition=natural", "partition.min_train=50", *SMALL),
    ),
}
# keys that change no number of so small a job
ALIKE = {
    "flexcfl": ["algorithm.cold_start.method.max_iter"],  # one iteration finds six clients' groups
    "feddrift": ["algorithm.linkage"],  # no chain of models, see test_feddrift.py
}
# without a decay all rounds, and all steps, have one rate
CONSTANT = ("solver.schedule", "solver.schedule_by")
METHOD = ("algorithm", "scenario", "solver")
GROUPS = (*METHOD, "partition", "dataset", "model")
BESIDE = {"served": ("server", "aggregation", "attack")}  # further groups of some jobs
OF_DATA = ("fedavg", "synthetic")  # the jobs whose partition, dataset and model are tried, too


def leaves(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    """What is set at and below a key itself, not taken from elsewhere."""
    if isinstance(node, Mapping):
        for name, below in node.items():
            if name != "_target_":
                yield from leaves(below, f"{key}.{name}")
    elif not (isinstance(node, str) and "${" in node):
        yield key, node


def options(hint: Any) -> list[Any]:
    """The choices that an annotation lists."""
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [one for part in typing.get_args(hint) for one in options(part)]


def others(config: Mapping[str, Any], key: str, value: Any) -> list[Any]:
    """Values to try instead."""
    node: Any = config
    *above, name = key.split(".")
    for one in above:
        node = node[one]
    part = Objects()._locate(node["_target_"], "common", None) if "_target_" in node else None
    found = options(hints_of(part).get(name)) if part is not None else []
    if isinstance(value, bool):
        found += [not value]
    elif isinstance(value, int):
        found += [value + 1, max(value // 2, 1), 3 * value, 1, value + 2]
    elif isinstance(value, float):
        found += [value / 2 or 0.3, value * 2, 0.9]
    elif value is None:
        found += [1, 2, 0.5]
    return [one for one in found if one != value]


def changed(config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The config with another value, wherever it is read."""
    if key.startswith("solver."):
        return with_solver(config, key, value)
    found: dict[str, Any] = deepcopy(dict(config))
    node = found
    *above, name = key.split(".")
    for one in above:
        node = node[one]
    node[name] = value
    return found


def with_solver(config: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The config with another value of the solver of all, which methods refer to."""
    plain = OmegaConf.create(dict(config["plain"]))
    OmegaConf.update(plain, key, value)
    yield_to_typed(plain, [key])
    resolved = values_of(plain)
    return {**config, **{group: resolved[group] for group in GROUPS}}


def refused_if_typed(config: Mapping[str, Any], key: str) -> str:
    """Why the command refuses a value of the solver of all, or "": the method reads another."""
    if not key.startswith("solver."):
        return ""
    plain = OmegaConf.create(dict(config["plain"]))
    own = OmegaConf.select(plain, f"algorithm.{key}") is not None  # it yields to what is typed
    return "" if own or not unread(plain, [key]) else "refused, for nobody reads it"


def numbers(config: Mapping[str, Any], like: Job | None = None) -> list[Any]:
    """What a job records of its rounds; on the data of another job if one is given."""
    job = build(config, like=like)
    pool = job.federations[0].pool
    shape = {"in_shape": pool.shape, "num_classes": pool.num_classes}
    engine = make_engine("loop", Objects().make(config["model"], "model", **shape), pool, None)
    found = list[Any]()
    for one in play(job, engine):
        what = one.evaluation
        found += [what.sums.tolist(), what.loss_sum.tolist(), one.label]
        found += [(cost.models_down, cost.models_up, cost.gradient_steps) for cost in one.reports]
    return found


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [one if one == "fedprox" else pytest.param(one, marks=pytest.mark.slow) for one in JOBS]
)
def test_every_key_changes_numbers_or_says_why_not(name: str) -> None:
    overrides = JOBS[name]
    plain = OmegaConf.to_container(unresolved(*overrides))
    assert isinstance(plain, dict)
    config = {**composed(*overrides), "plain": plain, "seeds": [0]}
    like = build(config)
    before = numbers(config, like)
    silent, wrong = [], []
    for group in GROUPS if name in OF_DATA else (*METHOD, *BESIDE.get(name, ())):
        shared = like if group in (*METHOD, "server", "aggregation") else None
        for key, value in leaves(plain[group], group):
            told = idle(config, key, Objects()) or refused_if_typed(config, key)
            outcomes = list[str]()
            tried = others(config, key, value)
            for other in tried:
                try:
                    after = numbers(changed(config, key, other), shared)
                except UserError:
                    outcomes.append("refused")
                    continue
                outcomes.append("equal" if after == before else "changed")
                if outcomes[-1] == "changed":
                    break
            if told and "changed" in outcomes:
                wrong.append(f"{key}: {told}")
            silently = "equal" in outcomes and "changed" not in outcomes
            if silently and not told and key not in CONSTANT:
                silent.append(key)
    assert not wrong, "said to be without effect"
    assert silent == ALIKE.get(name, []), "without effect, and nobody says so"


UNEVEN = (
    *("partition=dirichlet", "partition.num_clients=8", "partition.alpha=1.0", "seeds=1"),
    *("model=linear", "participation=0.75", "device=cpu", "solver.batch_size=20", "rounds=7"),
)
WEIGHING = ("hcfl", "lcfed", "sattler_cfl")  # whose shares count beside the clusters' means
AVERAGING = [  # the others refuse another aggregation, or need true groups
    name
    for name in ALGORITHMS
    if name
    not in ("feroma", "jgl", "jgl_epochs", "local", "fedasync", "fedbcd", "fedsoft", "scaffold")
    and name not in ("oracle", "ifca_fedasync")
]


@pytest.mark.full
@pytest.mark.parametrize(
    "method",
    [
        one if one in ("ifca", "sattler_cfl") else pytest.param(one, marks=pytest.mark.slow)
        for one in AVERAGING
    ],
)
def test_shares_that_a_median_leaves_without_effect_change_no_number(method: str) -> None:
    found, told = list[Any](), list[str]()
    typed = (f"algorithm={method}", *UNEVEN, *SETTINGS[method], "aggregation=median")
    for shares in ("uniform", "by_samples"):
        more = [f"common.{key}aggregation={shares}" for key in ("", "baseline_")]
        config = {**composed(*typed, *more), "seeds": [0]}
        job = build(config)
        played = play(job, job.engine)
        found.append([(one.evaluation.loss_sum.tolist(), one.label) for one in played])
        told += without_effect(unresolved(*typed, *more), config, Typed(tuple(more)))
    assert bool(told) == (method not in WEIGHING)
    assert not told or found[0] == found[1]

"""Every key of four small jobs, changed: the numbers change, the value is refused, or it is said to
be without effect.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from configs import composed, unresolved
from digits_jobs import play
from omegaconf import OmegaConf

from fedclust.config.build import build
from fedclust.config.idle import idle
from fedclust.config.job import Job
from fedclust.config.objects import Objects, _hints
from fedclust.engines import make_engine
from fedclust.helpers.errors import UserError

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
}
METHOD = ("algorithm", "scenario", "solver")
GROUPS = (*METHOD, "partition", "dataset", "model")


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
    found = options(_hints(part).get(name)) if part is not None else []
    if isinstance(value, bool):
        found += [not value]
    elif isinstance(value, int):
        found += [value + 1, max(value // 2, 1), 3 * value]
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
    resolved = OmegaConf.to_container(plain, resolve=True)
    assert isinstance(resolved, dict)
    return {**config, **{group: resolved[group] for group in GROUPS}}


def numbers(config: Mapping[str, Any], like: Job | None = None) -> list[Any]:
    """What a job records of its rounds; on the data of another job if one is given."""
    job = build(config, like=like)
    pool = job.federations[0].pool
    shape = {"in_shape": pool.shape, "num_classes": pool.num_classes}
    engine = make_engine("loop", Objects().make(config["model"], "model", **shape), pool, None)
    found = list[Any]()
    for one in play(job, engine):
        what = one.evaluation
        found += [what.correct.tolist(), what.loss_sum.tolist(), one.label]
        found += [(cost.models_down, cost.models_up, cost.gradient_steps) for cost in one.reports]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_every_key_changes_numbers_or_says_why_not(name: str) -> None:
    overrides = JOBS[name]
    plain = OmegaConf.to_container(unresolved(*overrides))
    assert isinstance(plain, dict)
    config = {**composed(*overrides), "plain": plain, "seeds": [0]}
    like = build(config)
    before = numbers(config, like)
    silent, wrong = [], []
    for group in GROUPS if name == "fedavg" else METHOD:
        shared = like if group in METHOD else None
        for key, value in leaves(plain[group], group):
            told = idle(config, key, Objects())
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
            if silently and not told:
                silent.append(f"{key}={tried}")
    assert not wrong, "said to be without effect"
    assert not silent, "without effect, and nobody says so"

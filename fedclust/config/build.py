"""From a composed config to a job: the only place where a config becomes something that runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from fedclust.algorithms.layers.keeping import keeping
from fedclust.algorithms.layers.with_norm import with_norm
from fedclust.algorithms.layers.with_server import WithServer
from fedclust.config.data import choose_device, federations_of
from fedclust.config.fits import (
    LOOKED_AT,
    as_chosen,
    check_batches,
    check_computed,
    check_parts,
)
from fedclust.config.job import Job
from fedclust.config.objects import Objects
from fedclust.config.scores import measures
from fedclust.config.values import check_method
from fedclust.config.versions import versions
from fedclust.core.tracker import in_a_line
from fedclust.core.types import Federation
from fedclust.core.verbs import Engine
from fedclust.engines import make_engine
from fedclust.engines.sharded import sharded
from fedclust.helpers.cgroups import cpus
from fedclust.helpers.distributed import here
from fedclust.models.lora import Lora
from fedclust.models.weights import beginning

_MADE = (
    *("algorithm", "scenario", "partition", "tracker", "task"),
    *("server", "aggregation", "privacy", "attack"),
)


def build(
    config: Mapping[str, Any],
    user_dir: Path | None = None,
    like: Job | None = None,
    federations: Mapping[int, Federation] | None = None,
) -> Job:
    """All parts of a job from its resolved config.

    Args:
        config: see `fedclust.config.schema.resolve`.
        user_dir: folder given with --config-dir, see `fedclust.config.objects`.
        like: a job of the same setting, whose data and engine are taken over.
        federations: the data by seed, where a job with the same has made them.

    Raises:
        UserError: one line that names the key to change; nothing has been written by then.
    """
    objects = check_method(config, user_dir)
    made = objects.made(config, _MADE)
    chosen = {str(group): str(one) for group, one in (config.get("choices") or {}).items()}
    called = as_chosen(chosen, **{group: made[group] for group in LOOKED_AT})
    check_parts(config, made, called)
    algorithm, server = made["algorithm"], made["server"]
    if server is not None:
        algorithm = WithServer(base=algorithm, server=server)
    scores = measures(config, objects, made["task"])
    if like is None:
        engine, federations = _computing(config, objects, made, federations)
    else:
        engine, federations = like.engine, like.federations
    check_computed(config, made, engine.layout, federations, called, objects)
    device = next(iter(federations.values())).pool.x.device
    return Job(
        algorithm=keeping(with_norm(algorithm, config["norm"])),
        aggregation=made["aggregation"],
        attack=made["attack"],
        privacy=made["privacy"],
        choices=chosen,
        scenario=made["scenario"],
        tracker=in_a_line(made["tracker"], chosen.get("tracker", "")),
        engine=engine,
        federations=federations,
        rounds=config["rounds"],
        eval_every=config["eval_every"],
        discrepancy=config["discrepancy"] or config["objective"] == "discrepancy",
        scores=scores,
        score_every=config["score_every"],
        predictions=config["predictions"],
        checkpoint_seconds=config["checkpoint_seconds"],
        versions=versions(device, engine.name, config["max_rows"]),
    )


def _computing(
    config: Mapping[str, Any],
    objects: Objects,
    made: Mapping[str, Any],
    federations: Mapping[int, Federation] | None,
) -> tuple[Engine, Mapping[int, Federation]]:
    """The engine, and the data of every seed on its device, unless they are there already."""
    objects.check(config["model"], "model")
    ranks = here()
    loader = objects.make(config["dataset"], "dataset")
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    elif quota := cpus():  # more threads than processors' time wait for each other
        torch.set_num_threads(max(1, min(torch.get_num_threads(), math.ceil(quota))))
    device = choose_device(config["device"], ranks.local_rank)
    if federations is None:
        federations = federations_of(config, objects, made, loader, device)
    pool = next(iter(federations.values())).pool
    outputs = made["task"].width(pool.num_classes)
    made_for = {"in_shape": pool.shape, "num_classes": outputs, "vocabulary": pool.vocabulary}
    make = partial(objects.make, config["model"], "model", **made_for)
    lora = config.get("lora")
    adapters = None if lora is None else objects.of(Lora, lora, "lora")
    model = beginning(make, config.get("weights"), config.get("frozen") or (), adapters)
    how = config["max_rows"], config["precision"]
    engine = make_engine(config["engine"], model, pool, *how)
    if not cast(Any, engine).model.lone:
        check_batches(objects.make(config["solver"], "solver"), federations)
    return sharded(engine, ranks), federations

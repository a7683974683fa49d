"""From a composed config to a job: the only place where a config becomes something that runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from fedclust.algorithms.layers.compressing import compressing
from fedclust.algorithms.layers.keeping import keeping
from fedclust.algorithms.layers.timing import Plain, timing
from fedclust.algorithms.layers.with_norm import with_norm
from fedclust.algorithms.layers.with_server import WithServer
from fedclust.config.data import choose_device, federations_of
from fedclust.config.fits import check_batches, check_computed, check_parts
from fedclust.config.job import Job
from fedclust.config.scores import measures
from fedclust.config.values import Parts
from fedclust.config.versions import versions
from fedclust.core.clock import Clock, Devices
from fedclust.core.tracker import in_a_line
from fedclust.core.types import Federation
from fedclust.core.verbs import Engine
from fedclust.engines import make_engine
from fedclust.engines.sharded import sharded
from fedclust.helpers.cgroups import cpus
from fedclust.helpers.distributed import here
from fedclust.helpers.rng import Stream
from fedclust.models.lora import Lora
from fedclust.models.params import Layout
from fedclust.models.weights import beginning

# keys that a job takes as they are
_AS_THEY_ARE = ("rounds", "eval_every", "score_every", "predictions", "checkpoint_seconds")


def build(
    config: Mapping[str, Any],
    user_dir: Path | None = None,
    like: Job | None = None,
    federations: Mapping[int, Federation] | None = None,
) -> Job:
    """All parts of a job from its resolved config.

    Args:
        user_dir: folder given with --config-dir, see `fedclust.config.objects`.
        like: a job of the same setting, whose data and engine are taken over.
        federations: the data by seed, where a job with the same has made them.

    Raises:
        UserError: one line that names the key to change; nothing has been written by then.
    """
    parts = Parts.checked(config, user_dir)
    made = parts.made
    check_parts(parts)
    scores = measures(parts)
    if like is not None:
        engine, federations = like.engine, like.federations
    else:
        engine, federations = _computing(parts, federations)
    check_computed(parts, engine.layout, federations)
    device = next(iter(federations.values())).pool.x.device
    method = made["algorithm"]
    if made["server"] is not None:
        method = WithServer(base=method, server=made["server"])
    method = compressing(keeping(with_norm(method, config["norm"])), made["compression"])
    devices = _devices(made["clock"], federations)
    if made["clock"] is not None:
        method = timing(method, made["clock"], _plain(parts, engine.layout), devices, engine.layout)
    return Job(
        algorithm=method,
        tracker=in_a_line(made["tracker"], parts.choices.get("tracker", "")),
        engine=engine,
        federations=federations,
        hours=config["stop"]["hours"],
        devices=devices,
        discrepancy=config["discrepancy"] or config["objective"] == "discrepancy",
        scores=scores,
        choices=parts.choices,
        versions=versions(device, engine.name, config["max_rows"]),
        **{group: made[group] for group in ("aggregation", "attack", "privacy", "scenario")},
        **{key: config[key] for key in _AS_THEY_ARE},
    )


def _devices(clock: Clock | None, federations: Mapping[int, Federation]) -> Mapping[int, Devices]:
    """Those of every seed; none without a clock."""
    if clock is None:
        return {}
    return {
        seed: clock.devices(fed.num_clients, Stream.of(seed, "devices"))
        for seed, fed in federations.items()
    }


def _plain(parts: Parts, layout: Layout) -> Plain:
    """What a client does in a plain exchange of this job."""
    rest, compression = layout.num_params - layout.num_trained, parts.made["compression"]
    bits = 32 * layout.num_trained
    if compression is not None:
        bits = compression.sent_bits(layout.num_trained)
    solver = parts.objects.make(parts.config["solver"], "solver")
    return Plain(solver=solver, received=4 * layout.num_params, sent=4 * rest + bits / 8)


def _computing(
    parts: Parts, federations: Mapping[int, Federation] | None
) -> tuple[Engine, Mapping[int, Federation]]:
    """The engine, and the data of every seed on its device, unless they are there already."""
    config, objects, ranks = parts.config, parts.objects, here()
    objects.check(config["model"], "model")
    loader = objects.make(config["dataset"], "dataset")
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    elif quota := cpus():  # more threads than processors' time wait for each other
        torch.set_num_threads(max(1, min(torch.get_num_threads(), math.ceil(quota))))
    device = choose_device(config["device"], ranks.local_rank)
    if federations is None:
        federations = federations_of(parts, loader, device)
    pool = next(iter(federations.values())).pool
    outputs = parts.made["task"].width(pool.num_classes)
    made_for = {"in_shape": pool.shape, "num_classes": outputs, "vocabulary": pool.vocabulary}
    make = partial(objects.make, config["model"], "model", **made_for)
    lora = config.get("lora")
    adapters = None if lora is None else objects.of(Lora, lora, "lora")
    model = beginning(make, config.get("weights"), config.get("frozen") or (), adapters)
    engine = make_engine(config["engine"], model, pool, config["max_rows"], config["precision"])
    if not cast(Any, engine).model.lone:
        check_batches(objects.make(config["solver"], "solver"), federations)
    return sharded(engine, ranks), federations

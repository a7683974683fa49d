"""Which engine computes a job, and with what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fedclust.core.pool import Pool
from fedclust.core.verbs import Engine
from fedclust.engines.adopted import adopted
from fedclust.engines.fused import FusedEngine, gpu
from fedclust.engines.fused.native import compiled, gather
from fedclust.engines.fused.network import obstacle
from fedclust.engines.loop import LoopEngine
from fedclust.engines.race import fastest, rates
from fedclust.engines.suits import obstacle_at_once
from fedclust.engines.threads import ThreadsEngine, obstacle_on_threads
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.errors import ConfigError, require
from fedclust.models.foreign import Runnable
from fedclust.models.sequence import Model

ENGINES = ("auto", "fused", "vmap", "threads", "loop")
_PRECISIONS = ("highest", "high", "bf16")


def make_engine(
    name: str,
    model: nn.Module,
    pool: Pool,
    max_rows: int | None = None,
    precision: str = "highest",
) -> Engine:
    """The engine of a job.

    Args:
        name: auto takes `fused` where it knows every layer, else the fastest of the others,
            measured.
        model: the architecture; `fused` knows sequences of known layers, the others any module.
        pool: the examples, on the device to compute on.
        max_rows: rows computed at once, None to choose.
        precision: highest computes in float32; high lets an NVIDIA GPU round factors to TF32, by
            PyTorch's own settings; bf16 rounds them to bfloat16.

    Raises:
        ConfigError: if a name is unknown, or the engine cannot run the model or the precision.
    """
    require(name in ENGINES, "engine", name, "one of " + ", ".join(ENGINES))
    require(precision in _PRECISIONS, "precision", precision, "one of " + ", ".join(_PRECISIONS))
    if pool.vocabulary is not None and isinstance(model, Model):
        raise ConfigError(
            "model: it takes numbers, and an example of the dataset is token ids: choose one that "
            "begins with an Embedding, such as model=lstm or model=text_cnn"
        )
    engine = _engine(name, model, _prepared(pool), max_rows, precision)
    able = precision != "bf16" or engine.name == "fused"
    require(able, "precision", precision, f"highest or high with engine={engine.name}")
    engine.tf32 = precision == "high"
    return engine


def simulated(precision: str, device: torch.device) -> str:
    """A remark where a device only simulates a precision, or has none; else empty."""
    if device.type == "cpu" and precision == "high":
        return "precision=high has no effect on a CPU, which computes as with highest"
    if precision != "bf16" or device.type != "cpu":
        return ""
    return (
        "precision=bf16 is only simulated on a CPU: factors are rounded, and multiplied "
        "in float32, so the results are those of a GPU, to rounding, but nothing is faster"
    )


def describe(engine: str, device: torch.device) -> dict[str, Any]:
    """What computes on a device: engine, compiled C, Triton's version and fast paths of a GPU."""
    return {
        "engine": engine,
        "compiled": compiled.available(),
        "triton": gpu.version(device),
        "kernels": ",".join(gpu.paths(device) if device.type == "cuda" else ()) or None,
    }


def _engine(
    name: str, model: nn.Module, pool: Pool, max_rows: int | None, precision: str
) -> LoopEngine | ThreadsEngine | VmapEngine | FusedEngine:
    if name == "loop":
        return LoopEngine(model, pool)
    if not isinstance(model, Model):  # of which a copy would take memory before it is counted
        model = adopted(model, pool)
    if name == "threads":
        hard = obstacle_on_threads(model, pool)
        require(not hard, "engine", name, f"{hard}; use engine=auto")
        return ThreadsEngine(model, pool)
    reason = obstacle(model, softmax=pool.task.softmax, device=pool.x.device.type)
    if name == "fused":
        require(not reason, "engine", name, f"{reason}; use engine=auto")
    if reason or name == "vmap":
        hard = obstacle_at_once(model, pool)
        require(not hard or name != "vmap", "engine", name, f"{hard}; use engine=auto")
        if name == "vmap":
            return VmapEngine(model, pool, max_rows=max_rows)
        return _fastest(model, pool, max_rows, hard, reason)
    return FusedEngine(model, pool, max_rows=max_rows, precision=precision)


def _fastest(
    model: Runnable, pool: Pool, max_rows: int | None, hard: str, reason: str
) -> LoopEngine | ThreadsEngine | VmapEngine:
    """The fastest one of the engines for any model, which says why it is taken."""
    engines: dict[str, LoopEngine | ThreadsEngine | VmapEngine] = {"loop": LoopEngine(model, pool)}
    if torch.get_num_threads() > 1 and not obstacle_on_threads(model, pool):
        engines["threads"] = ThreadsEngine(model, pool)
    if not hard:
        engines["vmap"] = VmapEngine(model, pool, max_rows=max_rows)
    if len(engines) == 1:
        engines["loop"].remark = f"engine=loop, one client after the other: {hard}"
        return engines["loop"]
    speeds = rates(engines, max_rows)
    *most, last = (f"{name} {rate:.3g}" for name, rate in speeds.items())
    engine = engines[fastest(speeds)]
    text = f"{', '.join(most)} and {last}"
    engine.remark = f"engine={engine.name}: {hard or reason}; steps per second here: {text}"
    return engine


def _prepared(pool: Pool) -> Pool:
    """A pool that gives examples fast, by a kernel or compiled code; images are cut once."""
    part = None if pool.view is None else pool.view.fixed(pool.x)
    if part is not None:
        pool = replace(pool, x=part.contiguous(), view=None)
    kernel = gpu.kernel("gather", pool.x.device)
    if kernel is not None:
        return replace(pool, gather=kernel.rows_into)
    stored = pool.x.is_cpu and pool.x.is_contiguous()
    return replace(pool, gather=gather.rows_into) if stored and gather.compiled() else pool

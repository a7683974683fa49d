"""Which engine computes a job."""

from __future__ import annotations

from torch import nn

from fedclust.engines.fused import FusedEngine
from fedclust.engines.fused.network import obstacle
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.errors import require
from fedclust.models.sequence import Model
from fedclust.types import Pool
from fedclust.verbs import Engine

ENGINES = ("auto", "fused", "vmap", "loop")


def make_engine(name: str, model: nn.Module, pool: Pool, max_rows: int | None = None) -> Engine:
    """The engine of a job.

    Args:
        name: auto takes the fastest one that can run the model.
        model: the architecture; `fused` knows those of fedclust.models, the others any module.
        pool: the examples, on the device to compute on.
        max_rows: rows computed at once, None to choose.

    Raises:
        ConfigError: if the name is unknown or the engine cannot run the model.
    """
    require(name in ENGINES, "engine", name, "one of " + ", ".join(ENGINES))
    if name == "loop":
        return LoopEngine(model, pool)
    reason = obstacle(model)
    if name == "fused":
        require(not reason, "engine", name, f"{reason}; use engine=auto")
    if reason or name == "vmap":
        return VmapEngine(model, pool, max_rows=max_rows)
    assert isinstance(model, Model), "fused knows the models of fedclust.models only"
    return FusedEngine(model, pool, max_rows=max_rows)

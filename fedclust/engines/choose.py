"""Which engine computes a job."""

from __future__ import annotations

from torch import nn

from fedclust.engines.fused import FusedBackend
from fedclust.engines.fused.network import obstacle
from fedclust.engines.loop import LoopBackend
from fedclust.engines.vmap import VmapBackend
from fedclust.errors import require
from fedclust.models.sequence import Model
from fedclust.types import Pool
from fedclust.verbs import Backend

ENGINES = ("auto", "fused", "vmap", "loop")


def make_backend(name: str, model: nn.Module, pool: Pool, max_rows: int | None = None) -> Backend:
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
        return LoopBackend(model, pool)
    reason = obstacle(model)
    if name == "fused":
        require(not reason, "engine", name, f"{reason}; use engine=auto")
    if reason or name == "vmap":
        return VmapBackend(model, pool, max_rows=max_rows)
    assert isinstance(model, Model), "fused knows the models of fedclust.models only"
    return FusedBackend(model, pool, max_rows=max_rows)

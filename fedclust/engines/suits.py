"""Whether many rows of a user's module can be computed at once, found by doing it with two."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from fedclust.core.calls import Call, GradCall, Shards, TestCall, TrainCall
from fedclust.core.optimizers import SGD
from fedclust.core.pool import Pool
from fedclust.engines.loop import LoopEngine
from fedclust.engines.vmap import VmapEngine
from fedclust.helpers.rng import Stream

_COUNTS = (8, 6)  # a normalisation of two or three numbers makes much of rounding
_SAME = 1e-2  # relative to the largest value; what is wrong is wrong by more


def obstacle_at_once(model: nn.Module, pool: Pool) -> str:
    """Why `vmap` cannot run a model, or "": two rows have other results than by `loop`."""
    own = getattr(model, "module", model)
    if getattr(own, "tried_at_once", False):
        return ""
    loop = LoopEngine(model, pool)
    name = type(own).__name__
    if loop.model.draws:
        return f"{name} draws random numbers in training from the global generator"
    examples = torch.linspace(0, len(pool.y) - 1, sum(_COUNTS), device=pool.x.device).long()
    rows = torch.split(examples, list(_COUNTS))
    index = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    count = torch.tensor(_COUNTS, device=index.device)
    keys = Stream.of(0, "train").keys(torch.arange(2, device=index.device))
    shards = Shards(index=index, count=count, key=keys)
    models = torch.stack([loop.init(Stream.of(0, "init", j)) for j in range(2)])
    solver, label = SGD(lr=0.01, batch_size=max(_COUNTS)), torch.arange(2, device=index.device)
    calls: list[Call[object]] = [
        TrainCall(models, label, shards, solver, 0.01),
        GradCall(models, label, shards),
        TestCall(models, label, shards),
    ]
    wanted = [_values(loop.answer(call), models) for call in calls]
    try:
        with warnings.catch_warnings():  # of operations that vmap does row by row
            warnings.simplefilter("ignore")
            fast = VmapEngine(model, pool)
            got = [_values(fast.answer(call), models) for call in calls]
    except Exception as error:  # a batching rule that is missing, or what a user's code raises
        reason = " ".join(str(error).split())[:120]
        return f"{name} cannot be computed for several clients at once ({reason})"
    for a, b in zip(got, wanted, strict=True):
        scale = float(b.nan_to_num(0, 0, 0).abs().max())  # of numbers that may have diverged
        if not torch.allclose(a, b, rtol=_SAME, atol=_SAME * scale, equal_nan=True):
            return f"{name} gives other results for several clients at once"
    return ""


def _values(result: object, models: Tensor) -> Tensor:
    """What of a result is compared: of trained models how far they have moved."""
    if isinstance(result, Tensor):
        return result
    if isinstance(result, tuple):
        loss: Tensor = result[0]
        return loss
    moved: Tensor = result.params - models  # type: ignore[attr-defined]
    return moved

"""Running statistics computed anew from given examples, by any engine.

A step of length 0 moves nothing but statistics: from 0 to a part of the batch's own, the pace of
the layer, which is what a step leaves less of a 1 than of a 0.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedclust.core.calls import Shards, TrainCall
from fedclust.core.optimizers import SGD
from fedclust.core.verbs import Engine
from fedclust.engines.sums import rows_at_once

_BATCH = 256  # examples of a batch
_LEAST = 1e-12


def recalibrated(engine: Engine, models: Tensor, label: Tensor, shards: Shards) -> Tensor:
    """models[label[i]] with the statistics of the examples of row i, [C, P].

    They are means over batches of at most 256 examples, of like size, in each of which every layer
    is normalised by the batch: of a row with fewer, of all its examples at once.

    Args:
        models: [K, P].
        label: [C] int64 in [0, K).
        shards: at least two examples of every row.
    """
    layout, out = engine.layout, models[label]
    if not len(shards):
        return out
    begin = layout.num_trained
    moving = ~layout.mask(layout.counts)[begin:].to(out.device)
    every = torch.arange(len(shards), device=out.device)
    for some in torch.split(every, rows_at_once(out.shape[1], out.device)):
        data = shards.take(some)
        blank = layout.joined(out[some], torch.zeros_like(out[some]))
        parts = ((data.count + _BATCH - 1) // _BATCH).clamp(min=1)
        total = torch.zeros_like(blank[:, begin:])
        for part in range(int(parts.max())):
            batch = _part_of(data, parts, part)
            moved = _moved(engine, blank, batch)[:, begin:]
            total += moved * (batch.count / data.count).unsqueeze(1)
        pace = _pace(engine, blank[:1], _part_of(data, parts, 0).take(every[:1]))
        new = moving & (pace > _LEAST)
        out[some, begin:] = torch.where(new, total / pace.clamp(min=_LEAST), out[some, begin:])
    return out


def _pace(engine: Engine, blank: Tensor, batch: Shards) -> Tensor:
    """How far a batch moves every statistic towards its own, [S] in [0, 1]."""
    layout = engine.layout
    ones = layout.joined(blank, torch.ones_like(blank))
    ones[:, layout.mask(layout.counts).to(blank.device)] = 0
    twice = batch.take(torch.zeros_like(batch.count).repeat(2))
    moved = _moved(engine, torch.cat([blank, ones]), twice)
    return 1 - (moved[1] - moved[0])[layout.num_trained :]


def _moved(engine: Engine, models: Tensor, batch: Shards) -> Tensor:
    """Models [C, P] after a step of length 0 on all examples of each row; as they were without."""
    label = torch.arange(len(batch), device=models.device)
    solver = SGD(lr=1.0, batch_size=None, epochs=1)
    return engine.answer(TrainCall(models, label, batch, solver, 0.0)).params


def _part_of(shards: Shards, parts: Tensor, part: int) -> Shards:
    """The examples of one of several parts [C] of like size of every row; none past its last."""
    first = shards.count * part // parts
    count = torch.where(parts > part, shards.count * (part + 1) // parts - first, 0)
    place = torch.arange(int(count.max()), device=count.device)
    past = place >= count.unsqueeze(1)
    index = shards.index.gather(1, (first.unsqueeze(1) + place).masked_fill(past, 0))
    return replace(shards, index=index.masked_fill(past, 0), count=count)

"""Sums of local training and gradients, block by block: one row of each client is there at a time.

Rows are added in their order, and a model's sum depends on its rows only. An engine of same bits in
any company (`loop`) adds in float32, as `fedclust.helpers.ops.cluster_sum`; others in float64, so
that their float32 means are the same but in the rarest cases, whatever ranks or chunks add first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.core.calls import GradSumCall, GradSums, SumCall, Sums
from fedclust.core.verbs import Engine
from fedclust.engines.fused.native import adding
from fedclust.engines.located import at_rows
from fedclust.helpers.ops import add_to_clusters, check_labels, check_weights, on_host

# parameters of a block: many chunks of a CPU, and enough rows to fill a GPU
_BLOCK_CPU, _BLOCK_CUDA = 2**25, 2**29


def by_blocks(engine: Engine, call: SumCall) -> Sums:
    """The answer from local training, some rows at a time; ValueError for a label not in [0, K)."""
    train, rows = call.train, len(call.shards)
    label, weight = to_add(call)
    params, slots = empty_totals(call, torch.float32 if engine.exact else torch.float64)
    sums = Sums(
        params=params,
        slots=slots,
        loss=call.models.new_zeros(rows),
        first_loss=call.models.new_zeros(rows),
        steps=torch.zeros_like(call.shards.count),
    )
    first = 0
    for some in _blocks_of(engine, call.models, rows):
        part = slice(first, first + len(some))
        first = part.stop
        with at_rows(some):
            local = engine.answer(train if len(some) == rows else train.take(some))
        own = None if weight is None else weight[part]
        _add(sums.params, local.params, label[part], own)
        if sums.slots is not None:
            assert local.slots is not None
            _add(sums.slots, local.slots, label[part], own)
        sums.loss[part], sums.first_loss[part] = local.loss, local.first_loss
        sums.steps[part] = local.steps
    return sums


def to_add(call: SumCall) -> tuple[Tensor, Tensor | None]:
    """Each row's model [C] int64 and weight [C], None for 1, on the host, or ValueError."""
    label, weight = call.train.label, call.weight
    # one copy, for which the host waits once
    label, weight = (label.cpu(), None) if weight is None else on_host(label, weight)
    check_labels(label, len(call.models))
    check_weights(weight)
    return label, weight


def empty_totals(call: SumCall, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Zeros [K, P] for the parameters, and [K, W] for what the solver keeps, if asked for."""
    train, like = call.train, call.models
    width = 0 if train.slots is None else train.solver.law.width(like.shape[1])
    slots = like.new_zeros(len(like), width, dtype=dtype) if width else None
    return torch.zeros_like(like, dtype=dtype), slots


def gradients_by_blocks(engine: Engine, call: GradSumCall) -> GradSums:
    """The answer from gradients, some rows at a time; ValueError for a label not in [0, K)."""
    grad, label = call.grad, call.grad.label.cpu()
    check_labels(label, len(call.models))
    dtype = torch.float32 if engine.exact else torch.float64
    total = torch.zeros_like(call.models, dtype=dtype)
    for some in _blocks_of(engine, call.models, len(label)):
        values = engine.answer(grad.take(some))
        if call.weight is not None:
            values *= call.weight[some].unsqueeze(1)
        _add(total, values, label[some.cpu()], None)
    return GradSums(total=total)


def _blocks_of(engine: Engine, models: Tensor, rows: int) -> tuple[Tensor, ...]:
    """The rows that are computed at a time, int64."""
    each = rows_at_once(models.shape[1], models.device)
    if engine.exact and models.is_cuda:  # there blocks would show in the last bits
        each = max(1, rows)
    return torch.split(torch.arange(rows, device=models.device), each)


def rows_at_once(num_params: int, device: torch.device) -> int:
    """Rows of a block of models with `num_params` parameters."""
    block = _BLOCK_CUDA if device.type == "cuda" else _BLOCK_CPU
    return max(1, block // max(1, num_params))


def _add(total: Tensor, values: Tensor, label: Tensor, weight: Tensor | None) -> None:
    """Add every row [C, P], times its weight [C], to the total [K, P] of its cluster."""
    if adding.adds(total, values):
        ones = torch.ones(len(label), dtype=torch.float64) if weight is None else weight.double()
        adding.add(total, values, label, ones)
    else:
        add_to_clusters(total, values, label, weight)

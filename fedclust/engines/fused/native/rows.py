"""What compiled local training is told of its rows (clients): `rows.h`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import Structure

import torch
from torch import Tensor
from torch.nn import functional

from fedclust.core.calls import TrainCall
from fedclust.core.pool import Pool
from fedclust.core.task import Formula
from fedclust.engines.fused.native.compiled import structure

_WHOLE = 1 << 40  # examples of a batch, where it is all of a client's
_LANES = 16  # numbers of the widest vectors
_KINDS = ("softmax", "sigmoid", "error")  # of `Formula`, in the order of `losses.h`


_Rows, _Formula, _Examples = (structure("rows.h", name) for name in ("Rows", "Formula", "Examples"))


def as_stored(pool: Pool) -> bool:
    """Whether compiled code can read a pool's examples where they lie, and knows its loss."""
    there = pool.x.is_cpu and pool.x.is_contiguous() and pool.y.is_contiguous()
    return there and pool.view is None and _loss_of(pool) is not None


def _loss_of(pool: Pool) -> Formula | None:
    """The formula of a pool's loss, for targets of the kind that compiled code reads."""
    formula = pool.task.formula
    kinds = {"softmax": torch.int64, "sigmoid": torch.uint8, "error": torch.float32}
    return formula if formula is not None and kinds[formula.kind] == pool.y.dtype else None


def examples(pool: Pool) -> tuple[Structure, Sequence[Tensor | None]]:
    """A pool's examples as code reads them, and the tensors that are to be kept meanwhile."""
    bytes_, shape = pool.x.dtype == torch.uint8, pool.shape
    tensors = {
        "image": pool.image,
        "answer": pool.y if pool.y.dtype == torch.int64 else None,
        "stored" if bytes_ else "floats": pool.x,
        "scale": pool.scale.expand(shape).contiguous(),
        "shift": pool.shift.expand(shape).contiguous(),
    }
    struct = _Examples(width=math.prod(shape), **{name: address(x) for name, x in tensors.items()})
    return struct, list(tensors.values())


def rows_of(
    pool: Pool, call: TrainCall, steps: Tensor, spanned: Tensor, loss: Tensor
) -> tuple[Structure, Sequence[object]]:
    """The rows of local training as code reads them, and what is to be kept meanwhile.

    Args:
        call: the training of the rows, those with most steps first.
        steps: int64 [R] local steps.
        spanned: bool [R] see `pays` in `span.py`.
        loss: float32 [R, 2] room for means over the steps, and over the first local epoch.
    """
    shards, solver, (pointed, kept) = call.shards, call.solver, examples(pool)
    formula = _loss_of(pool)
    assert formula is not None
    weight = pool.task.weights
    if weight is not None:  # as many as fill the widest vector
        weight = functional.pad(weight, (0, -len(weight) % _LANES))
    share = None if call.example_weight is None else call.example_weight.to(torch.float32)
    tensors = {
        "index": shards.index.contiguous(),
        "count": shards.count.contiguous(),
        "steps": steps.contiguous(),
        "key": shards.key.contiguous(),
        "spanned": spanned.long(),
        "share": None if share is None else share.contiguous(),
        "rate": None if call.rates is None else call.rates.lr.to(torch.float32),
        "loss": loss,
    }
    rows = _Rows(
        all=pointed,
        formula=_Formula(
            kind=_KINDS.index(formula.kind),
            targets=1 if formula.kind == "softmax" else pool.y.shape[1],
            length=pool.y.numel(),
            smoothing=formula.smoothing,
            scale=formula.scale,
            within=formula.within,
            slope=formula.slope,
            weight=address(weight),
            flags=address(pool.y) if formula.kind == "sigmoid" else None,
            numbers=address(pool.y) if formula.kind == "error" else None,
        ),
        rows=len(shards),
        longest=shards.index.shape[1],
        batch=_WHOLE if solver.batch_size is None else solver.batch_size,
        joined=solver.epochs is None,
        ordered=solver.batch_size is None,
        **{name: address(x) for name, x in tensors.items()},
    )
    return rows, [*kept, weight, *tensors.values()]


def address(x: Tensor | None) -> int | None:
    """Where a whole tensor lies."""
    if x is None:
        return None
    assert x.is_contiguous()
    assert x.dtype in (torch.float32, torch.float64, torch.int64, torch.uint8)
    return x.data_ptr()

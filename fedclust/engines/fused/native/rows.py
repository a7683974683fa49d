"""What compiled local training is told of its rows (clients): `rows.h`."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from ctypes import Structure, c_float, c_int64, c_void_p

import torch
from torch import Tensor
from torch.nn import functional

from fedclust.core.calls import TrainCall
from fedclust.core.pool import Pool
from fedclust.core.task import Formula

_WHOLE = 1 << 40  # examples of a batch, where it is all of a client's
_LANES = 16  # numbers of the widest vectors
_KINDS = ("softmax", "sigmoid", "error")  # of `Formula`, in the order of `losses.h`


class Examples(Structure):
    """The C structure of the same name."""

    _fields_ = (
        ("width", c_int64),
        *((name, c_void_p) for name in ("image", "answer", "stored", "floats", "scale", "shift")),
    )


class _Formula(Structure):
    """The C structure `Formula`."""

    _fields_ = (
        *((name, c_int64) for name in ("kind", "targets", "length")),
        *((name, c_float) for name in ("smoothing", "scale", "within", "slope")),
        *((name, c_void_p) for name in ("weight", "flags", "numbers")),
    )


class Rows(Structure):
    """The C structure of the same name."""

    _fields_ = (
        ("all", Examples),
        ("formula", _Formula),
        *((name, c_int64) for name in ("rows", "longest", "batch", "joined", "ordered")),
        *((name, c_void_p) for name in ("index", "count", "steps", "key", "spanned")),
        *((name, c_void_p) for name in ("share", "rate", "loss")),
    )


def as_stored(pool: Pool) -> bool:
    """Whether compiled code can read a pool's examples where they lie, and knows its loss."""
    there = pool.x.is_cpu and pool.x.is_contiguous() and pool.y.is_contiguous()
    return there and pool.view is None and _loss_of(pool) is not None


def _loss_of(pool: Pool) -> Formula | None:
    """The formula of a pool's loss, for targets of the kind that compiled code reads."""
    formula = pool.task.formula
    kinds = {"softmax": torch.int64, "sigmoid": torch.uint8, "error": torch.float32}
    return formula if formula is not None and kinds[formula.kind] == pool.y.dtype else None


def stored(pool: Pool) -> list[Tensor | None]:
    """What `Examples` points to, in its order; to be kept as long as that is used."""
    bytes_, shape = pool.x.dtype == torch.uint8, pool.shape
    return [
        pool.image,
        pool.y if pool.y.dtype == torch.int64 else None,
        pool.x if bytes_ else None,
        None if bytes_ else pool.x,
        pool.scale.expand(shape).contiguous(),
        pool.shift.expand(shape).contiguous(),
    ]


def examples(pool: Pool, tensors: Iterable[Tensor | None]) -> Examples:
    """A pool's examples, as they are `stored`."""
    return Examples(math.prod(pool.shape), *(address(x) for x in tensors))


def _formula(pool: Pool, weight: Tensor | None) -> _Formula:
    """What the code is told of a pool's loss, with the task's weights as `_filled`."""
    formula = _loss_of(pool)
    assert formula is not None
    return _Formula(
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
    )


def _filled(weight: Tensor | None) -> Tensor | None:
    """Weights with zeros behind, as many as fill the widest vector."""
    return None if weight is None else functional.pad(weight, (0, -len(weight) % _LANES))


def address(x: Tensor | None) -> int | None:
    """Where a whole tensor lies."""
    if x is None:
        return None
    assert x.is_contiguous()
    assert x.dtype in (torch.float32, torch.float64, torch.int64, torch.uint8)
    return x.data_ptr()


def train_rows(
    code: ctypes.CDLL,
    job: Callable[[Rows], Structure],
    pool: Pool,
    call: TrainCall,
    steps: Tensor,
    spanned: Tensor,
) -> Tensor:
    """Run compiled local training.

    Args:
        code: has the function `train`.
        job: what it is given besides the rows; what that points to is to be kept by the caller.
        pool: all examples.
        call: the training of the rows, those with most steps first.
        steps: int64 [R] local steps.
        spanned: bool [R] see `pays` in `span.py`.

    Returns:
        Means over the steps, and over the first local epoch, of the batch losses, [R, 2] nats per
        example.

    Raises:
        MemoryError: without room for a row.
    """
    shards, solver, pointed = call.shards, call.solver, stored(pool)
    weight = _filled(pool.task.weights)
    loss = call.models.new_empty(len(shards), 2)
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
    rows = Rows(
        examples(pool, pointed),
        _formula(pool, weight),
        rows=len(shards),
        longest=shards.index.shape[1],
        batch=_WHOLE if solver.batch_size is None else solver.batch_size,
        joined=solver.epochs is None,
        ordered=solver.batch_size is None,
        **{name: address(x) for name, x in tensors.items()},
    )
    if code.train(ctypes.byref(job(rows)), torch.get_num_threads()):
        raise MemoryError("no memory for the local training of a client")
    return loss

"""What compiled local training is told of its rows (clients): `rows.h`."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable
from ctypes import Structure, c_int64, c_void_p

import torch
from torch import Tensor

from fedclust.core.calls import TrainCall
from fedclust.core.pool import Pool

_WHOLE = 1 << 40  # examples of a batch, where it is all of a client's


class Examples(Structure):
    """The C structure of the same name."""

    _fields_ = (
        ("width", c_int64),
        *((name, c_void_p) for name in ("image", "answer", "stored", "floats", "scale", "shift")),
    )


class Rows(Structure):
    """The C structure of the same name."""

    _fields_ = (
        ("all", Examples),
        *((name, c_int64) for name in ("rows", "longest", "batch", "joined", "ordered")),
        *((name, c_void_p) for name in ("index", "count", "steps", "key", "spanned")),
        *((name, c_void_p) for name in ("share", "rate", "loss")),
    )


def as_stored(pool: Pool) -> bool:
    """Whether compiled code can read a pool's examples where they lie, and knows its task."""
    return pool.task.softmax and pool.view is None and pool.x.is_contiguous() and pool.x.is_cpu


def stored(pool: Pool) -> list[Tensor | None]:
    """What `Examples` points to, in its order; to be kept as long as that is used."""
    bytes_, shape = pool.x.dtype == torch.uint8, pool.shape
    return [
        pool.image,
        pool.y,
        pool.x if bytes_ else None,
        None if bytes_ else pool.x,
        pool.scale.expand(shape).contiguous(),
        pool.shift.expand(shape).contiguous(),
    ]


def examples(pool: Pool, tensors: Iterable[Tensor | None]) -> Examples:
    """A pool's examples, as they are `stored`."""
    return Examples(math.prod(pool.shape), *(address(x) for x in tensors))


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

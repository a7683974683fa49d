"""The shuffled batches of a chunk in one pass of compiled code.

`fedclust.engines.schedule` defines them; its dozen operations write arrays of all batches each,
which takes longer than a small model's training.
"""

from __future__ import annotations

import ctypes
from functools import partial

import torch
from torch import Tensor

from fedclust.engines.fused.native.compiled import library, structure
from fedclust.engines.schedule import Schedule

compiled = partial(library, "batches")
_Plan = structure("batches.c", "Plan")


def lays_out(plan: Schedule) -> bool:
    """Whether compiled code can lay such batches out."""
    known = not plan.ordered and not plan.solver.drop_last
    return plan.size.is_cpu and known and compiled() is not None


def lay_out(plan: Schedule, answer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The batches of a schedule that it `lays_out`.

    Returns:
        Of every batch [S, R, B] its examples, counted through all rows, int64; their classes,
        int64; what each weighs in the batch's mean, 0 in padding, float32.

    Raises:
        MemoryError: without room for the order of a row's examples.
    """
    code, shards, solver = compiled(), plan.shards, plan.solver
    assert code is not None
    assert solver.batch_size is not None
    rows, longest = shards.index.shape
    shape = plan.size.shape[1], rows, min(solver.batch_size, longest)
    example, label = (torch.empty(shape, dtype=torch.int64) for _ in range(2))
    share = torch.empty(shape)
    tensors = {
        "key": shards.key.contiguous(),
        "count": shards.count.contiguous(),
        "size": plan.size.contiguous(),
        "index": shards.index.contiguous(),
        "answer": answer.contiguous(),
        "example": example,
        "label": label,
        "share": share,
    }
    job = _Plan(
        rows=rows,
        longest=longest,
        steps=shape[0],
        width=shape[2],
        joined=solver.epochs is None,
        **{name: x.data_ptr() for name, x in tensors.items()},
    )
    if code.lay_out(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no memory for the batches of a client")
    return example, label, share

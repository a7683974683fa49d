"""Examples of a pool as a model sees them, in one pass of compiled code where PyTorch takes four.

`cuda/gather.py` is its counterpart for a GPU.
"""

from __future__ import annotations

import ctypes
import math
from functools import partial

import torch
from torch import Tensor

from fedclust.engines.fused.native.compiled import library, structure

compiled = partial(library, "gather")
_Rows = structure("gather.c", "Rows")


def rows_into(x: Tensor, index: Tensor, scale: Tensor, shift: Tensor, out: Tensor) -> None:
    """x[index] * scale + shift, written to `out`, with the bits of PyTorch's operations.

    Args:
        x: [N, *shape] uint8 or float32, contiguous.
        index: int64 in [0, N), any shape.
        scale, shift: float32, broadcastable to `shape`.
        out: float32 [*index.shape, *shape], contiguous.
    """
    code, shape = compiled(), x.shape[1:]
    assert code is not None
    assert out.is_contiguous()
    tensors = {
        "index": index.contiguous(),
        "stored" if x.dtype == torch.uint8 else "floats": x,
        "scale": scale.expand(shape).contiguous(),
        "shift": shift.expand(shape).contiguous(),
        "out": out,
    }
    addresses = {name: part.data_ptr() for name, part in tensors.items()}
    rows = _Rows(rows=index.numel(), width=math.prod(shape), **addresses)
    code.gather(ctypes.byref(rows), torch.get_num_threads())

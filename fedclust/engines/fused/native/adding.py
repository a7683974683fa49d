"""Rows added to the totals of their clusters in float64, in one pass of compiled code.

PyTorch's operations convert every row before they add it, which takes four times as long.
"""

from __future__ import annotations

from ctypes import c_int64, c_void_p
from functools import partial

import torch
from torch import Tensor

from fedclust.engines.fused.native.compiled import library

compiled = partial(library, "adding")


def adds(total: Tensor, values: Tensor) -> bool:
    """Whether compiled code can add such rows to such totals."""
    fits = (total.dtype, values.dtype) == (torch.float64, torch.float32)
    return fits and total.is_cpu and values.is_contiguous() and compiled() is not None


def add(total: Tensor, values: Tensor, label: Tensor, weight: Tensor) -> None:
    """Add rows [C, P] float32 times weights [C] float64 to totals [K, P] float64, in order.

    Labels [C] are int64 in [0, K); they and the weights are on the host.
    """
    code = compiled()
    assert code is not None
    assert total.stride(1) == 1
    assert total.shape[1] == values.shape[1]
    assert values.is_contiguous()
    label, weight = label.contiguous(), weight.contiguous()
    addresses = (c_void_p(x.data_ptr()) for x in (values, label, weight, total))
    sizes = map(c_int64, (*values.shape, total.stride(0)))
    code.add(*addresses, *sizes, torch.get_num_threads())

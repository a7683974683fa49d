"""Products of factors rounded to bfloat16 on processors with fast instructions for them: units for
matrices (AMX), or AMD's AVX-512.

`bfloat16.c` takes float32 factors in any order and gives float32 sums. PyTorch's own products of
bfloat16 round their results too, and want factors that were converted before.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fedclust.engines.fused.native.compiled import library


class _Stack(Structure):
    """The C structure of the same name."""

    _fields_ = (("data", c_void_p), *((name, c_int64) for name in ("matrix", "down", "right")))


class _Product(Structure):
    """The C structure of the same name."""

    _fields_ = (
        *((name, c_int64) for name in ("count", "m", "k", "n")),
        *((name, _Stack) for name in ("a", "b", "c", "out")),
        *((name, c_float) for name in ("alpha", "beta")),
    )


_INSTRUCTIONS = ("", "AMX", "AVX512-BF16")  # as `bfloat16.c` counts them


def instructions() -> str:
    """What multiplies numbers of bfloat16 here; nothing without a compiler or such instructions."""
    found = library("bfloat16")
    return "" if found is None else _INSTRUCTIONS[found.instructions()]


def compiled() -> ctypes.CDLL | None:
    """The compiled code; None without a compiler or such instructions."""
    found = library("bfloat16") if instructions() else None
    if found is None:
        return None
    found.multiply.argtypes, found.multiply.restype = (POINTER(_Product), c_int), c_int
    return found


def multiply(
    c: Tensor | None, a: Tensor, b: Tensor, out: Tensor, *, beta: float = 0, alpha: float = 1
) -> Tensor:
    """beta * c + alpha * a @ b, the factors a and b rounded to bfloat16, written to `out`.

    Args:
        c: float32 [R, m, n], or a shape that expands to it, possibly `out`; None for beta = 0.
        a, b: float32 [R, m, k] and [R, k, n].
        out: float32 [R, m, n].
        beta, alpha: factors.

    Raises:
        MemoryError: if there is no room for the rounded factors.
    """
    code = compiled()
    assert code is not None
    a, b = _in_lines(a), _in_lines(b)
    to = out if 1 in out.stride()[1:] or out.shape[1] == 1 else torch.empty_like(out).contiguous()
    job = _Product(
        count=a.shape[0],
        m=a.shape[1],
        k=a.shape[2],
        n=b.shape[2],
        a=_stack(a),
        b=_stack(b),
        c=_Stack() if c is None else _stack(c.expand(out.shape)),
        out=_stack(to),
        alpha=alpha,
        beta=beta,
    )
    if not code.multiply(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no room for factors rounded to bfloat16")
    return out if to is out else out.copy_(to)


def _in_lines(x: Tensor) -> Tensor:
    """x [R, m, n] with neighbours in memory in its rows or its columns."""
    assert x.dtype == torch.float32
    return x if 1 in x.stride()[1:] else x.contiguous()


def _stack(x: Tensor) -> _Stack:
    matrix, down, right = x.stride()
    return _Stack(data=x.data_ptr(), matrix=matrix, down=down, right=right)

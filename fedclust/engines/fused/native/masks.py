"""Masks of dropout in one pass of compiled code, where PyTorch takes a dozen."""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fedclust.engines.fused.native.compiled import library
from fedclust.models import dropout


class _Masks(Structure):
    """The C structure of the same name."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "batch", "features")),
        *((name, c_int64) for name in ("purpose", "step", "layer")),
        *((name, c_void_p) for name in ("key", "out")),
        *((name, c_float) for name in ("p", "kept")),
    )


def compiled() -> ctypes.CDLL | None:
    """The compiled code; None where it cannot be compiled."""
    found = library("masks", _Masks)
    if found is not None:
        found.draw.argtypes, found.draw.restype = (POINTER(_Masks), c_int), None
    return found


def keep(
    key: Tensor, step: int, layer: int, batch: int, features: tuple[int, ...], p: float
) -> Tensor:
    """See `fedclust.models.dropout.keep`, whose bits these are."""
    code = compiled() if key.is_cpu else None
    if code is None:
        return dropout.keep(key, step, layer, batch, features, p)
    key, mask = key.contiguous(), torch.empty(len(key), batch, *features)
    job = _Masks(
        rows=len(key),
        batch=batch,
        features=math.prod(features),
        purpose=dropout.PURPOSE,
        step=step,
        layer=layer,
        key=key.data_ptr(),
        out=mask.data_ptr(),
        p=p,
        kept=1 / (1 - p),
    )
    code.draw(ctypes.byref(job), torch.get_num_threads())
    return mask

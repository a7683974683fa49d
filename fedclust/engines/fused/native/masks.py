"""Masks of dropout in one pass of compiled code, where PyTorch takes a dozen."""

from __future__ import annotations

import ctypes
import math
from functools import partial

import torch
from torch import Tensor

from fedclust.engines.fused.native.compiled import library, structure
from fedclust.models import dropout

compiled = partial(library, "masks")
_Masks = structure("masks.c", "Masks")


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

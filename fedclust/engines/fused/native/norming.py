"""Batch and group normalisation of all rows, with the ReLU behind it, in one call."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedclust.engines.fused.native.compiled import library, structure
from fedclust.engines.fused.normal import NormStep

compiled = partial(library, "norming")
_Norm, _Examples = (structure("norming.c", name) for name in ("Norm", "Examples"))


class CompiledNormStep(NormStep):
    """All rows in one call; `relu` says whether a ReLU behind it is computed as well."""

    def __init__(self, *options: Any, relu: bool) -> None:
        super().__init__(*options)
        code = compiled()
        assert code is not None
        self.code, (rows, batch, channels) = code, self.out.shape[:3]
        known = ("weight", "bias", "running_mean", "running_var")
        parameters = {name: self.weights[name].value for name in known if name in self.weights}
        gradients = ("weight_gradient", "bias_gradient") if "weight" in parameters else ()
        self.tensors = {  # whose addresses the structure holds
            **parameters,
            **dict(zip(("mean", "scale"), self.statistics, strict=True)),
            **dict(zip(gradients, self.change, strict=False)),
        }
        assert all(x.is_contiguous() and x.dtype == torch.float32 for x in self.tensors.values())
        self.job = _Norm(
            rows=rows,
            batch=batch,
            pixels=self.out[0, 0].numel() // channels,
            channels=channels,
            groups=self.groups,
            relu=relu,
            y=_examples(self.out),
            back=_examples(self.back),
            moves_mean="running_mean" not in self.held,
            moves_var="running_var" not in self.held,
            eps=self.eps,
            **{name: x.data_ptr() for name, x in self.tensors.items()},
        )

    def normalise(self, x: Tensor) -> None:
        self.x = _last(x)
        kept = (ctypes.c_int64 * len(x))(*self.sizes), (ctypes.c_double * len(x))(*self.factors())
        self.kept = kept  # until the way back
        self.job.x, self.job.training = _examples(self.x), self.training
        self.job.sizes, self.job.factor = (ctypes.addressof(own) for own in kept)
        self.code.forward(ctypes.byref(self.job), torch.get_num_threads())

    def carry(self, delta: Tensor) -> None:
        delta = _last(delta)
        self.job.delta = _examples(delta)
        self.code.backward(ctypes.byref(self.job), torch.get_num_threads())


def _last(x: Tensor) -> Tensor:
    """x with every example in one piece, channels last."""
    turned = x.movedim(2, -1)
    return x if turned[0, 0].is_contiguous() else turned.contiguous().movedim(-1, 2)


def _examples(x: Tensor) -> ctypes.Structure:
    """Where the examples of x lie."""
    assert x.dtype == torch.float32
    return _Examples(data=x.data_ptr(), row=x.stride(0), example=x.stride(1))

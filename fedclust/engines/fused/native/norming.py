"""Batch normalisation of all rows, with the ReLU behind it, in one call of compiled code."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedclust.engines.fused.native.compiled import library, structure

compiled = partial(library, "norming")
_Norm, _Examples = (structure("norming.c", name) for name in ("Norm", "Examples"))


class Norming:
    """Batch normalisation of R rows; tensors are [R, B, C, ...], and parameters [R, 1, C].

    Args:
        out: room for the output, channels last.
        back: room for the gradient of the input, likewise.
        parameters: scale, shift, running mean and running variance by the names of the C structure,
            of those that there are.
        moves: of the last two, whether training changes them.
        kept: [2, R, C] room for the statistics of batches.
        change: [2, R, 1, C] room for the gradients of scale and shift.
        eps: beside a variance.
    """

    def __init__(
        self,
        out: Tensor,
        back: Tensor,
        parameters: dict[str, Tensor],
        moves: tuple[bool, bool],
        kept: Tensor,
        change: Tensor,
        *,
        eps: float,
        relu: bool,
    ) -> None:
        code = compiled()
        assert code is not None
        self.code, self.out, self.back = code, out, back
        channels = out.shape[2]
        affine = ("weight_gradient", "bias_gradient") if "weight" in parameters else ()
        tensors = {
            **parameters,
            **dict(zip(("mean", "scale"), kept, strict=True)),
            **dict(zip(affine, change, strict=False)),
        }
        assert all(x.is_contiguous() and x.dtype == torch.float32 for x in tensors.values())
        self.tensors = tensors  # whose addresses the structure holds
        self.job = _Norm(
            rows=out.shape[0],
            batch=out.shape[1],
            pixels=out[0, 0].numel() // channels,
            channels=channels,
            relu=relu,
            y=_examples(out),
            back=_examples(back),
            moves_mean=moves[0],
            moves_var=moves[1],
            eps=eps,
            **{name: x.data_ptr() for name, x in tensors.items()},
        )

    def forward(self, x: Tensor, sizes: Sequence[int], factors: Sequence[float] | None) -> Tensor:
        """The output.

        Args:
            sizes: real examples of every row.
            factors: what their statistics weigh in the running ones; None outside training.
        """
        self.x = _last(x)
        self.sizes = torch.tensor(sizes, dtype=torch.int64)
        self.factors = torch.tensor(factors or [0.0], dtype=torch.float64)
        self.job.x, self.job.training = _examples(self.x), factors is not None
        self.job.sizes, self.job.factor = self.sizes.data_ptr(), self.factors.data_ptr()
        self.code.forward(ctypes.byref(self.job), torch.get_num_threads())
        return self.out

    def backward(self, delta: Tensor) -> Tensor:
        """The gradient of the input; those of scale and shift are where there is room for them."""
        delta = _last(delta)
        self.job.delta = _examples(delta)
        self.code.backward(ctypes.byref(self.job), torch.get_num_threads())
        return self.back


def _last(x: Tensor) -> Tensor:
    """x with every example in one piece, channels last."""
    turned = x.movedim(2, -1)
    return x if turned[0, 0].is_contiguous() else turned.contiguous().movedim(-1, 2)


def _examples(x: Tensor) -> ctypes.Structure:
    """Where the examples of x lie."""
    assert x.dtype == torch.float32
    return _Examples(data=x.data_ptr(), row=x.stride(0), example=x.stride(1))

"""Dense layers whose weights fill the caches, as two calls of compiled code; see `linear.c`."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedclust.engines.fused.dense import LinearStep
from fedclust.engines.fused.native.compiled import library, structure
from fedclust.engines.fused.native.rows import address
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Rule
from fedclust.engines.fused.weights import Weight

# numbers of the weights from which, and examples of a batch up to which this pays: PyTorch's three
# products read the weights three times in a step and write them once, this code reads them twice
_LARGE, _FEW = 1 << 18, 16

compiled = partial(library, "linear")
_Linear, _Examples = (structure("linear.c", name) for name in ("Linear", "Examples"))


def pays(weight: Weight, rule: Rule | None, batch: int, products: Products) -> bool:
    """Whether compiled code is faster for a layer in training, and exact."""
    if rule is None or weight.frozen or rule.sum_of(weight) is None:
        return False
    suits = weight.value[0].numel() >= _LARGE and batch <= _FEW and not products.rounds
    return suits and weight.value.is_cpu and compiled() is not None


class CompiledLinearStep(LinearStep):
    """A layer of which something is to be learned: the gradient of the inputs and the move of the
    weights take one pass over them together.
    """

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        code, value = compiled(), self.weight.value
        assert code is not None
        assert self.rule is not None
        into, (rows, batch, outputs) = self.rule.sum_of(self.weight), self.out.shape
        assert into is not None
        self.code = code
        self.job = _Linear(
            rows=rows,
            batch=batch,
            inputs=value.shape[2],
            outputs=outputs,
            y=_examples(self.out),
            weight=address(value),
            bias=address(None if self.bias is None else self.bias.value),
            target=address(into.to),
            beta=into.beta,
            alpha=into.alpha,
        )
        if self.back is not None:
            self.job.back = _examples(self.back)

    def forward(self, x: Tensor) -> Tensor:
        if x.stride(2) != 1:
            return super().forward(x)
        self.x, self.job.x = x, _examples(x)
        self.code.forward(ctypes.byref(self.job), torch.get_num_threads())
        return self.out

    def move(self, delta: Tensor) -> Tensor:
        if self.x.stride(2) != 1 or delta.stride(2) != 1:
            return super().move(delta)
        assert self.rule is not None
        self.job.delta = _examples(delta)
        self.code.backward(ctypes.byref(self.job), torch.get_num_threads())
        self.rule.settle(self.weight)
        return delta if self.back is None else self.back


def _examples(x: Tensor) -> ctypes.Structure:
    """Where the examples of x [R, B, n] lie."""
    return _Examples(data=x.data_ptr(), row=x.stride(0), example=x.stride(1))

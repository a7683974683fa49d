"""Softmax regression in compiled code: all steps of a chunk, or all of a test, in one call.

A step of so small a model is less than a microsecond of arithmetic, but more than a dozen of
PyTorch's operations. A test reads every example once, as it is stored. `softmax.c` says what is
computed, row by row; `cuda/softmax.py` is its counterpart for a GPU's training.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fedclust.calls import TestCall, TestResult
from fedclust.engines.fused.cuda import kernels
from fedclust.engines.fused.native.compiled import library
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Descent, HeavyBall, TrainingRule
from fedclust.engines.fused.span import Span
from fedclust.engines.fused.weights import Weight
from fedclust.pool import Pool

_MOST_CLASSES_CUDA = 128  # beside which a batch and some features leave registers free


class _Job(Structure):
    """The C structure of the same name."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "examples", "width", "classes")),
        *((name, c_int64) for name in ("steps", "batch", "early", "origins", "spanned")),
        ("inputs", c_void_p),
        ("outputs", c_void_p * 3),
        *((name, c_void_p) for name in ("factors", "weight", "slot", "anchor")),
        *((name, c_void_p) for name in ("bias", "bias_slot", "bias_anchor")),
        *((name, c_void_p) for name in ("example", "label", "size", "share", "first", "loss")),
        *((name, c_float) for name in ("lr", "momentum", "decay", "bias_decay", "pull")),
    )


class _Test(Structure):
    """The C structure of the same name."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "longest", "width", "classes", "params")),
        ("models", c_void_p),
        *((name, c_int64) for name in ("weight", "bias")),
        *((name, c_void_p) for name in ("model", "index", "count", "image", "answer")),
        *((name, c_void_p) for name in ("stored", "floats", "scale", "shift", "loss", "correct")),
    )


def compiled() -> ctypes.CDLL | None:
    """The compiled code; None where it cannot be compiled."""
    found = library("softmax")
    if found is not None:
        found.train.argtypes, found.train.restype = (POINTER(_Job), c_int), c_int
        found.test.argtypes, found.test.restype = (POINTER(_Test), c_int), c_int
    return found


def computes(
    network: Network, device: torch.device, products: Products, frozen: frozenset[str]
) -> bool:
    """Whether a model is softmax regression that moves as a whole, and code for it is there."""
    if not network.is_regression or frozen:
        return False
    if kernels.runs_on(device):
        small = network.shapes[-1][0] <= _MOST_CLASSES_CUDA
        return small and kernels.kernel("softmax", device) is not None
    return device.type == "cpu" and not products.rounds and compiled() is not None


def train_softmax(
    layer: Weight,
    bias: Weight | None,
    rule: TrainingRule,
    span: Span | None,
    data: Tensor,
    *,
    example: Tensor,
    label: Tensor,
    size: Tensor,
    share: Tensor | None,
    first: Tensor,
) -> Tensor:
    """Means over the steps, and over the first local epoch, of the batch losses, [R, 2] nats per
    example; parameters and momenta are moved.

    Args:
        layer, bias: parameters of R models that `computes`.
        rule: what moves them.
        span: the layer in the span of the examples, if it is trained there.
        data: float32 [R, n, k] the rows' examples, or their products with `span`.
        example: int64 [S, R, B] examples of every batch, counted through all rows.
        label: int64 [S, R, B] their classes.
        size: int64 [R, S] examples of every batch that count, 0 after the row's last step.
        share: [S, R, B] weights of the examples in the loss of their batch; None for 1 / size.
        first: [R, E] see `Batches`.

    Raises:
        MemoryError: without room for a row.
    """
    assert isinstance(rule, Descent | HeavyBall)
    weight = layer if span is None else span.coefficients
    outputs, factors = ([], torch.empty(0)) if span is None else span.origins()
    loss = data.new_empty(len(data), 2)
    tensors = {
        "inputs": data,
        "factors": factors,
        "weight": weight.value,
        "slot": weight.slot,
        "anchor": weight.anchor,
        "bias": None if bias is None else bias.value,
        "bias_slot": None if bias is None else bias.slot,
        "bias_anchor": None if bias is None else bias.anchor,
        "example": example.contiguous(),
        "label": label.contiguous(),
        "size": size.contiguous(),
        "share": None if share is None else share.contiguous(),
        "first": first.contiguous(),
        "loss": loss,
    }
    numbers = {
        "lr": rule.lr,
        "momentum": rule.momentum if isinstance(rule, HeavyBall) else 0.0,
        "decay": layer.decay,
        "bias_decay": 0.0 if bias is None else bias.decay,
        "pull": rule.pull,
    }
    launched = kernels.kernel("softmax", data.device)
    if launched is None:
        _call(tensors, outputs, numbers, layer.value.shape[1], spanned=span is not None)
    else:
        tensors["factors"] = factors.to(data.device, non_blocking=True)
        launched.train(**tensors, outputs=outputs, product=rule.products.factors_as, **numbers)
    return loss


def scores(network: Network, pool: Pool, products: Products) -> bool:
    """Whether a model is softmax regression on a CPU's examples as they are stored, and code that
    tests it is there.
    """
    stored = pool.view is None and pool.x.is_contiguous() and pool.x.is_cpu
    return network.is_regression and stored and not products.rounds and compiled() is not None


def score_softmax(network: Network, pool: Pool, call: TestCall) -> TestResult:
    """The answer to a call, of models that it `scores`, with a model for every row.

    Raises:
        MemoryError: without room for four examples.
    """
    code, layer, shards = compiled(), network.first_dense, call.shards
    assert code is not None
    rows, width = len(shards), network.shapes[0]
    weight, bias = network.fields[f"{layer}.weight"], network.fields.get(f"{layer}.bias")
    loss = torch.zeros(rows, dtype=torch.float64)
    correct = torch.zeros(rows, dtype=torch.int64)
    tensors = {
        "models": call.models.contiguous(),
        "model": call.label.contiguous(),
        "index": shards.index.contiguous(),
        "count": shards.count.contiguous(),
        "image": pool.image,
        "answer": pool.y,
        "stored" if pool.x.dtype == torch.uint8 else "floats": pool.x,
        "scale": pool.scale.expand(width).contiguous(),
        "shift": pool.shift.expand(width).contiguous(),
        "loss": loss,
        "correct": correct,
    }
    job = _Test(
        rows=rows,
        longest=shards.index.shape[1],
        width=math.prod(width),
        classes=weight.shape[0],
        params=network.num_params,
        weight=weight.offset,
        bias=-1 if bias is None else bias.offset,
        **{name: None if x is None else _address(x) for name, x in tensors.items()},
    )
    if code.test(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no memory for the test of a client")
    return TestResult(loss_sum=loss, correct=correct)


def _call(
    tensors: Mapping[str, Tensor | None],
    outputs: Sequence[Tensor],
    numbers: Mapping[str, float],
    classes: int,
    *,
    spanned: bool,
) -> None:
    """Train on a CPU; the arguments are named as in `_Job`."""
    data, example, first, code = tensors["inputs"], tensors["example"], tensors["first"], compiled()
    assert code is not None
    assert first is not None
    assert data is not None
    assert example is not None
    job = _Job(
        rows=data.shape[0],
        examples=data.shape[1],
        width=data.shape[2],
        classes=classes,
        steps=example.shape[0],
        batch=example.shape[2],
        early=first.shape[1],
        origins=len(outputs),
        spanned=spanned,
        outputs=(c_void_p * 3)(*(_address(x) for x in outputs)),
        **numbers,
        **{name: None if x is None else _address(x) for name, x in tensors.items()},
    )
    if code.train(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no memory for the local training of a client")


def _address(x: Tensor) -> int:
    assert x.is_contiguous()
    assert x.dtype in (torch.float32, torch.float64, torch.int64, torch.uint8)
    return x.data_ptr()

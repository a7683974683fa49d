"""Softmax regression in compiled code: all local training of many rows, or a test, in one call.

A step of so small a model is less than a microsecond of arithmetic, but more than a dozen of
PyTorch's operations. Examples are read as they are stored, and a row's local training stays in the
cache of one core. `softmax.c` says what is computed, row by row; `cuda/softmax.py` is its
counterpart for a GPU's training.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from fedclust.calls import TestCall, TestResult, TrainCall
from fedclust.engines.fused.cuda import kernels
from fedclust.engines.fused.native.compiled import library
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Descent, HeavyBall, TrainingRule
from fedclust.engines.fused.weights import Weight
from fedclust.pool import Pool

_LANES = 16  # numbers of a vector
_GAIN = 0.8  # of the multiplications, beyond which the span is not worth its overhead
_WHOLE = 1 << 40  # examples of a batch, where it is all of a client's


class _Examples(Structure):
    """The C structure of the same name."""

    _fields_ = (
        ("width", c_int64),
        *((name, c_void_p) for name in ("image", "answer", "stored", "floats", "scale", "shift")),
    )


class _Job(Structure):
    """The C structure of the same name."""

    _fields_ = (
        ("all", _Examples),
        *((name, c_int64) for name in ("rows", "longest", "classes", "batch", "joined")),
        *((name, c_int64) for name in ("ordered", "rounds")),
        *((name, c_void_p) for name in ("index", "count", "steps", "key", "spanned")),
        *((name, c_void_p) for name in ("share", "rate", "weight", "slot", "anchor")),
        ("own_anchor", c_int64),
        *((name, c_void_p) for name in ("bias", "bias_slot", "bias_anchor", "loss")),
        *((name, c_float) for name in ("lr", "momentum", "decay", "bias_decay", "pull")),
    )


class _Test(Structure):
    """The C structure of the same name."""

    _fields_ = (
        ("all", _Examples),
        *((name, c_int64) for name in ("rows", "longest", "classes", "params")),
        ("models", c_void_p),
        *((name, c_int64) for name in ("weight", "bias")),
        *((name, c_void_p) for name in ("model", "index", "count", "loss", "correct")),
    )


def compiled() -> ctypes.CDLL | None:
    """The compiled code; None where it cannot be compiled."""
    found = library("softmax")
    if found is not None:
        found.train.argtypes, found.train.restype = (POINTER(_Job), c_int), c_int
        found.test.argtypes, found.test.restype = (POINTER(_Test), c_int), c_int
    return found


def trains(network: Network, pool: Pool, frozen: frozenset[str]) -> bool:
    """Whether a model is softmax regression, all of which moves, on a CPU's examples as they are
    stored, and code that trains it is there.
    """
    return not frozen and _reads(network, pool) and not kernels.runs_on(pool.x.device)


def scores(network: Network, pool: Pool, products: Products) -> bool:
    """Whether that code tests such a model, frozen or not; it does not round factors there."""
    return _reads(network, pool) and not products.rounds


def _reads(network: Network, pool: Pool) -> bool:
    """Whether the code is there, for a model and where its examples lie."""
    stored = pool.view is None and pool.x.is_contiguous() and pool.x.is_cpu
    return network.is_regression and stored and compiled() is not None


def in_span(count: Tensor, steps: Tensor, batch: int | None, inputs: int, classes: int) -> Tensor:
    """Which rows the code trains faster in the span of their examples, [C] bool; see `pays` in
    `fedclust.engines.fused.span`. Vectors hold classes there and features otherwise, and only half
    of the products of examples are computed.

    Args:
        count, steps: [C] int64 examples and local steps.
        batch: examples of a step; None for all.
        inputs, classes: features and outputs of the layer.
    """
    met = (count if batch is None else count.clamp(max=batch)) * steps
    filled = -(-classes // _LANES) * _LANES
    spanned = count * (count * inputs // 2 + 2 * inputs * classes) + met * count * filled
    return (spanned < _GAIN * 2 * met * inputs * classes) & (count > 0)


def train_softmax(
    network: Network,
    weights: Mapping[str, Weight],
    rule: TrainingRule,
    pool: Pool,
    call: TrainCall,
    steps: Tensor,
    spanned: Tensor,
) -> Tensor:
    """Means over the steps, and over the first local epoch, of the batch losses, [R, 2] nats per
    example; parameters and momenta are moved.

    Args:
        network: a model that it `trains`.
        weights: the parameters of R models, by name.
        rule: what moves them.
        pool: all examples.
        call: the training of the rows, those with most steps first.
        steps: int64 [R] local steps.
        spanned: bool [R] see `in_span`.

    Raises:
        MemoryError: without room for a row.
    """
    assert isinstance(rule, Descent | HeavyBall)
    code, number, shards, solver = compiled(), network.first_dense, call.shards, call.solver
    assert code is not None
    layer, bias = weights[f"{number}.weight"], weights.get(f"{number}.bias")
    loss = layer.value.new_empty(len(shards), 2)
    rates = None if call.rates is None else call.rates.lr.to(torch.float32)
    share = None if call.example_weight is None else call.example_weight.to(torch.float32)
    tensors = {
        "index": shards.index.contiguous(),
        "count": shards.count.contiguous(),
        "steps": steps.contiguous(),
        "key": shards.key.contiguous(),
        "spanned": spanned.long(),
        "share": None if share is None else share.contiguous(),
        "rate": rates,
        "weight": layer.value,
        "slot": layer.slot,
        "anchor": layer.anchor,
        "bias": None if bias is None else bias.value,
        "bias_slot": None if bias is None else bias.slot,
        "bias_anchor": None if bias is None else bias.anchor,
        "loss": loss,
    }
    stored = _stored(network, pool)
    job = _Job(
        all=_Examples(math.prod(network.shapes[0]), *(_address(x) for x in stored)),
        rows=len(shards),
        longest=shards.index.shape[1],
        classes=layer.value.shape[1],
        batch=_WHOLE if solver.batch_size is None else solver.batch_size,
        joined=solver.epochs is None,
        ordered=solver.batch_size is None,
        rounds=rule.products.rounds,
        own_anchor=call.anchor is not None or call.linear is not None,
        lr=rule.lr,
        momentum=rule.momentum if isinstance(rule, HeavyBall) else 0.0,
        decay=layer.decay,
        bias_decay=0.0 if bias is None else bias.decay,
        pull=rule.pull,
        **{name: _address(x) for name, x in tensors.items()},
    )
    if code.train(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no memory for the local training of a client")
    return loss


def score_softmax(network: Network, pool: Pool, call: TestCall) -> TestResult:
    """The answer to a call, of models that it `scores`, with a model for every row.

    Raises:
        MemoryError: without room for a few examples.
    """
    code, layer, shards = compiled(), network.first_dense, call.shards
    assert code is not None
    rows = len(shards)
    weight, bias = network.fields[f"{layer}.weight"], network.fields.get(f"{layer}.bias")
    loss = torch.zeros(rows, dtype=torch.float64)
    correct = torch.zeros(rows, dtype=torch.int64)
    tensors = {
        "models": call.models.contiguous(),
        "model": call.label.contiguous(),
        "index": shards.index.contiguous(),
        "count": shards.count.contiguous(),
        "loss": loss,
        "correct": correct,
    }
    stored = _stored(network, pool)
    job = _Test(
        all=_Examples(math.prod(network.shapes[0]), *(_address(x) for x in stored)),
        rows=rows,
        longest=shards.index.shape[1],
        classes=weight.shape[0],
        params=network.num_params,
        weight=weight.offset,
        bias=-1 if bias is None else bias.offset,
        **{name: _address(x) for name, x in tensors.items()},
    )
    if code.test(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no memory for the test of a client")
    return TestResult(loss_sum=loss, correct=correct)


def _stored(network: Network, pool: Pool) -> list[Tensor | None]:
    """What `_Examples` points to, in its order."""
    bytes_, shape = pool.x.dtype == torch.uint8, network.shapes[0]
    return [
        pool.image,
        pool.y,
        pool.x if bytes_ else None,
        None if bytes_ else pool.x,
        pool.scale.expand(shape).contiguous(),
        pool.shift.expand(shape).contiguous(),
    ]


def _address(x: Tensor | None) -> int | None:
    if x is None:
        return None
    assert x.is_contiguous()
    assert x.dtype in (torch.float32, torch.float64, torch.int64, torch.uint8)
    return x.data_ptr()

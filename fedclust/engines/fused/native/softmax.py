"""Softmax regression in compiled code: all local training of many rows, or a test, in one call.

A step of so small a model is less than a microsecond of arithmetic, but more than a dozen of
PyTorch's operations. Examples are read as they are stored, and a row's local training stays in the
cache of one core. `softmax.c` says what is computed, row by row; `cuda/softmax.py` is its
counterpart for a GPU's training.
"""

from __future__ import annotations

import ctypes
from functools import partial

import torch
from torch import Tensor

from fedclust.core.calls import TestCall, TestResult
from fedclust.core.pool import Pool
from fedclust.engines.fused import gpu
from fedclust.engines.fused.native import dense
from fedclust.engines.fused.native.compiled import library, structure
from fedclust.engines.fused.native.rows import address, as_stored, examples
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.products import Products

compiled = partial(library, "softmax")
train_softmax = partial(dense.train, compiled)  # a model that it `trains`
_Test = structure("softmax.c", "Test")


def trains(network: Network, pool: Pool, frozen: frozenset[str]) -> bool:
    """Whether code is here for training a single dense layer, all moving, on a CPU by its loss."""
    return not frozen and _reads(network, pool) and not gpu.runs_on(pool.x.device)


def scores(network: Network, pool: Pool, products: Products) -> bool:
    """Whether that code tests such a model, frozen or not, without rounding factors."""
    return network.is_regression and gives(network, pool, products)


def gives(network: Network, pool: Pool, products: Products) -> bool:
    """Whether it gives the outputs of such a model, whatever they are judged by."""
    return _reads(network, pool) and not products.rounds


def _reads(network: Network, pool: Pool) -> bool:
    """Whether the code is there, for a model and where its examples lie."""
    return network.is_dense and as_stored(pool) and compiled() is not None


def score_softmax(network: Network, pool: Pool, call: TestCall) -> TestResult:
    """The answer of models that it `scores`, one per row; MemoryError without room."""
    loss = torch.zeros(len(call.shards), dtype=torch.float64)
    correct = torch.zeros(len(call.shards), dtype=torch.int64)
    _test(network, pool, call, loss=loss, correct=correct)
    return TestResult(loss_sum=loss, sums=correct.double().unsqueeze(1))


def outputs_of(network: Network, pool: Pool, call: TestCall) -> Tensor:
    """What models that it `gives` say of real examples, row after row, [T, Y]."""
    count = call.shards.count
    outputs = torch.empty(int(count.sum()), network.shapes[-1][0])
    if len(outputs):
        _test(network, pool, call, outputs=outputs, before=count.cumsum(0) - count)
    return outputs


def _test(network: Network, pool: Pool, call: TestCall, **found: Tensor) -> None:
    """Run the compiled test with places for what it is to find."""
    code, layer, shards = compiled(), network.first_dense, call.shards
    assert code is not None
    weight, bias = network.fields[f"{layer}.weight"], network.fields.get(f"{layer}.bias")
    tensors = {
        "models": call.models.contiguous(),
        "model": call.label.contiguous(),
        "index": shards.index.contiguous(),
        "count": shards.count.contiguous(),
        **found,
    }
    pointed, _kept = examples(pool)
    job = _Test(
        all=pointed,
        rows=len(shards),
        longest=shards.index.shape[1],
        classes=weight.shape[0],
        params=network.num_params,
        weight=weight.offset,
        bias=-1 if bias is None else bias.offset,
        **{name: address(x) for name, x in tensors.items()},
    )
    if code.test(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no memory for the test of a client")

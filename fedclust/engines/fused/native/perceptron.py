"""Perceptrons in compiled code: all steps of a chunk in one call.

A step is some ten microseconds of arithmetic on numbers that fit the cache of a core; as PyTorch's
operations on all rows of a chunk it is a dozen passes over memory. `perceptron.c` says what is
computed, row by row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p

import torch
from torch import Tensor, nn

from fedclust.engines.fused.native.compiled import library
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.products import by_unit
from fedclust.engines.fused.rules import Descent, HeavyBall, TrainingRule
from fedclust.engines.fused.span import Span
from fedclust.engines.fused.training import Batches
from fedclust.engines.fused.weights import Weight


class _Layer(Structure):
    """The C structure of the same name."""

    _fields_ = (
        *((name, c_int64) for name in ("inputs", "outputs", "relu")),
        *((name, c_void_p) for name in ("weight", "slot", "anchor")),
        *((name, c_void_p) for name in ("bias", "bias_slot", "bias_anchor")),
        *((name, c_float) for name in ("decay", "bias_decay")),
    )


class _Job(Structure):
    """The C structure of the same name."""

    _fields_ = (
        *((name, c_int64) for name in ("rows", "examples", "width", "layers", "steps", "batch")),
        *((name, c_int64) for name in ("early", "origins", "spanned", "rounds", "units")),
        ("inputs", c_void_p),
        ("outputs", c_void_p * 3),
        ("factors", c_void_p),
        ("layer", POINTER(_Layer)),
        *((name, c_void_p) for name in ("example", "label", "size", "share", "first", "loss")),
        *((name, c_float) for name in ("lr", "momentum", "pull")),
    )


def compiled() -> ctypes.CDLL | None:
    """The compiled code; None where it cannot be compiled."""
    found = library("perceptron")
    if found is not None:
        found.train.argtypes, found.train.restype = (POINTER(_Job), c_int), c_int
    return found


def computes(network: Network, device: torch.device, frozen: frozenset[str]) -> bool:
    """Whether a model is a perceptron that moves as a whole on a CPU, and code for it is there. One
    without a hidden layer is softmax regression, for which there is other code where its examples
    are read as they are stored.
    """
    here = device.type == "cpu" and not frozen
    return here and bool(_layers(network)) and compiled() is not None


def train_perceptron(
    network: Network,
    weights: Mapping[str, Weight],
    rule: TrainingRule,
    span: Span | None,
    batches: Batches,
) -> Tensor:
    """Means over the steps, and over the first local epoch, of the batch losses, [R, 2] nats per
    example; parameters and momenta are moved.

    Args:
        network: one that `computes`.
        weights: the parameters of R models, by name.
        rule: what moves them.
        span: the first layer in the span of the examples, if it is trained there.
        batches: with data: the examples of every row, or their products with `span`.

    Raises:
        MemoryError: without room for a row.
    """
    assert isinstance(rule, Descent | HeavyBall)
    code, data = compiled(), batches.data
    assert code is not None
    assert data is not None
    data = data.flatten(2)
    outputs, factors = ([], torch.empty(0)) if span is None else span.origins()
    loss = data.new_empty(len(data), 2)
    tensors = {
        "inputs": data,
        "factors": factors,
        "example": batches.example.contiguous(),
        "label": batches.label.squeeze(3).contiguous(),
        "size": batches.size.contiguous(),
        "share": batches.share.squeeze(3).contiguous() if batches.weighted else None,
        "first": batches.first.contiguous(),
        "loss": loss,
    }
    layers = [
        _layer(weights, number, span if at == 0 else None, relu=relu)
        for at, (number, relu) in enumerate(_layers(network))
    ]
    job = _Job(
        rows=data.shape[0],
        examples=data.shape[1],
        width=data.shape[2],
        layers=len(layers),
        steps=batches.example.shape[0],
        batch=batches.example.shape[2],
        early=batches.first.shape[1],
        origins=len(outputs),
        spanned=span is not None,
        rounds=rule.products.rounds,
        units=by_unit(data.device),
        outputs=(c_void_p * 3)(*(_address(x) for x in outputs)),
        layer=(_Layer * len(layers))(*layers),
        lr=rule.lr,
        momentum=rule.momentum if isinstance(rule, HeavyBall) else 0.0,
        pull=rule.pull,
        **{name: _address(x) for name, x in tensors.items()},
    )
    if code.train(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no memory for the local training of a client")
    return loss


def _layers(network: Network) -> Sequence[tuple[int, bool]]:
    """Number of every dense layer, and whether a ReLU follows it; none unless the network consists
    of them, the last without a ReLU.
    """
    found: list[tuple[int, bool]] = []
    for number, layer in enumerate(network.layers):
        if isinstance(layer, nn.Linear):
            found.append((number, False))
        elif isinstance(layer, nn.ReLU) and found:
            found[-1] = (found[-1][0], True)
        elif found or not isinstance(layer, nn.Flatten):
            return []
    return found if found and not found[-1][1] else []


def _layer(weights: Mapping[str, Weight], number: int, span: Span | None, *, relu: bool) -> _Layer:
    """What the code is told of a layer; the first one is given with its `span`."""
    layer, bias = weights[f"{number}.weight"], weights.get(f"{number}.bias")
    weight = layer if span is None else span.coefficients
    return _Layer(
        inputs=layer.value.shape[2],
        outputs=layer.value.shape[1],
        relu=relu,
        weight=_address(weight.value),
        slot=_address(weight.slot),
        anchor=_address(weight.anchor),
        bias=None if bias is None else _address(bias.value),
        bias_slot=None if bias is None else _address(bias.slot),
        bias_anchor=None if bias is None else _address(bias.anchor),
        decay=layer.decay,
        bias_decay=0.0 if bias is None else bias.decay,
    )


def _address(x: Tensor | None) -> int | None:
    """Where a whole tensor lies."""
    if x is None:
        return None
    assert x.is_contiguous()
    assert x.dtype in (torch.float32, torch.int64)
    return x.data_ptr()

"""Dense layers as compiled code is told of them (`dense.h`), and their local training by it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, Structure, c_float, c_int64, c_void_p

from torch import Tensor, nn

from fedclust.core.calls import TrainCall
from fedclust.core.pool import Pool
from fedclust.engines.fused.native.moments import LawStruct, law_of, rates_of, started
from fedclust.engines.fused.native.rows import Rows, address, train_rows
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.rules import HeavyBall, TrainingRule
from fedclust.engines.fused.weights import Weight


class LayerStruct(Structure):
    """The C structure of the same name."""

    _fields_ = (
        *((name, c_int64) for name in ("inputs", "outputs", "relu")),
        *((name, c_void_p) for name in ("weight", "slot", "square", "anchor")),
        *((name, c_void_p) for name in ("bias", "bias_slot", "bias_square", "bias_anchor")),
        *((name, c_float) for name in ("decay", "bias_decay")),
    )


class JobStruct(Structure):
    """The C structure of the same name."""

    _fields_ = (
        ("of", Rows),
        *((name, c_int64) for name in ("layers", "rounds", "own_anchor")),
        ("layer", POINTER(LayerStruct)),
        *((name, c_float) for name in ("lr", "momentum", "pull")),
        ("law", LawStruct),
    )


def train(
    compiled: Callable[[], ctypes.CDLL | None],
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
        compiled: gives the code, which knows the model.
        network: dense layers, with a ReLU behind each or none.
        weights: the parameters of R models, by name.
        rule: what moves them.
        pool: all examples.
        call: the training of the rows, those with most steps first.
        steps: int64 [R] local steps.
        spanned: bool [R] see `pays` in `span.py`.

    Raises:
        MemoryError: without room for a row.
    """
    code = compiled()
    assert code is not None
    layers = [_layer(weights, number, relu=relu) for number, relu in dense_layers(network)]
    kept = started(call), rates_of(call.solver, int(steps.max()))

    def job(rows: Rows) -> JobStruct:
        return JobStruct(
            of=rows,
            layers=len(layers),
            rounds=rule.products.rounds,
            own_anchor=call.anchor is not None or call.linear is not None,
            layer=(LayerStruct * len(layers))(*layers),
            lr=rule.lr,
            momentum=rule.momentum if isinstance(rule, HeavyBall) else 0.0,
            pull=rule.pull,
            law=law_of(call.solver, rule.lr, *kept),
        )

    return train_rows(code, job, pool, call, steps, spanned)


def dense_layers(network: Network) -> Sequence[tuple[int, bool]]:
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


def _layer(weights: Mapping[str, Weight], number: int, *, relu: bool) -> LayerStruct:
    """What the code is told of a layer."""
    layer, bias = weights[f"{number}.weight"], weights.get(f"{number}.bias")
    return LayerStruct(
        inputs=layer.value.shape[2],
        outputs=layer.value.shape[1],
        relu=relu,
        weight=address(layer.value),
        slot=address(layer.slot),
        square=address(layer.square),
        anchor=address(layer.anchor),
        bias=None if bias is None else address(bias.value),
        bias_slot=None if bias is None else address(bias.slot),
        bias_square=None if bias is None else address(bias.square),
        bias_anchor=None if bias is None else address(bias.anchor),
        decay=layer.decay,
        bias_decay=0.0 if bias is None else bias.decay,
    )

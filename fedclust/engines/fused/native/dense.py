"""Dense layers as compiled code is told of them (`dense.h`), and their local training by it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedclust.core.calls import TrainCall
from fedclust.core.pool import Pool
from fedclust.engines.fused.native.compiled import structure
from fedclust.engines.fused.native.moments import law_of, rates_of, started
from fedclust.engines.fused.native.rows import address, rows_of
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.rules import HeavyBall, TrainingRule
from fedclust.engines.fused.weights import Weight

_Job, _Layer = (structure("dense.h", name) for name in ("Job", "Layer"))


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
        call: the training of the rows, those with most steps first.
        steps: int64 [R] local steps.
        spanned: bool [R] see `pays` in `span.py`.

    Raises:
        MemoryError: without room for a row.
    """
    code = compiled()
    assert code is not None
    known = [_layer(weights, number, relu=relu) for number, relu in dense_layers(network)]
    layers, loss = (_Layer * len(known))(*known), call.models.new_empty(len(call.shards), 2)
    rows, _kept = rows_of(pool, call, steps, spanned, loss)
    count, rates = started(call), rates_of(call.solver, int(steps.max()))
    job = _Job(
        of=rows,
        layers=len(known),
        rounds=rule.products.rounds,
        own_anchor=call.anchor is not None or call.linear is not None,
        layer=ctypes.addressof(layers),
        lr=rule.lr,
        momentum=rule.momentum if isinstance(rule, HeavyBall) else 0.0,
        pull=rule.pull,
        law=law_of(call.solver, rule.lr, count, rates),
    )
    if code.train(ctypes.byref(job), torch.get_num_threads()):
        raise MemoryError("no memory for the local training of a client")
    return loss


def dense_layers(network: Network) -> Sequence[tuple[int, bool]]:
    """Every dense layer's number, and whether a ReLU follows; none if the network has others."""
    layers: list[tuple[int, bool]] = []
    for number, layer in enumerate(network.layers):
        if isinstance(layer, nn.Linear):
            layers.append((number, False))
        elif isinstance(layer, nn.ReLU) and layers:
            layers[-1] = (layers[-1][0], True)
        elif layers or not isinstance(layer, nn.Flatten):
            return []
    return layers if layers and not layers[-1][1] else []


def _layer(weights: Mapping[str, Weight], number: int, *, relu: bool) -> ctypes.Structure:
    """What the code is told of a layer."""
    layer, bias = weights[f"{number}.weight"], weights.get(f"{number}.bias")
    kept = ("slot", "square", "anchor")
    tensors = {"weight": layer.value, **{name: getattr(layer, name) for name in kept}}
    if bias is not None:
        tensors |= {"bias": bias.value, **{f"bias_{name}": getattr(bias, name) for name in kept}}
    return _Layer(
        inputs=layer.value.shape[2],
        outputs=layer.value.shape[1],
        relu=relu,
        decay=layer.decay,
        bias_decay=0.0 if bias is None else bias.decay,
        **{name: address(x) for name, x in tensors.items()},
    )

"""Softmax regression on a GPU: all steps of a chunk in one launch of a kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.engines.fused import gpu
from fedclust.engines.fused.rules import Descent, HeavyBall
from fedclust.engines.fused.span import Span
from fedclust.engines.fused.training import Batches
from fedclust.engines.fused.weights import Weight


def train_softmax(
    layer: Weight, bias: Weight | None, rule: Descent, span: Span | None, batches: Batches
) -> Tensor:
    """Means over the steps, and over the first local epoch, of the batch losses, [R, 2] nats per
    example; parameters and momenta are moved.

    Args:
        layer, bias: parameters of R models that `gpu.trains_in_one_launch`.
        span: the layer in the span of the examples, if it is trained there.
        batches: with data: the examples of every row, or their products with `span`.
    """
    data = batches.data
    assert data is not None
    launched = gpu.kernel("softmax", data.device)
    assert launched is not None
    weight = layer if span is None else span.coefficients
    outputs, factors = ([], torch.empty(0)) if span is None else span.origins()
    loss = data.new_empty(len(data), 2)
    launched.train(
        inputs=data.flatten(2),
        outputs=outputs,
        factors=factors.to(data.device, non_blocking=True),
        weight=weight.value,
        slot=weight.slot,
        anchor=weight.anchor,
        bias=None if bias is None else bias.value,
        bias_slot=None if bias is None else bias.slot,
        bias_anchor=None if bias is None else bias.anchor,
        example=batches.example.contiguous(),
        label=batches.label.squeeze(3).contiguous(),
        size=batches.size.contiguous(),
        share=batches.share.squeeze(3).contiguous() if batches.weighted else None,
        first=batches.first.contiguous(),
        loss=loss,
        product=rule.products.factors_as,
        lr=rule.lr,
        momentum=rule.momentum if isinstance(rule, HeavyBall) else 0.0,
        decay=layer.decay,
        bias_decay=0.0 if bias is None else bias.decay,
        pull=rule.pull,
    )
    return loss

"""How gradients of dense models lie to directions, without the gradients.

The gradient of a dense layer is the sum over examples of delta x^T, where delta is the gradient of
the loss by the layer's output and x its input. Along a direction D it is the sum of delta^T (D x),
a product like that of a forward pass; its squared norm is the sum over pairs of examples of
(delta . delta') (x . x'). Where a client has few examples both cost far less than the gradient of
each client, and all clients share one product with the model.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from fedclust.core.calls import AlignCall, Alignment
from fedclust.core.pool import Pool
from fedclust.engines.fused.branches import BRANCHING
from fedclust.engines.fused.heads import head_of
from fedclust.engines.fused.layers import StackedModels
from fedclust.engines.fused.network import IMAGES_ONLY, Network
from fedclust.engines.fused.normal import NORMS
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.training import targets
from fedclust.engines.fused.weights import Field, Weight

_PRODUCTS = Products()  # directions are not rounded, whatever the precision of training
_FEW = 0.5  # of a block; what is carried forward twice costs less than the gradients of the rest
_MOST = 256  # examples of a client; with more the pairs of examples cost more than the gradient


def pays(network: Network, longest: int) -> bool:
    """Whether a network is dense, and clients of `longest` examples are small enough."""
    other = (*IMAGES_ONLY, *NORMS, *BRANCHING, nn.GroupNorm, nn.LayerNorm, nn.Embedding)
    return longest <= _MOST and not any(isinstance(layer, other) for layer in network.layers)


class AlignRule:
    """A rule that compares the gradients of every client with a direction, `Weight.anchor`, and
    leaves the parameters alone.

    Attributes:
        clients: number of clients whose examples lie one after the other in a batch.
        inner, square: [R, clients] float64, so far.
    """

    clients: int
    inner: Tensor
    square: Tensor

    def begin(self, rows: int, clients: int, device: torch.device) -> None:
        """Nothing is known of the clients of the next batch."""
        self.clients = clients
        self.inner = torch.zeros(rows, clients, dtype=torch.float64, device=device)
        self.square = torch.zeros_like(self.inner)

    def weight(self, field: Field, rows: int, device: torch.device) -> Weight:
        return Weight(value=field.empty(rows, device), anchor=field.empty(rows, device))

    def product(self, weight: Weight, a: Tensor, b: Tensor) -> None:
        """Compare the gradients, for every client the product of its part of a and b."""
        assert weight.anchor is not None
        (rows, out, examples), inputs = a.shape, b.shape[2]
        each = examples // self.clients
        left = a.mT.view(rows, self.clients, each, out)  # a view of any order, as `right` is
        right = b.view(rows, self.clients, each, inputs)
        if each * (out + inputs) >= out * inputs:
            gradient = a.new_empty(rows, self.clients, out, inputs)
            for own, other, room in zip(left.mT, right, gradient, strict=True):
                _PRODUCTS.bmm(own, other, room)
            direction = weight.anchor.view(rows, 1, out, inputs)
            self.inner += (gradient * direction).sum((2, 3), dtype=torch.float64)
            self.square += gradient.square().sum((2, 3), dtype=torch.float64)
            return
        along = a.new_empty(rows, out, examples)
        if b.stride(0) == 0 and rows > 1:  # one product of all directions
            whole = along.view(1, rows * out, examples)
            _PRODUCTS.bmm(weight.anchor.view(1, rows * out, inputs), b[0].unsqueeze(0).mT, whole)
            right = right[:1]
        else:
            _PRODUCTS.bmm(weight.anchor, b.mT, along)
        along = along.mul_(a).sum(1).view(rows, self.clients, each)
        self.inner += along.sum(2, dtype=torch.float64)
        products = _pairs(left).mul_(_pairs(right))
        # in float64 over rows of float32 sums, as conversion takes longer than addition
        self.square += products.sum(3).sum(2, dtype=torch.float64)

    def sum_of(self, weight: Weight) -> None:
        """Gradients of clients are compared, not added up."""

    def settle(self, weight: Weight) -> None:
        """Nothing is added up."""
        raise NotImplementedError

    def whole(self, weight: Weight, gradient: Tensor) -> None:
        """Dense layers have products only."""
        raise NotImplementedError

    def scattered(self, weight: Weight, place: Tensor, gradient: Tensor) -> None:
        """No dense layer looks anything up."""
        raise NotImplementedError


def _pairs(x: Tensor) -> Tensor:
    """Products of all pairs of examples of every client, [R, clients, n, n]."""
    out = x.new_empty(*x.shape[:3], x.shape[2])
    for own, room in zip(x, out, strict=True):  # one product of all rows would copy them
        torch.bmm(own, own.mT, out=room)  # oneDNN would copy what lies as `a` does in `product`
    return out


def align(
    models: StackedModels, rule: AlignRule, pool: Pool, call: AlignCall, block: int
) -> Alignment:
    """Compare the gradients of models for all clients with the models' directions.

    Clients whose losses decide end with the forward pass. A block with few others leaves these for
    later, so that blocks are full: they are carried forward twice.
    """
    shards = call.shards
    longest, count = shards.index.shape[1], len(models.key)
    inner = torch.zeros(len(shards), count, dtype=torch.float64, device=shards.count.device)
    alignment = Alignment(inner, torch.zeros_like(inner), inner.to(torch.float32))
    share, later, head = shards.share, [], head_of(pool.task)
    rows, together = torch.arange(len(shards), device=inner.device), max(1, block // longest)
    for first in range(0, len(shards), together):
        some = rows[first : first + together]
        index = shards.index[some]
        flat = index.reshape(1, -1)
        x = pool.inputs(flat).expand(count, -1, *(-1 for _ in pool.shape))
        label = targets(pool, flat).expand(count, -1, -1)
        weight = share[some].reshape(1, -1, 1)
        frame = models.layers.frame(count, flat.shape[1])
        given = head.look(frame, x)
        each = head.losses(given, label).to(torch.float64)  # [R, B]
        loss = each.mul_(weight.squeeze(2)).view(count, len(index), longest).sum(2).neg_()
        alignment.loss[some] = loss.T.to(torch.float32)
        undecided = call.take(some).undecided(alignment.loss[some])
        if call.margin is not None and int(undecided.sum()) <= _FEW * len(some):
            later.append(some[undecided])
            continue
        rule.begin(count, len(index), index.device)
        head.back(frame, given, label, weight)
        alignment.inner[some], alignment.square[some] = rule.inner.T, rule.square.T
    rest = torch.cat(later) if later else shards.key[:0]
    if len(rest):
        own = align(models, rule, pool, replace(call.take(rest), margin=None), block)
        alignment.inner[rest], alignment.square[rest] = own.inner, own.square
    return alignment

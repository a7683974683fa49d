"""Local training of a first dense layer in the span of its client's examples.

The gradient of a dense layer on the inputs X is delta^T X, so whatever a linear rule makes of it
stays in the span of the start, the anchor, the momentum and the client's own n examples:

    W_t = a_t W_0 + b_t A + c_t U_0 + C_t^T X,    C_t [n, o].

The outputs of a batch b need W_t only through X_b W_t^T = a_t X_b W_0^T + ... + (X X^T)_b C_t. With
the products X X^T and X W_0^T taken once, a step costs B n o multiplications forward and none
backward, where the layer itself would cost B d o each way; the weights come back from one product
at the end. Exact but for rounding, and cheaper wherever a client's examples are fewer than their
features and are met several times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedclust.engines.fused.dense import Clock
from fedclust.engines.fused.rules import Descent, Rule
from fedclust.engines.fused.weights import Weight

# of the multiplications, beyond which the smaller products are not worth their overhead
_GAIN = 0.8
_LANES = 16  # numbers of the widest vectors of compiled code, so that all machines choose alike


def pays(
    count: Tensor,
    steps: Tensor,
    batch: int | None,
    inputs: int,
    outputs: int,
    compiled: bool = False,
) -> Tensor:
    """Which rows train faster in the span of their examples, [C] bool; every row decided by itself.

    Args:
        count, steps: [C] int64 examples and local steps.
        batch: examples of a step; None for all.
        inputs, outputs: features of the layer.
        compiled: whether in compiled code, whose vectors hold outputs, and which computes only
            half of the products of examples.
    """
    # examples in all steps together
    met = (count if batch is None else count.clamp(max=batch)) * steps
    filled = -(-outputs // _LANES) * _LANES if compiled else outputs
    products = count * inputs // 2 if compiled else count * inputs
    spanned = count * (products + 2 * inputs * outputs) + met * count * filled
    return (spanned < _GAIN * 2 * met * inputs * outputs) & (count > 0)


class NoGradient(NamedTuple):
    """What a rule makes of start W_0, anchor A and momentum U_0 when every gradient is 0.

    Attributes:
        value: [S + 1, 3] float64 coefficients of (W_0, A, U_0) in the parameter after every step.
        slot: likewise in the momentum, None without one.
    """

    value: Tensor
    slot: Tensor | None


@lru_cache(maxsize=64)  # most chunks of a run ask for the same
def no_gradient(rule: Rule, decay: float, anchored: bool, slotted: bool, steps: int) -> NoGradient:
    """The coefficients for `steps` steps of a parameter with or without anchor and momentum."""
    start, anchor, momentum = torch.eye(3, dtype=torch.float64).unbind()
    weight = Weight(
        value=start.clone(),
        decay=decay,
        anchor=anchor if anchored else None,
        slot=momentum.clone() if slotted else None,
    )
    values, slots = [start], [momentum]
    for _ in range(steps):
        rule.whole(weight, torch.zeros_like(start))
        values.append(weight.value.clone())
        slots.append(momentum if weight.slot is None else weight.slot.clone())
    return NoGradient(torch.stack(values), torch.stack(slots) if slotted else None)


class Span:
    """The first layer of the R models of a stack as coefficients of its clients' examples.

    Args:
        layer: the layer's weights [R, o, i], its anchor and momentum: the start, changed by
            `finish` only.
        own_anchor: whether the anchor is not the start itself.
        room: gives a buffer by name and shape, uninitialised.
        examples: n, most examples of a row.

    Attributes:
        coefficients: C [R, n, o] in units of -lr, and its momentum.
        gram: [R, n, n] products of any two examples of a row.
        kind: n, and whether the anchor is not the start itself.
    """

    def __init__(
        self,
        layer: Weight,
        rule: Descent,
        room: Callable[..., Tensor],
        examples: int,
        *,
        own_anchor: bool,
    ) -> None:
        rows, outputs = layer.value.shape[:2]
        shape = (rows, examples, outputs)
        self.layer, self.rule, self.kind = layer, rule, (examples, own_anchor)
        self.coefficients = Weight(
            value=room("span", *shape),
            decay=layer.decay,
            slot=None if layer.slot is None else room("span.slot", *shape),
        )
        self.gram = room("span.gram", rows, examples, examples)
        self._origins = {0: layer.value}  # by their column in `NoGradient`
        if layer.anchor is not None and own_anchor:
            self._origins[1] = layer.anchor
        if layer.slot is not None:
            self._origins[2] = layer.slot
        self._outputs = {which: room(f"span.outputs.{which}", *shape) for which in self._origins}

    @property
    def examples(self) -> int:
        """n."""
        return self.gram.shape[2]

    def begin(self, inputs: Tensor, steps: int) -> None:
        """Take the clients' examples [R, n, i], kept until `finish`, for at most `steps`."""
        self._inputs = inputs
        products = self.rule.products
        products.bmm(inputs, inputs.mT, self.gram)
        for which, origin in self._origins.items():
            products.bmm(inputs, origin.mT, self._outputs[which])
        self.coefficients.value.zero_()
        if self.coefficients.slot is not None:
            self.coefficients.slot.zero_()
        self._no_gradient, self._factors = None, [{0: 1.0}] * steps
        decay, anchored = self.layer.decay, self.layer.anchor is not None
        slotted = self.layer.slot is not None
        if decay or anchored or slotted:
            self._no_gradient = no_gradient(
                self.rule, decay, anchored=anchored, slotted=slotted, steps=steps
            )
            self._factors = [self._by_origin(row) for row in self._no_gradient.value.tolist()]

    def project(self, out: Tensor, spare: Tensor, example: Tensor | None, step: int) -> None:
        """Write what the layer would give at a step if no gradient had moved it.

        Args:
            out: [R, B, o].
            spare: further room, [R, B, o].
            example: [R, B] int64 examples of the batch, counted through all rows; None for the
                first B of each.
        """
        rows, batch = out.shape[:2]
        for which, factor in self._factors[step].items():
            outputs, room = self._outputs[which], spare if which else out
            part = outputs[:rows, :batch]
            if example is not None:
                part, flat = room, room.flatten(0, 1)
                torch.index_select(outputs.flatten(0, 1), 0, example.reshape(-1), out=flat)
            if which:
                out.add_(part, alpha=factor)
            elif part is not out or factor != 1.0:
                torch.mul(part, factor, out=out)

    def origins(self) -> tuple[list[Tensor], Tensor]:
        """What `project` sums up: outputs [R, n, o] of origins; their factors [S, origins]."""
        which = list(self._origins)
        factors = torch.tensor([[step.get(w, 0.0) for w in which] for step in self._factors])
        return [self._outputs[w] for w in which], factors

    def finish(self, steps: Tensor) -> None:
        """Turn coefficients into weights and momentum after `steps` [R], the host's."""
        if self._no_gradient is not None:
            self._apply_no_gradient(self._no_gradient, steps)
        value, slot = self.layer.value, self.layer.slot
        baddbmm = self.rule.products.baddbmm
        baddbmm(value, self.coefficients.value.mT, self._inputs, value, alpha=-self.rule.lr)
        if slot is not None and self.coefficients.slot is not None:
            baddbmm(slot, self.coefficients.slot.mT, self._inputs, slot)

    def _by_origin(self, factors: list[float]) -> dict[int, float]:
        """Coefficients of (W_0, A, U_0) by origin; an anchor that is the start joins it."""
        start, anchor, momentum = factors
        if 1 not in self._origins:
            start, anchor = start + anchor, 0.0
        return {w: f for w, f in enumerate((start, anchor, momentum)) if w in self._origins}

    def _apply_no_gradient(self, no_gradient: NoGradient, steps: Tensor) -> None:
        """Make of the layer what it would be after `steps` [R] steps without a gradient."""
        value, slot = self.layer.value, self.layer.slot
        from_slot = None if no_gradient.slot is None else no_gradient.slot[steps]
        # the momentum first where it needs the start, which is overwritten; else the start needs
        # the momentum
        before = None
        if from_slot is not None and from_slot[:, :2].any():
            before = value.clone()
            self._combine(before, 0, from_slot)
        self._combine(value, 0, no_gradient.value[steps])
        if before is not None:
            assert slot is not None
            slot.copy_(before)
        elif from_slot is not None:
            assert slot is not None
            self._combine(slot, 2, from_slot)

    def _combine(self, to: Tensor, which: int, factors: Tensor) -> None:
        """Replace `to`, the origin `which`, by the combination of all with coefficients [R, 3]."""
        if 1 not in self._origins:
            factors = torch.stack([factors[:, 0] + factors[:, 1], factors[:, 1], factors[:, 2]], 1)
        by_row = factors.to(to.device, to.dtype).unsqueeze(2).unsqueeze(3)  # [R, 3, 1, 1]
        if not (factors[:, which] == 1).all():
            to.mul_(by_row[:, which])
        for other, origin in self._origins.items():
            if other != which and factors[:, other].any():
                to.addcmul_(origin, by_row[:, other])


class SpanStep:
    """The first layer of the first rows of a stack, trained in the span of their examples; see
    `Step`.

    Its input is the products of the batch with all examples of the row, [R, B, n].

    Args:
        bias: b of every row, [R, 1, o].
        out: room for the output, [R, B, o].
        spare: further room, [R, B, o].
    """

    def __init__(
        self, span: Span, bias: Weight | None, clock: Clock, out: Tensor, spare: Tensor
    ) -> None:
        self.span, self.bias, self.clock, self.out, self.spare = span, bias, clock, out, spare
        rows, batch = out.shape[:2]
        self.coefficients = span.coefficients.rows(0, rows)
        self.ones = out.new_ones(1, 1, batch).expand(rows, 1, batch)

    def forward(self, x: Tensor) -> Tensor:
        assert self.clock.step is not None
        self.span.project(self.out, self.spare, self.clock.example, self.clock.step)
        if self.bias is not None:
            self.out.add_(self.bias.value)
        rule, c = self.span.rule, self.coefficients.value
        return rule.products.baddbmm(self.out, x, c, self.out, alpha=-rule.lr)

    def backward(self, delta: Tensor) -> Tensor:
        """Nothing before it needs a gradient."""
        self.span.rule.spread(self.coefficients, self.clock.example, delta)
        if self.bias is not None and not self.bias.frozen:
            self.span.rule.product(self.bias, self.ones, delta)
        return delta

"""Recurrent layers step by step in time, by operations that `vmap` computes for many models.

PyTorch's own LSTM and GRU are one operation each, which knows one model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

State = tuple[Tensor, Tensor]


class InSteps:
    """An LSTM or a GRU, which goes in steps where `in_steps` says so and all of it is known."""

    in_steps = False

    def forward(self, x: Any, hx: Any = None) -> Any:
        """As the layer that it was."""
        me: Any = self
        odd = me.bidirectional or me.proj_size or (me.dropout and me.training)
        if not self.in_steps or odd or not isinstance(x, Tensor) or x.dim() != 3:
            return super().forward(x, hx)  # type: ignore[misc]
        lstm, along = isinstance(self, nn.LSTM), 1 if me.batch_first else 0
        if hx is None:
            zero = x.new_zeros(me.num_layers, x.shape[1 - along], me.hidden_size)
            hx = (zero, zero) if lstm else zero
        ends = []
        for layer in range(me.num_layers):
            names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if me.bias else ()))
            own = [getattr(me, f"{name}_l{layer}") for name in names]
            start = (hx[0][layer], hx[1][layer]) if lstm else (hx[layer],) * 2
            x, end = _layer(x, start, along, own, _long if lstm else _gated)
            ends.append(end)
        last = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
        return x, last if lstm else last[0]


def _layer(
    x: Tensor, state: State, along: int, own: list[Tensor], step: Any
) -> tuple[Tensor, State]:
    """Outputs of all steps, and the last state; what inputs add to the gates is one product."""
    inward, recurrent, *bias = own
    given = functional.linear(x, inward, bias[0] if bias else None)
    outs = []
    for now in given.unbind(along):
        state = step(now, functional.linear(state[0], recurrent, bias[1] if bias else None), *state)
        outs.append(state[0])
    return torch.stack(outs, along), state


def _long(given: Tensor, kept: Tensor, _: Tensor, cell: Tensor) -> State:
    """A step of an LSTM: state and cell, from what its inputs and its state add to the gates."""
    gates = given + kept
    enter, forget, new, leave = gates.chunk(4, -1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def _gated(given: Tensor, kept: Tensor, state: Tensor, _: Tensor) -> State:
    """A step of a GRU: the state, twice."""
    width = state.shape[-1]
    reset, update = (given[..., : 2 * width] + kept[..., : 2 * width]).sigmoid().chunk(2, -1)
    new = (given[..., 2 * width :] + reset * kept[..., 2 * width :]).tanh()
    state = new + update * (state - new)
    return state, state

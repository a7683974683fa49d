"""What a solver makes of gradients, in compiled code: `moments.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedclust.core.calls import TrainCall
from fedclust.core.solver import Solver
from fedclust.engines.fused.native.compiled import library, structure
from fedclust.engines.fused.native.rows import address
from fedclust.engines.fused.weights import Weight

compiled = partial(library, "moments")
_Law, _Move = (structure("moments.c", name) for name in ("Law", "Move"))


def law_of(
    solver: Solver, lr: float, count: Tensor | None = None, rates: Tensor | None = None
) -> ctypes.Structure:
    """What the code is told of a solver; off where plain steps are all it takes.

    Args:
        count: [R] float32 steps before it; None for 0.
        rates: [S] float64 factors of the learning rate by step; None for 1.
    """
    law, clipped = solver.law, solver.clip_norm is not None
    return _Law(
        on=not solver.plain,
        lr=lr,
        keep=law.keep,
        take=law.take,
        square=law.square or 0.0,
        add=law.add,
        eps=law.eps,
        decoupled=solver.weight_decay if law.decoupled else 0.0,
        apart=solver.weight_decay if clipped and not law.decoupled else 0.0,
        clip=solver.clip_norm or 0.0,
        nesterov=law.nesterov,
        adaptive=law.adaptive,
        unbiased=law.unbiased,
        damped=law.counts and not law.unbiased,
        count=address(count),
        rates=address(rates),
    )


def rates_of(solver: Solver, steps: int) -> Tensor | None:
    """Factors of the learning rate in each of some steps [S]; None where all are 1."""
    if solver.schedule_by == "round":
        return None
    return torch.tensor([solver.step_rate(1.0, s) for s in range(steps)], dtype=torch.float64)


def started(call: TrainCall) -> Tensor | None:
    """Local steps of every row before a call, [R] float32; None for 0."""
    if call.slots is None or not call.solver.law.counts:
        return None
    return call.slots[call.label, -1].contiguous()


def move(
    weights: Sequence[Weight], solver: Solver, lr: float, pull: float, count: Tensor, step: int
) -> bool:
    """A step of R rows' parameters, of ready gradients, on a CPU; False, undone, without the code.

    `pull` is the anchor's in the gradient, `count` [R] float32 the steps before the call.
    """
    code = compiled() if weights and weights[0].value.is_cpu else None
    if code is None:
        return False
    law, threads = law_of(solver, lr, count), torch.get_num_threads()
    clipped = solver.clip_norm is not None
    squares = torch.zeros(len(count), dtype=torch.float64) if clipped else None
    jobs = [
        _Move(
            law=law,
            rows=len(weight.value),
            size=weight.value[0].numel(),
            step=step,
            # whatever the order of a kernel's numbers is, it is the same in all of these
            **{name: _start(getattr(weight, name)) for name in _OF_WEIGHT},
            decay=weight.decay,
            pull=pull,
            squares=address(squares),
        )
        for weight in weights
    ]
    for job in jobs:
        code.gather(ctypes.byref(job), threads)
    for job in jobs:
        code.move(ctypes.byref(job), threads)
    return True


_OF_WEIGHT = ("value", "slot", "square", "gradient", "anchor")


def _start(x: Tensor | None) -> int | None:
    """Where the rows of a parameter begin, which lie one after the other."""
    if x is None:
        return None
    assert x.stride(0) == x[0].numel()
    return x.data_ptr()

"""One step per cluster by what participants send: gradient averaging, option I of IFCA, CFL-MGD."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedclust.core.solver import Solver
from fedclust.core.types import Round
from fedclust.helpers.errors import require

Averaging = Literal["model", "gradient"]
Denominator = Literal["all", "participants", "cluster"]


def check_plain_step(solver: Solver, option: str, *, momentum: bool = False) -> None:
    """Raise `ConfigError` if the solver asks for more than `option`, key and value, has: one step
    per round, plain or with `momentum`.
    """
    why = f"0, because {option} takes one plain gradient step per round"
    check_descent(solver, why, momentum=momentum)
    require(solver.weight_decay == 0, "solver.weight_decay", solver.weight_decay, why)


def check_descent(solver: Solver, why: str, *, momentum: bool = False) -> None:
    """Raise `ConfigError` unless a local step is w - lr * g, or has heavy-ball `momentum` where it
    may; `why` is the allowed value, "0", and the reason, for the message.
    """
    law, reason = solver.law, why.removeprefix("0")
    require(not law.adaptive, "solver", solver.name, f"sgd{reason}")
    require(momentum or law.keep == 0, "solver.momentum", law.keep, why)
    require(not law.nesterov, "solver.nesterov", "true", f"false{reason}")
    require(solver.clip_norm is None, "solver.clip_norm", solver.clip_norm, f"null{reason}")
    by = solver.schedule_by
    require(by == "round", "solver.schedule_by", by, f"round{reason}")
    require(law.take == 1, "solver.dampening", round(1 - law.take, 12), why)


def descend(
    models: Tensor,
    total: Tensor,
    label: Tensor,
    rate: float,
    denominator: Denominator,
    rnd: Round,
) -> Tensor:
    """The models after a step against the summed directions of their participants, [K, P].

    w_c = w_c - rate / denominator * sum over the participants i of cluster c of direction_i; a
    cluster without participants keeps its model.

    Args:
        total: [K, P] summed gradients, or momenta, of the participants.
        label: [C] int64 in [0, K), cluster of every participant.
        denominator: the number of `all` clients, of the round's `participants`, or of the
            participants in that `cluster`.
    """
    if denominator == "cluster":
        count = label.bincount(minlength=len(models)).clamp(min=1).unsqueeze(1)  # [K, 1]
    else:
        number = rnd.fed.num_clients if denominator == "all" else len(label)
        count = torch.tensor([number], device=label.device)
    return models - rate * total / count

"""What a method computes with in a round: the clients of one seed, by their ids."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from fedclust.core.calls import PLAIN, LocalWork
from fedclust.core.solver import Solver


@dataclass(frozen=True)
class Train:
    """Local training that is asked of some clients.

    Attributes:
        models: [K, P].
        label: [C] int64 in [0, K), the model that each client starts from.
        ids: [C] int64 clients.
        solver: what a local step is.
        work: what else training is given, as `LocalWork(anchor=anchor)`.
        weight: [C] of the clients in the means that `Clients.train_mean` makes, None = equal.
        purpose: the name of the randomness.
    """

    models: Tensor
    label: Tensor
    ids: Tensor
    solver: Solver
    work: LocalWork = PLAIN
    _: KW_ONLY
    weight: Tensor | None = None
    purpose: str = "train"

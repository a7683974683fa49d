"""How far the clients whose data change fall, and after how many rounds they are back.

A change is a round of which the scenario says so (`Round.is_change`). Measured are the clients
whose data changed then, until the next change: their accuracy at the last evaluation before it, at
once with what the method serves before it trains, and at every evaluation from then on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedclust.core.types import Evaluation, Round
from fedclust.metrics import changed_names

WITHIN = 0.01  # of the accuracy before a change counts as recovered; of an error, that part of it
_ROUNDING = 1e-9  # 0.87 is within 0.01 of 0.88, whatever the floats' difference says


@dataclass
class AfterChange:
    """What must be remembered of one seed."""

    # sums, count: [M, S] and [M] of the last evaluation; empty before the first one
    sums: Tensor
    count: Tensor
    changed: Tensor  # [M] bool, whose data changed last; empty before the first change
    # their accuracy before; infinite where it is unknown, or once it is reached again
    level: float = math.inf
    since: int = -1  # the round of the change

    @classmethod
    def nothing(cls) -> AfterChange:
        """Before the first round."""
        empty = torch.zeros(0, dtype=torch.int64)
        return cls(empty.double(), empty, empty.to(torch.bool))

    @classmethod
    def of(cls, kept: Mapping[str, Tensor]) -> AfterChange:
        """What `state` returned."""
        return cls(
            kept["sums"].cpu() if "sums" in kept else kept["correct"].cpu().double().unsqueeze(1),
            kept["count"].cpu(),
            kept["changed"].cpu(),
            float(kept["level"]),
            int(kept["since"]),
        )

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep."""
        return {
            "sums": self.sums,
            "count": self.count,
            "changed": self.changed,
            "level": torch.tensor(self.level, dtype=torch.float64),
            "since": torch.tensor(self.since),
        }

    def change(self, rnd: Round, untrained: Evaluation) -> dict[str, float]:
        """The numbers of a change; `untrained` are the test results of what is served before its
        round trains, on the round's data.
        """
        self.changed, self.since = rnd.shifted.cpu(), rnd.t
        before = _score(rnd, self.sums, self.count, self.changed)
        self.level = math.inf if before is None else before
        at_once = _score(rnd, untrained.sums.cpu(), untrained.count.cpu(), self.changed)
        names = changed_names(rnd.fed.pool.task.score.name)
        values = zip(names, (before, at_once), strict=False)
        known = {name: value for name, value in values if value is not None}
        return {"changed_clients": float(self.changed.sum()), **known}

    def evaluated(self, rnd: Round, evaluation: Evaluation) -> dict[str, float]:
        """The numbers of an evaluation since the first change."""
        self.sums, self.count = evaluation.sums.cpu(), evaluation.count.cpu()
        now = _score(rnd, self.sums, self.count, self.changed)
        if now is None:
            return {}
        score = rnd.fed.pool.task.score
        values = {changed_names(score.name)[2]: now}
        fallen = self.level - now if score.better == "higher" else now - self.level
        room = WITHIN * (1 if score.unit == "fraction" else abs(self.level))
        if not math.isinf(self.level) and fallen <= room + _ROUNDING:
            values["recovery_rounds"] = float(rnd.t - self.since + 1)
            self.level = math.inf  # once per change
        return values


def _score(rnd: Round, sums: Tensor, count: Tensor, clients: Tensor) -> float | None:
    """The headline of some clients [M] bool together; None where there is none."""
    if not len(clients) or not len(count) or not int(count[clients].sum()):
        return None
    score = float(rnd.fed.pool.task.headline(sums[clients].sum(0), count[clients].sum()))
    return None if math.isnan(score) else score

"""Nothing changes: everyone is there from the start and keeps their data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch

from fedclust.errors import require
from fedclust.types import Federation, Round


@dataclass(frozen=True, kw_only=True)
class Static:
    """Every round samples its cohort uniformly without replacement from all clients with training data.

    Attributes:
        participation: fraction of the clients in a round, at least one client.
        clients_per_round: number of clients instead of the fraction.
    """

    participation: float = 1.0
    clients_per_round: int | None = None

    def __post_init__(self) -> None:
        require(0 < self.participation <= 1, "participation", self.participation, "a fraction in (0, 1]")
        require(
            self.clients_per_round is None or self.clients_per_round >= 1,
            "clients_per_round",
            self.clients_per_round,
            "at least 1, or null to use participation",
        )

    def cohort_size(self, available: int) -> int:
        """Clients of one round out of `available`.

        Raises:
            ConfigError: if more are asked for than there are.
        """
        if self.clients_per_round is None:
            return max(1, round(self.participation * available))
        require(
            self.clients_per_round <= available,
            "clients_per_round",
            self.clients_per_round,
            f"the federation has {available} clients with training data",
        )
        return self.clients_per_round

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds without end, each with its own cohort."""
        everyone = torch.ones(fed.num_clients, dtype=torch.bool, device=fed.group.device)
        trainable = fed.train.count.nonzero().squeeze(1)
        size = self.cohort_size(len(trainable))

        def stream() -> Iterator[Round]:
            for t in count():
                rnd = Round(t=t, seed=seed, fed=fed, cohort=trainable, present=everyone)
                if size < len(trainable):
                    cohort = rnd.sample(size, among=trainable)
                    rnd = Round(t=t, seed=seed, fed=fed, cohort=cohort, present=everyone)
                yield rnd

        return stream()

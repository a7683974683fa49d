"""How long a server waits for devices: what all clocks share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedclust.core.clock import Devices, Wait
from fedclust.helpers.ranges import NonNegative, Positive, Ranged
from fedclust.helpers.rng import Stream


class NoClock(Ranged):
    """No time is computed: all devices are alike."""

    deadline = None
    over = 0.0
    wait: Wait = "all"

    def devices(self, num_clients: int, stream: Stream) -> Devices:  # noqa: ARG002
        return Devices.alike(num_clients, 1.0)


@dataclass(frozen=True, kw_only=True)
class Waiting(Ranged):
    """A server that waits for the slowest participant, or shorter."""

    # seconds after which the server waits no longer for participants; None for the slowest
    deadline: Positive | None = None
    # share of clients that are sampled in addition; of all of them the first ones count
    over: NonNegative = 0.0
    # for whom the next model of a cluster waits: `all` participants, or those of its `cluster`
    wait: Wait = "all"


def megabits(rate: Tensor) -> Tensor:
    """Megabits per second in bytes per second."""
    return rate * 1e6 / 8

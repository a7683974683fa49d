"""How long clients' devices take. Time is computed, and nothing waits for it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import torch
from torch import Tensor

from fedclust.helpers.rng import Stream

# for whom a server's next model waits: `all` participants, or those of its `cluster`
Wait = Literal["all", "cluster"]
FORWARD = 1 / 3  # of the work of a forward and a backward pass, by which examples are counted


@dataclass(frozen=True, kw_only=True)
class Devices:
    """What the devices of M clients can do, all [M] float64 in the host's memory.

    Attributes:
        speed: examples that are trained in a second.
        down, up: bytes per second from and to the server; infinite where sending takes no time.
        on_from: seconds of the period at which a device goes on, in [0, period).
        on_for: seconds of every period that it is on, in (0, period]; all of them where it always
            is.
        period: seconds.
    """

    speed: Tensor
    down: Tensor
    up: Tensor
    on_from: Tensor
    on_for: Tensor
    period: float = 86_400.0

    @classmethod
    def alike(cls, num_clients: int, speed: float) -> Devices:
        """Equal ones that are always on, and to and from which sending takes no time."""
        ones = torch.ones(num_clients, dtype=torch.float64)
        never = ones * float("inf")
        day = cls.period
        return cls(speed=speed * ones, down=never, up=never, on_from=0 * ones, on_for=day * ones)

    @property
    def digest(self) -> str:
        """SHA-256 of all numbers, in hexadecimal digits."""
        parts = (self.speed, self.down, self.up, self.on_from, self.on_for)
        content = b"".join(part.numpy().tobytes() for part in parts)
        return hashlib.sha256(content + str(self.period).encode()).hexdigest()

    def busy(self, ids: Tensor, received: Tensor, examples: Tensor, sent: Tensor) -> Tensor:
        """Seconds that the clients `ids` [C] take for what they receive and send [C] bytes, and
        for the `examples` [C] in between, [C] float64.
        """
        return received / self.down[ids] + examples / self.speed[ids] + sent / self.up[ids]

    def done(self, ids: Tensor, begun: Tensor | float, busy: Tensor) -> Tensor:
        """When clients `ids` [C] are done that begin at `begun` [C] what takes them `busy` [C], in
        seconds since the start, [C] float64: what a device has not done when it goes off, it does
        when it is on again.
        """
        period, length = self.period, self.on_for[ids]
        since = begun - self.on_from[ids]  # the first time that it goes on
        cycle = (since / period).floor()
        # seconds of being on that are over when it is done
        over = cycle * length + (since - cycle * period).clamp(max=length) + busy
        cycles = (over / length).ceil() - 1
        end = self.on_from[ids] + cycles * period + (over - cycles * length)
        always = length >= period
        return torch.where(always | (busy == 0), begun + busy, end)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long every client takes in a round from now on.

    Attributes:
        devices: of all clients.
        now: seconds since the start.
        busy: [M] float64 seconds that a plain exchange takes every client's device: one model down,
            local training by the run's solver, one model up.
        over: the share of clients that are sampled in addition, of whom the first ones are kept.
        received: [M] float64 seconds of it in which the model comes down.
        passed: [M] float64 seconds that the loss of a model on all examples of a client takes.
    """

    devices: Devices
    now: float
    busy: Tensor
    over: float = 0.0
    received: Tensor | float = 0.0
    passed: Tensor | float = 0.0

    @cached_property
    def seconds(self) -> Tensor:
        """[M] float64 until every client is done with a plain exchange that begins now."""
        ids = torch.arange(len(self.busy))
        return self.devices.done(ids, self.now, self.busy) - self.now

    def choosing(self, num_models: int) -> Tensor:
        """[M] float64 seconds that an exchange takes every client's device in which it is sent so
        many models, and computes the loss of each if they are several, and trains one of them.
        """
        if num_models == 1:
            return self.busy
        return self.busy + (num_models - 1) * self.received + num_models * self.passed

    def first(self, clients: Tensor, count: int) -> Tensor:
        """The `count` of the clients [A] that are done first; of equals the first in the list."""
        order = self.seconds.to(clients.device)[clients].argsort(stable=True)
        return clients[order[:count]]


class Clock(Protocol):
    """Which devices clients have, and how long a server waits for them."""

    @property
    def deadline(self) -> float | None:
        """Seconds after which a server does not wait any longer; None for the slowest."""
        ...

    @property
    def over(self) -> float:
        """See `Pace`."""
        ...

    @property
    def wait(self) -> Wait:
        """For whom the next model of a cluster waits, where the method lets it."""
        ...

    def devices(self, num_clients: int, stream: Stream) -> Devices:
        """Those of a seed, whose randomness is `stream`; the same for every method."""
        ...

"""Devices whose speed and bandwidth are drawn from a law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedclust.clocks.waiting import Waiting, megabits
from fedclust.core.clock import Devices
from fedclust.helpers.effects import OnlyWithout
from fedclust.helpers.ranges import Fraction, Positive, Range
from fedclust.helpers.rng import Stream

Spread = Annotated[float, Range(0, 10)]


@dataclass(frozen=True, kw_only=True)
class DrawnDevices(Waiting):
    """Every client's device, drawn anew for every seed and the same in all rounds.

    A number with the median m and the spread s is m exp(s z) with a standard normal z by the law
    `lognormal`, and m (2 u)^s with u uniform in (0, 1] by the law `pareto`: then the time that
    something takes has a Pareto distribution with the exponent 1 / s, so that few devices are very
    slow.
    """

    law: Literal["lognormal", "pareto"] = "lognormal"
    speed: Positive = 100.0  # median of the examples that are trained in a second
    speed_spread: Spread = 0.5
    down: Positive | None = 20.0  # median of megabits per second to a client; None: no time
    down_spread: Annotated[Spread, OnlyWithout("down", None)] = 0.5
    up: Positive | None = 5.0  # median of megabits per second from a client; None: no time
    up_spread: Annotated[Spread, OnlyWithout("up", None)] = 0.5
    on_share: Fraction = 1.0  # share of the period that a device is on, from a random time of it on
    period: Annotated[Positive, OnlyWithout("on_share", 1)] = 24.0  # hours

    def devices(self, num_clients: int, stream: Stream) -> Devices:
        rng = stream.numpy()
        # all of them whatever the options are, so that no option changes another's numbers
        uniform = torch.from_numpy(1 - rng.random((4, num_clients)))  # (0, 1]
        seconds = 3600 * self.period

        def drawn(row: int, median: float | None, spread: float) -> Tensor:
            median = math.inf if median is None else median
            u = uniform[row]
            if self.law == "pareto":
                return median * (2 * u) ** spread
            normal: Tensor = torch.special.ndtri(u.clamp(max=1 - 2**-53))
            return median * (spread * normal).exp()

        return Devices(
            speed=drawn(0, self.speed, self.speed_spread),
            down=megabits(drawn(1, self.down, self.down_spread)),
            up=megabits(drawn(2, self.up, self.up_spread)),
            on_from=(1 - uniform[3]) * seconds,
            on_for=torch.full_like(uniform[3], self.on_share * seconds),
            period=seconds,
        )

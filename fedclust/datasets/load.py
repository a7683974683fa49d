"""Daily load curves of households of three known types, generated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedclust.core.types import Dataset
from fedclust.datasets.windows import Values, Windows
from fedclust.helpers.ranges import AtLeastOne, AtLeastTwo, Clients, NonNegative, Seed
from fedclust.helpers.rng import Stream

TYPES = ("commuters", "shift workers", "storage heating")
_HOUR = np.arange(24)


@dataclass(frozen=True, kw_only=True)
class Load(Windows):
    """Hourly load in kW of `households`, whose true group is their type: 0, 1, 2 in turn.

    Commuters have peaks at 7 and 19 o'clock, and at weekends a hill at noon. Shift workers have one
    peak, early on even days and late on odd ones, so that a day says the opposite of the next.
    Storage heating loads at night, the more the colder the day before was, and follows a weather
    that all share. Households differ in size and in a few hours of habit.
    """

    length: AtLeastOne = 24
    households: Clients = 30  # number of clients
    days: AtLeastTwo = 120  # days of every series
    noise: NonNegative = 0.2  # standard deviation of the logarithm of every hour's load
    data_seed: Seed = 0  # seed of everything drawn, the same for all seeds of a run

    def load(self) -> Dataset:
        """The windows, x [N, 1, 1, length] and y [N, horizon] in kW. Raises `DataError` if there
        are too few days for a window of training or of tests.
        """
        stream = Stream.of(self.data_seed, "load")
        types = [i % len(TYPES) for i in range(self.households)]
        curves = self.curves(types, stream)
        names = [f"{TYPES[kind]} {i}" for i, kind in enumerate(types)]
        return self.cut("load", [one[:, None] for one in curves], names, [TYPES[k] for k in types])

    def curves(self, types: list[int], stream: Stream) -> list[Values]:
        """The load of every household, [24 * days] kW each."""
        weather = stream.fold(0).numpy()
        cold = np.zeros(self.days)  # of mean 0 and standard deviation 1, a day like the one before
        for day in range(1, self.days):
            cold[day] = 0.8 * cold[day - 1] + 0.6 * weather.standard_normal()
        made = []
        for household, kind in enumerate(types):
            own = stream.fold(1, household).numpy()
            habit, size = own.normal(0, 0.7), 0.5 * np.exp(own.normal(0, 0.3))
            before = np.roll(cold, 1)
            shape = np.stack([_shape(kind, day, habit, before[day]) for day in range(self.days)])
            spread = np.exp(own.normal(0, self.noise, shape.size) - self.noise**2 / 2)
            made.append(size * (0.4 + shape.reshape(-1)) * spread)
        return made


def _shape(kind: int, day: int, habit: float, cold: float) -> Values:
    """Load above the base of a household's day, [24], about 1 on average."""
    if kind == 0:
        working = 1.5 * _hill(7 + habit, 1.5) + 3 * _hill(19 + habit, 2)
        return 2.5 * _hill(13 + habit, 4) if day % 7 >= 5 else working
    if kind == 1:
        return 4 * _hill((5 if day % 2 == 0 else 17) + habit, 2.5)
    return float(np.exp(0.5 * cold)) * 3 * _hill(2 + habit, 3)


def _hill(hour: float, width: float) -> Values:
    """A hill of height 1 around an hour of a day that begins again, [24]."""
    away = np.abs(_HOUR - hour % 24)
    return np.asarray(np.exp(-0.5 * (np.minimum(away, 24 - away) / width) ** 2))

"""Devices as a table describes them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from fedclust.clocks.waiting import Waiting, megabits
from fedclust.core.clock import Devices
from fedclust.helpers.errors import DataError
from fedclust.helpers.files import plain_file, read_text
from fedclust.helpers.rng import Stream

_NUMBERS = ("speed", "down", "up")
_HOURS = ("from", "to")
_DAY = 24
_TINY, _HUGE = 1e-300, 1e300  # what stands for 0 and infinity where these are none
_NEEDED = "client, speed, down, up and optionally from, to"


@dataclass(frozen=True, kw_only=True)
class Trace(Waiting):
    """The device of every client, the same for every seed.

    The table has a row for each client, and the columns client (0, 1, …), speed (examples that are
    trained in a second), down and up (megabits per second, `inf` where sending takes no time) and
    optionally from and to, the hours of the day between which the device is on; one with neither
    is always on. Rows of clients that the federation does not have are not read.
    """

    path: str  # CSV

    def devices(self, num_clients: int, stream: Stream) -> Devices:  # noqa: ARG002
        """The same for every seed; DataError names the row, or the client without one."""
        path = plain_file(Path(self.path), "clock: ", "set clock.path to a CSV file")
        rows = dict[int, Mapping[str, float]]()
        for line, client, row in _rows(path):
            if client in rows:
                raise DataError(f"{path}, line {line}: a second row of client {client}; remove it")
            rows[client] = row
        for client in range(num_clients):
            if client not in rows:
                raise DataError(
                    f"{path} has no row of client {client}: each of the {num_clients} clients "
                    "needs one"
                )
        columns = {
            name: torch.tensor([rows[i][name] for i in range(num_clients)], dtype=torch.float64)
            for name in (*_NUMBERS, *_HOURS)
        }
        length = (columns["to"] - columns["from"]) % _DAY
        return Devices(
            speed=columns["speed"],
            down=megabits(columns["down"]),
            up=megabits(columns["up"]),
            on_from=3600 * (columns["from"] % _DAY),
            on_for=3600 * torch.where(length > 0, length, _DAY),
        )


def _rows(path: Path) -> Iterator[tuple[int, int, Mapping[str, float]]]:
    """Line, client and numbers of every row; DataError for what they may not be."""
    text = read_text(path).removeprefix("\ufeff")  # as Excel begins a file
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    names = reader.fieldnames or []
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise DataError(f"{path} has two columns {twice[0]}: remove one")
    given = _HOURS if set(_HOURS) & set(names) else ()
    missing = [name for name in ("client", *_NUMBERS, *given) if name not in names]
    if missing:
        raise DataError(f"{path} lacks the column {missing[0]}: it needs {_NEEDED}")
    for row in reader:
        line = reader.line_num
        if None in row:  # more fields than names
            raise DataError(f"{path}, line {line}: {len(names)} fields are needed, as in its head")

        number = partial(_number, f"{path}, line {line}", row)
        client = number("client", 0, 1e7, "client's number: 0, 1, …")
        if client != int(client):
            raise DataError(f"{path}, line {line}: client={client} is no client's number: 0, 1, …")
        values = {
            name: number(name, _TINY, _HUGE if name == "speed" else math.inf, "number above 0")
            for name in _NUMBERS
        }
        always = not any((row.get(name) or "").strip() for name in _HOURS)
        hours = {
            name: 0.0 if always else number(name, 0, _DAY, "hour of the day from 0 to 24")
            for name in _HOURS
        }
        if not always and hours["from"] == hours["to"]:
            raise DataError(
                f"{path}, line {line}: from and to are both {hours['from']:g}, so the device is "
                "never on; leave both empty for one that always is"
            )
        yield line, int(client), values | hours


def _number(
    where: str, row: Mapping[str, str | None], name: str, low: float, high: float, words: str
) -> float:
    """The number of a column; DataError if it is none, or not in [low, high]."""
    text = (row[name] or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise DataError(f"{where}: {name}={text[:40]} is no {words}")
    return value

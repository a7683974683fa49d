"""Devices: by hand, by their laws, and from tables with mistakes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fedclust.clocks.devices import DrawnDevices
from fedclust.clocks.trace import Trace
from fedclust.clocks.waiting import NoClock
from fedclust.core.clock import Devices, Pace
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.helpers.rng import Stream

STREAM = Stream.of(0, "devices")
HOUR = 3600.0


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def two() -> Devices:
    """The second is on from 10 to 12 o'clock."""
    return Devices(
        speed=tensor(100, 10),
        down=tensor(1000, 50),
        up=tensor(500, math.inf),
        on_from=tensor(0, 10 * HOUR),
        on_for=tensor(24 * HOUR, 2 * HOUR),
    )


def test_two_devices_by_hand() -> None:
    busy = two().busy(torch.tensor([0, 1]), tensor(2000, 2000), tensor(300, 300), tensor(1000, 1))
    # 2 + 3 + 2 seconds, and 40 + 30
    assert busy.tolist() == [7, 70]
    assert two().busy(torch.tensor([1]), tensor(0), tensor(5), tensor(9)).tolist() == [0.5]


@pytest.mark.parametrize(
    ("begun", "busy", "done"),
    [
        (10, 1, 11),  # within the time that it is on
        (10, 2, 12),
        (9, 1, 11),  # it waits until 10 o'clock
        (13, 0.5, 34.5),  # until the next day
        (11, 1.5, 34.5),  # half an hour is left when it goes off
        (10, 5, 59),  # two hours today, two tomorrow, one on the day after
        (34, 1, 35),
        (0, 0, 0),
    ],
)
def test_a_device_works_while_it_is_on(begun: float, busy: float, done: float) -> None:
    ids = torch.tensor([1, 0])
    found = two().done(ids, begun * HOUR, tensor(busy, busy) * HOUR) / HOUR
    assert found.tolist() == pytest.approx([done, begun + busy])


def test_the_first_to_be_done() -> None:
    # at 9 o'clock; the second goes on at 10
    pace = Pace(devices=two(), now=9 * HOUR, busy=tensor(7200, 60))
    assert pace.seconds.tolist() == pytest.approx([7200, 3660])
    assert pace.first(torch.tensor([0, 1]), 1).tolist() == [1]
    equal = Pace(devices=Devices.alike(5, 1.0), now=0.0, busy=torch.ones(5).double())
    assert equal.first(torch.tensor([3, 1, 4]), 2).tolist() == [3, 1]


def test_laws() -> None:
    many = 100_000
    normal = DrawnDevices(speed=50, speed_spread=0.5).devices(many, STREAM).speed
    assert float(normal.median()) == pytest.approx(50, rel=0.01)
    assert float(normal.log().std()) == pytest.approx(0.5, rel=0.01)
    assert float(normal.log().mean()) == pytest.approx(math.log(50), abs=0.01)
    heavy = DrawnDevices(law="pareto", speed=50, speed_spread=0.5).devices(many, STREAM).speed
    assert float(heavy.median()) == pytest.approx(50, rel=0.01)
    assert float(heavy.max()) <= 50 * 2**0.5
    # of a time of at least t0, P(time > x t0) = x^-2
    least = 1 / (50 * 2**0.5)
    for x in (2, 5, 10):
        assert float((1 / heavy > x * least).double().mean()) == pytest.approx(x**-2, rel=0.05)


def test_bandwidths_and_hours() -> None:
    drawn = DrawnDevices(down=8, up=None, down_spread=0, on_share=0.25, period=12)
    found = drawn.devices(10_000, STREAM)
    assert found.down.tolist() == pytest.approx([1e6] * 10_000)  # bytes of 8 megabits
    assert found.up.tolist() == [math.inf] * 10_000
    assert found.on_for.unique().tolist() == [3 * HOUR]
    assert found.period == 12 * HOUR
    assert 0 <= float(found.on_from.min()) < float(found.on_from.max()) < 12 * HOUR
    assert float(found.on_from.mean()) == pytest.approx(6 * HOUR, rel=0.02)


def test_what_is_drawn_depends_on_the_seed_and_its_own_options_alone() -> None:
    one = DrawnDevices().devices(5, STREAM)
    other = DrawnDevices(speed=1, down=None, on_share=0.5).devices(5, STREAM)
    assert torch.equal(one.up, other.up)
    assert one.digest == DrawnDevices().devices(5, STREAM).digest
    assert one.digest != other.digest
    assert one.digest != DrawnDevices().devices(5, Stream.of(1, "devices")).digest


def test_without_a_clock_all_are_alike() -> None:
    found = NoClock().devices(3, STREAM)
    assert found.busy(
        torch.arange(3), tensor(1, 1, 1), tensor(1, 2, 1), tensor(1, 1, 1)
    ).tolist() == [
        1,
        2,
        1,
    ]


def trace(folder: Path, text: str) -> Trace:
    file = folder / "devices.csv"
    file.write_text(text)
    return Trace(path=str(file))


def test_a_table_by_hand(tmp_path: Path) -> None:
    text = (
        "client,speed,down,up,from,to\n"
        "1,20,8,inf,22,6\n"
        "0,10.5,16,4,,\n"
        "2,1,1,1,0,12\n"
        "7,3,1,1,1,2\n"  # of a client that there is not
    )
    found = trace(tmp_path, text).devices(3, STREAM)
    assert found.speed.tolist() == [10.5, 20, 1]
    assert found.down.tolist() == [2e6, 1e6, 125_000]
    assert found.up.tolist() == [500_000, math.inf, 125_000]
    assert (found.on_from / HOUR).tolist() == [0, 22, 0]
    assert (found.on_for / HOUR).tolist() == [24, 8, 12]
    assert trace(tmp_path, "\ufeffclient, speed, down, up\n0, 1, 1, 1\n").devices(1, STREAM).on_for[
        0
    ] == (24 * HOUR)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("client,speed,down\n0,1,1\n", "lacks the column up: it needs client, speed, down, up"),
        ("client,speed,down,up,from\n0,1,1,1,2\n", "lacks the column to: "),
        ("", "lacks the column client: "),
        ("client,speed,down,up,speed\n0,1,1,1,1\n", "has two columns speed: remove one"),
        ("client,speed,down,up\n0,1,1,1,9\n", "line 2: 4 fields are needed, as in its head"),
        ("client,speed,down,up\n0,-2,1,1\n", "line 2: speed=-2 is no number above 0"),
        ("client,speed,down,up\n0,1,1,1\n1,1,fast,1\n", "line 3: down=fast is no number above 0"),
        ("client,speed,down,up\n0,inf,1,1\n", "line 2: speed=inf is no number above 0"),
        ("client,speed,down,up\n0,1,1\n", "line 2: up= is no number above 0"),
        ("client,speed,down,up\n0,1,nan,1\n", "line 2: down=nan is no number above 0"),
        ("client,speed,down,up\nA,1,1,1\n", "line 2: client=A is no client's number: 0, 1, …"),
        ("client,speed,down,up\n0.5,1,1,1\n", "line 2: client=0.5 is no client's number"),
        ("client,speed,down,up\n0,1,1,1\n0,1,1,1\n", "line 3: a second row of client 0"),
        (
            "client,speed,down,up\n0,1,1,1\n2,1,1,1\n",
            "has no row of client 1: each of the 3 clients",
        ),
        ("client,speed,down,up,from,to\n0,1,1,1,25,3\n", "line 2: from=25 is no hour of the day"),
        ("client,speed,down,up,from,to\n0,1,1,1,3,\n", "line 2: to= is no hour of the day"),
        ("client,speed,down,up,from,to\n0,1,1,1,3,3\n", "line 2: from and to are both 3, so the"),
    ],
)
def test_a_table_with_a_mistake_is_refused_in_one_line(
    text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as refused:
        trace(tmp_path, text).devices(3, STREAM)
    assert str(refused.value).startswith(str(tmp_path / "devices.csv"))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.csv not found: set clock\.path to a CSV file"):
        Trace(path=str(tmp_path / "no.csv")).devices(3, STREAM)


def test_numbers_out_of_range_are_refused() -> None:
    for wrong in (
        {"speed": 0.0},
        {"up": -1.0},
        {"on_share": 0.0},
        {"deadline": 0.0},
        {"over": -0.1},
    ):
        ((name, value),) = wrong.items()
        with pytest.raises(ConfigError, match=rf"{name}={value} is not allowed"):
            DrawnDevices(**wrong)  # type: ignore[arg-type]

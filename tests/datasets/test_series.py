"""Series in time: windows with a horizon, and no leak from the last part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused

from fedclust.config.data import federate
from fedclust.core.federation import build
from fedclust.core.types import Dataset
from fedclust.datasets.series import Series
from fedclust.helpers.errors import DataError
from fedclust.partitions.natural import Natural
from fedclust.tasks.regression import Regression

SMALL: dict[str, Any] = {"length": 4, "horizon": 2, "stride": 1}


def load(path: Path, **options: Any) -> Dataset:
    return Series(path=str(path), **(SMALL | options)).load()


def curves(folder: Path) -> dict[str, pd.DataFrame]:
    """Two clients of 100 and 60 hours whose value is the hour, written from back to front."""
    made = {}
    for client, steps, first in (("b", 100, 0), ("a", 60, 1000)):
        table = pd.DataFrame({"value": first + np.arange(steps), "cold": -np.arange(steps) / 2})
        table["hour"] = pd.date_range("2024-01-01", periods=steps, freq="h").astype(str)
        table["kind"] = f"kind of {client}"
        made[client] = table
        folder.mkdir(exist_ok=True)
        table[::-1].to_csv(folder / f"{client}.csv", index=False)
    return made


def test_training_ends_before_the_test_part(tmp_path: Path) -> None:
    curves(tmp_path)
    data = load(tmp_path, time="hour", normalise="none", features=["cold"])
    assert data.shape == (1, 2, 4)
    assert data.num_classes == 2
    mine = data.owner.eq(1)  # b: 75 hours to train on
    assert int(mine.sum()) == 75 - 6 + 1
    assert data.x_train[mine][0, 0].tolist() == [[0, 1, 2, 3], [0, -0.5, -1, -1.5]]
    assert data.y_train[mine][0].tolist() == [4, 5]
    assert float(data.y_train[mine].max()) == 74
    tests = data.test_owner.eq(1)
    assert int(tests.sum()) == 25 - 2 + 1
    assert data.x_test[tests][0, 0, 0].tolist() == [71, 72, 73, 74]
    assert data.y_test[tests][0].tolist() == [75, 76]
    assert data.y_test[tests][-1].tolist() == [98, 99]
    fed = build(data, Natural(), 0)
    assert fed.train.count.tolist() == [45 - 6 + 1, 70]
    assert fed.test.count.tolist() == [15 - 2 + 1, 24]


@pytest.mark.parametrize("days", [40, 41, 42, 43, 47])
def test_tests_begin_at_the_hours_of_training(days: int, tmp_path: Path) -> None:
    hours = np.arange(24 * days + days % 3)
    table = pd.DataFrame({"value": hours % 24, "when": hours})
    table.to_csv(tmp_path / "a.csv", index=False)
    options: dict[str, Any] = {"length": 24, "horizon": 24, "stride": 24, "normalise": "none"}
    data = load(tmp_path, time="when", **options)
    every = torch.cat([data.y_train, data.y_test])
    assert torch.equal(every, torch.arange(24.0).expand(len(every), 24))
    late = len(hours) - len(hours) // 4  # of no test is a target before the test part
    first = -(-(late - 24) // 24) * 24 + 24
    assert len(data.y_test) == (len(hours) - first) // 24
    assert not data.remarks


def test_clients_that_begin_at_other_hours_or_have_other_steps_are_told(tmp_path: Path) -> None:
    def made(first: str, step: str) -> pd.DataFrame:
        when = pd.date_range(first, periods=80, freq=step)
        return pd.DataFrame({"value": np.arange(80.0), "when": when})

    options: dict[str, Any] = {"length": 8, "horizon": 8, "stride": 8, "time": "when"}
    made("2024-01-01 00:00", "h").to_csv(tmp_path / "a.csv", index=False)
    made("2024-01-03 08:00", "h").to_csv(tmp_path / "b.csv", index=False)
    assert not load(tmp_path, **options).remarks
    made("2024-01-01 05:00", "h").to_csv(tmp_path / "c.csv", index=False)
    (remark,) = load(tmp_path, **options).remarks
    assert "2024-01-01 00:00:00 in a and 2024-01-01 05:00:00 in c" in remark
    assert not load(tmp_path, **(options | {"stride": 1})).remarks
    made("2024-01-01 05:00", "15min").to_csv(tmp_path / "c.csv", index=False)
    (remark,) = load(tmp_path, **options).remarks
    assert "a step of when is 0 days 01:00:00 in a and 0 days 00:15:00 in c" in remark


def test_a_gap_written_as_a_number_is_told(tmp_path: Path) -> None:
    values = np.where(np.arange(100) % 9, np.arange(100) / 10, -999)
    pd.DataFrame({"value": values}).to_csv(tmp_path / "a.csv", index=False)
    (remark,) = load(tmp_path).remarks
    assert "client a has -999 in column value, far from all else" in remark


def test_a_column_of_clients_says_the_same_as_files(tmp_path: Path) -> None:
    made = curves(tmp_path / "files")
    options = {"time": "hour", "group": "kind", "stride": 3}
    files = load(tmp_path / "files", **options)
    mixed = pd.concat([table.assign(who=client) for client, table in made.items()]).sample(
        frac=1, random_state=0
    )
    mixed.to_parquet(tmp_path / "one.parquet", index=False)
    one = load(tmp_path / "one.parquet", client="who", **options)
    for name in ("x_train", "y_train", "x_test", "y_test", "owner", "test_owner", "group"):
        assert torch.equal(getattr(files, name), getattr(one, name)), name
    assert files.names == one.names
    assert files.names.clients == ("a", "b")
    assert files.names.groups == ("kind of a", "kind of b")
    assert files.group.tolist() == [0, 1]


def test_channels_are_standardised_by_what_is_trained_on_in_float64(tmp_path: Path) -> None:
    seconds = 1.7e9 + 0.01 * np.arange(100)  # float32 has steps of 128 there
    seconds[75:] += 1e6  # of tests, which change nothing
    pd.DataFrame({"value": np.arange(100), "clock": seconds}).to_csv(tmp_path / "a.csv")
    data = load(tmp_path, features=["clock"])
    seen = (data.x_train * data.scale + data.shift)[:, 0].double()
    steps = torch.cat([seen[:, :, 0], seen[-1, :, 1:].T])  # the last targets are no inputs
    expected = (np.arange(73) - 37) / np.arange(75).std()
    for channel in (0, 1):
        np.testing.assert_allclose(steps[:, channel], expected, atol=1e-5)
    assert data.y_train[0].tolist() == [4, 5]  # in their own unit


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"horizon": 16}, r"client a has 15 of 60 steps in its test part: dataset.horizon need 16"),
        (
            {"length": 44},
            r"a has 45 of 60 steps before its test part: dataset.length plus dataset",
        ),
        ({"value": "load"}, r"a has no column load, which dataset names: it has value, cold, hour"),
        ({"value": "kind"}, r"client a has kind of a in column kind, row 1: finite numbers that"),
        ({"client": "kind"}, r"is a folder, whose file names are the clients: dataset.client must"),
        ({"time": "kind"}, r"client a has kind of a in column kind, which is no time in a form"),
        (
            {"length": 20, "horizon": 14, "stride": 7},
            r"a has 12 of 60 steps in its test part, but the 3 before a window begins: dataset.hor",
        ),
        ({"group": "hour"}, r"client a is in 60 groups of column hour: one is needed"),
    ],
)
def test_what_does_not_fit_is_one_line(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    curves(tmp_path)
    with refused(DataError, says):
        load(tmp_path, **options)


def test_gaps_and_times_that_stand_twice_are_named(tmp_path: Path) -> None:
    table = curves(tmp_path)["b"]
    for column, value, says in (
        ("value", None, r"client b has nan in column value, row 8: finite numbers"),
        ("hour", table["hour"][6], r"has 2024-01-01 06:00:00 and then 2024-01-01 06:00:00 in col"),
        (
            "hour",
            "2024-01-02 20:15:00",
            r"06:00:00 and then 2024-01-01 08:00:00 in column hour, which is",
        ),
        (
            "hour",
            "noon",
            r"in column hour, which is no time in a form that is known: 'dataset.time_format=",
        ),
        ("hour", None, r"client b has no time in a row of column hour"),
    ):
        table[column] = [value if row == 7 else kept for row, kept in enumerate(table[column])]
        table.to_csv(tmp_path / "b.csv")
        with pytest.raises(DataError, match=says):
            load(tmp_path, time="hour")
    with pytest.raises(DataError, match=r"row 8: fill it"):
        load(tmp_path / "b.csv", client="hour")
    with pytest.raises(DataError, match=r"b.csv is one file: dataset.client must be the column"):
        load(tmp_path / "b.csv")
    with pytest.raises(
        DataError,
        match=r"nowhere not found: set dataset.path to a .csv or .parquet file, or a folder",
    ):
        load(tmp_path / "nowhere")


def test_odd_files_neither_lose_nor_multiply_nor_shift_rows(tmp_path: Path) -> None:
    hours = pd.date_range("2024-01-01", periods=40, freq="h")
    table = pd.DataFrame({"hour": hours, "value": np.arange(40.0)})
    plain = tmp_path / "plain"
    plain.mkdir()
    table.to_csv(plain / "a.csv", index=False)
    expected = load(plain, time="hour")
    halves = pd.concat([table[:20], table[20:].reset_index(drop=True)])  # two rows are called 0
    berlin = hours.tz_localize("Europe/Berlin") + pd.Timedelta(days=89, hours=10)  # its summer time
    for number, odd in enumerate(
        (halves, table.set_index("hour"), table.assign(hour=berlin), table.assign(hour=hours.date))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        odd.to_parquet(folder / "a.parquet")
        time = None if number == 3 else "hour"
        data = load(folder, time=time)
        assert torch.equal(data.x_train, expected.x_train)
        assert torch.equal(data.y_test, expected.y_test)
    days = pd.date_range("2024-01-01", periods=40, freq="D").strftime("%d.%m.%Y")
    (tmp_path / "days").mkdir()
    table.assign(hour=days)[::-1].to_csv(tmp_path / "days" / "a.csv", index=False)
    data = load(tmp_path / "days", time="hour")
    assert torch.equal(data.y_test, expected.y_test)
    (tmp_path / "0" / "a.parquet").unlink()
    for number, text in enumerate((table.assign(hour=berlin), table)):
        text.to_csv(tmp_path / "0" / f"{number}.CSV", sep=";", decimal=",", index=False)
    options = {"time": "hour", "separator": ";", "decimal": ","}
    data = load(tmp_path / "0", **options)
    assert data.names.clients == ("0", "1")
    assert not data.remarks
    for name in ("2.csv.gz", "3.xlsx"):
        (tmp_path / "0" / name).touch()
    (remark,) = load(tmp_path / "0", **options).remarks
    assert remark.endswith("is no .csv or .parquet file: 2.csv.gz, 3.xlsx")
    assert torch.equal(data.y_train, expected.y_train.repeat(2, 1))
    with pytest.raises(DataError, match=r"column, hour;value: 'dataset.separator=\";\"' reads it"):
        load(tmp_path / "0", time="hour")
    table.set_index("hour").assign(value=np.nan).to_parquet(tmp_path / "1" / "a.parquet")
    with pytest.raises(DataError, match=r"client a has nan in column value, row 1: finite"):
        load(tmp_path / "1")
    table.to_parquet(plain / "a.parquet")
    with pytest.raises(DataError, match=r"has two files of client a, such as a.parquet: one is"):
        load(plain)
    (plain / "a.parquet").unlink()
    (plain / "a.csv").write_text("value,cold\n" + "".join(f"{h},{h},7\n" for h in range(40)))
    with pytest.raises(DataError, match=r"has a row with more fields than its first line names"):
        load(plain)


def test_clients_of_one_file_are_words(tmp_path: Path) -> None:
    parts = [
        pd.DataFrame({"value": first + np.arange(40.0), "who": who, "kind": kind})
        for first, who, kind in ((0, "07", "NA"), (100, "7", " old"), (200, "NA", "old "))
    ]
    parts[1].loc[20:, "who"] = "7 "
    pd.concat(parts).to_csv(tmp_path / "one.csv", index=False)
    data = load(tmp_path / "one.csv", client="who", group="kind")
    assert data.names.clients == ("07", "7", "NA")
    assert data.names.groups == ("NA", "old")
    assert data.group.tolist() == [0, 1, 1]
    assert data.owner is not None
    assert data.y_train[data.owner == 1].min() == 104
    parts[0].loc[3, "kind"] = None
    pd.concat(parts).to_csv(tmp_path / "one.csv", index=False)
    with pytest.raises(DataError, match=r"client 07 has no group in a row of column kind: fill it"):
        load(tmp_path / "one.csv", client="who", group="kind")


def test_a_constant_fraction_is_not_scaled_by_its_rounding(tmp_path: Path) -> None:
    tariff = np.where(np.arange(100) < 75, 0.1, 0.3)  # whose mean over 75 hours is not 0.1
    pd.DataFrame({"value": np.arange(100), "tariff": tariff}).to_csv(tmp_path / "a.csv")
    data = load(tmp_path, features=["tariff"])
    assert data.x_train[:, 0, 1].abs().max() < 1e-6
    assert data.x_test[:, 0, 1].max() == pytest.approx(0.2)


def test_targets_of_a_counter_keep_their_differences(tmp_path: Path) -> None:
    readings = 1e9 + np.arange(100.0)  # float32 has steps of 64 there
    pd.DataFrame({"value": readings}).to_csv(tmp_path / "a.csv", index=False)
    data = load(tmp_path)
    assert data.y_train[3].tolist() == [1e9 + 7, 1e9 + 8]
    assert data.y_test.dtype == torch.float64
    (fed,) = federate(data, Natural(), [0], torch.device("cpu"), task=Regression()).values()
    steps = fed.pool.y[fed.train.index.long()][:, 0].diff()  # standardised
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-4, atol=1e-6)
    assert float(steps[0]) > 0


@pytest.mark.parametrize("change", ["gap", "jitter", "order", "none"])
def test_windows_over_a_gap_are_told(change: str, tmp_path: Path) -> None:
    hours = pd.Series(pd.date_range("2024-03-30", periods=40, freq="h"))
    for client in "ab":
        own = hours.copy()
        if client == "b" and change == "gap":
            own[20:] += pd.Timedelta(hours=1)
        if client == "b" and change == "jitter":
            own[7] += pd.Timedelta(seconds=3)
        if client == "b" and change == "order":
            own = own.sample(frac=1, random_state=0).reset_index(drop=True)
        table = pd.DataFrame({"hour": own, "value": np.arange(40.0)})
        table.to_csv(tmp_path / f"{client}.csv", index=False)
    remarks = load(tmp_path).remarks
    if change == "none":
        assert not remarks
        return
    (remark,) = remarks
    assert "in b, which is not its usual step: windows reach over it; dataset.time=hour" in remark
    if change == "gap":
        assert "from 2024-03-30 19:00:00 to 2024-03-30 21:00:00 in b" in remark


def test_windows_stay_in_their_block_and_every_seed_tests_others(tmp_path: Path) -> None:
    curves(tmp_path)
    data = load(tmp_path, time="hour", normalise="none", blocks=5, test_share=0.2)
    feds = [build(data, Natural(), seed) for seed in range(6)]
    tested = []
    for fed in feds:
        for client, (first, steps) in enumerate(((1000, 60), (0, 100))):
            hours = {}
            for side, split in (("train", fed.train), ("test", fed.test)):
                rows = split.of_client(client)
                past, ahead = fed.pool.inputs(rows)[:, 0, 0], fed.pool.y[rows]
                whole = torch.cat([past, ahead], 1) - first
                assert torch.equal(whole[:, 1:] - whole[:, :-1], torch.ones(len(whole), 5))
                blocks = whole // (steps / 5)
                assert torch.equal(blocks, blocks[:, :1].expand_as(blocks))  # of one block each
                hours[side] = {*whole.flatten().tolist()}
                if side == "test":
                    tested.append((client, *sorted({*blocks.flatten().tolist()})))
            assert not hours["train"] & hours["test"]
            assert len(hours["test"]) == steps / 5
    assert len({*tested}) > 4


def test_blocks_begin_where_windows_do_and_a_short_series_is_refused(tmp_path: Path) -> None:
    hours = np.arange(24 * 13)
    pd.DataFrame({"value": hours % 24.0}).to_csv(tmp_path / "a.csv", index=False)
    options: dict[str, Any] = {"length": 24, "horizon": 24, "stride": 24, "normalise": "none"}
    data = load(tmp_path, blocks=4, **options)
    every = torch.cat([data.y_train, data.y_test])
    assert torch.equal(every, torch.arange(24.0).expand(len(every), 24))
    with pytest.raises(DataError, match=r"7 blocks of dataset\.length plus"):
        load(tmp_path, blocks=7, **options)

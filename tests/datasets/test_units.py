"""Rows of one patient stay on one side of every split, and are told of where nobody says so."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedclust.core.federation import build
from fedclust.core.types import Dataset, Split
from fedclust.core.validation import apart
from fedclust.core.verbs import Partition
from fedclust.datasets.csv import Csv
from fedclust.helpers.errors import ConfigError, DataError
from fedclust.helpers.rng import Stream
from fedclust.partitions.dirichlet import DirichletLabels
from fedclust.partitions.iid import IID
from fedclust.partitions.natural import Natural

PATIENTS, VISITS, SITES = 80, 5, 4
RNG = np.random.default_rng(0)
PATIENT = np.arange(PATIENTS).repeat(VISITS)
TABLE = pd.DataFrame(
    {
        "x": RNG.normal(size=len(PATIENT)),
        "label": (PATIENT % 16 < 4).astype(int),  # of a patient: a quarter of those of every site
        "patient_id": PATIENT + 100,
        "site": PATIENT % SITES,
    }
).sample(frac=1, random_state=0)


def load(folder: Path, table: pd.DataFrame = TABLE, **options: Any) -> Dataset:
    table.to_csv(folder / "t.csv", index=False)
    return Csv(path=str(folder / "t.csv"), **{"client": "site", **options}).load()


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("partition", "test_share"),
    [
        (Natural(), 0.2),
        (Natural(train_fraction=0.8), 0),
        (IID(num_clients=5), 0.2),  # deals the rows of a patient out to several clients
        (DirichletLabels(num_clients=5, alpha=1.0), 0.2),
    ],
    ids=["natural", "cut", "iid", "dirichlet"],
)
@pytest.mark.parametrize("data_seed", [None, 3])
def test_no_unit_is_on_two_sides_and_shares_are_as_asked(
    partition: Partition, test_share: float, data_seed: int | None, tmp_path: Path
) -> None:
    dataset = load(tmp_path, unit="patient_id", test_share=test_share, data_seed=data_seed)
    assert dataset.names.features == ("x",)
    assert not dataset.remarks
    for seed in range(2):
        fed = build(dataset, partition, seed, validation=0.25)
        rows = {name: split.index.long() for name, split in fed.splits.items()}
        units = [set(dataset.unit[index].tolist()) for index in rows.values()]
        assert [one & other for one, other in combinations(units, 2)] == [set()] * 3
        assert len(rows["test"]) == 0.2 * len(TABLE)
        if isinstance(partition, Natural):
            assert fed.test.count.tolist() == [20] * SITES
            assert fed.validation.count.tolist() == [20] * SITES
            if test_share:  # one patient in four is ill
                ill = [int(fed.pool.y[fed.test.of_client(i)].sum()) for i in range(SITES)]
                assert ill == [VISITS] * SITES
        else:
            assert 0.1 < len(rows["validation"]) / (0.8 * len(TABLE)) < 0.3


def test_units_of_unlike_sizes_come_nearest_and_one_stays(tmp_path: Path) -> None:
    unit = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 4, 0])  # unit 0 is of two clients
    split = Split(torch.arange(12, dtype=torch.int32), torch.tensor([0, 7, 8, 12]))
    wanted = torch.tensor([3, 1, 2])
    for seed in range(5):
        gone = apart(split, torch.zeros(12).long(), wanted, Stream.of(seed, "test"), unit)
        whole = [bool(gone[unit == one].all()) or not gone[unit == one].any() for one in range(5)]
        assert all(whole)
        assert gone[:7].sum() in (3, 4)  # unit 0 or 1
        assert not gone[7]  # a client's only unit
        assert gone[8:11].sum() in (1, 2)
        two = Split(torch.arange(9, dtype=torch.int32), torch.tensor([0, 9]))
        large = torch.tensor([0] * 5 + [1] * 4)  # either is far more than is wanted
        given = apart(two, large * 0, torch.tensor([1]), Stream.of(seed, "test"), large)
        assert given.sum() in (4, 5)


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({}, {}, "are in training and test of one client: dataset.unit=patient_id keeps"),
        ({}, {"exclude": ["patient_id"]}, "dataset.unit=patient_id keeps them together"),
        ({}, {"test_share": 0}, "80 of 80 have several rows in one client, which may be in"),
        (
            {"patient_id": TABLE["patient_id"].map("P{:03d}".format)},
            {"exclude": ["patient_id"]},
            "are in training and test of one client",
        ),
        ({"part": np.where(TABLE.index % 5, "train", "test")}, {"split": "part"}, "80 of 80 are"),
        ({"part": np.where(PATIENT[TABLE.index] % 8, "train", "test")}, {"split": "part"}, None),
        ({"patient_id": TABLE["site"] + 100}, {}, None),  # of a hospital
        ({"site": TABLE["patient_id"] % 20, "patient_id": TABLE["patient_id"] % 20}, {}, None),
        ({"patient_id": TABLE.index % 7}, {}, None),  # of a kind
        ({}, {"unit": "patient_id"}, None),
    ],
)
def test_keys_that_come_again_on_the_other_side_are_told(
    change: dict[str, Any], options: dict[str, Any], says: str | None, tmp_path: Path
) -> None:
    table = TABLE.assign(**change)
    remarks = [one for one in load(tmp_path, table, **options).remarks if "rows each" in one]
    assert len(remarks) == (says is not None)
    if says is not None:
        assert "t.csv: patient_id has 5 rows each, and " in remarks[0]
        assert says in remarks[0]


def test_the_number_of_divided_units_is_right(tmp_path: Path) -> None:
    dataset = load(tmp_path, exclude=["x"])
    (remark,) = (one for one in dataset.remarks if "rows each" in one)
    place = [dataset.names.features.index("patient_id")]
    sides = (set(x[:, place].flatten().tolist()) for x in (dataset.x_train, dataset.x_test))
    assert f"and {len(set.intersection(*sides))} of 80 are in" in remark


def test_what_divides_units_is_refused_in_one_line(tmp_path: Path) -> None:
    part = {"part": np.where(TABLE.index % 5, "train", "test")}
    divided = load(tmp_path, TABLE.assign(**part), unit="patient_id", split="part")
    with pytest.raises(ConfigError, match=r"dataset.unit=.* null where 80 units would be in train"):
        build(divided, Natural(), 0)
    with pytest.raises(DataError, match=r"has no column person, which dataset.unit names"):
        load(tmp_path, unit="person")
    gap = TABLE.assign(patient_id=TABLE["patient_id"].where(TABLE.index != 7))
    with pytest.raises(DataError, match="has no value in column patient_id"):
        load(tmp_path, gap, unit="patient_id")
    dataset = load(tmp_path, unit="patient_id")
    with pytest.raises(ConfigError, match="a smaller share, since units of client"):
        build(dataset, IID(num_clients=100), 0, validation=0.6)


def test_units_of_one_to_three_rows_are_told_too_and_what_keeps_them_together(
    tmp_path: Path,
) -> None:
    drawn = np.random.default_rng(0)
    who = np.repeat(np.arange(100, 300), drawn.integers(1, 4, 200))
    drawn.shuffle(who)
    rows = {"patient_id": who, "x": drawn.normal(size=len(who)), "y": who % 2, "c": who % 4}
    path = tmp_path / "visits.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    assert len(who) < 2.2 * 200, "fewer than about two rows each"
    for given in ({}, {"exclude": ["patient_id"]}):
        told = Csv(path=str(path), label="y", client="c", **given).load().remarks
        assert any("dataset.unit=patient_id keeps them together" in one for one in told)
        assert not any("number of the row" in one for one in told)
    assert Csv(path=str(path), label="y", client="c", unit="patient_id").load().remarks == ()

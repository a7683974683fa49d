"""What tables hold that is no input, no class and no client of its own, and how they are scaled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused

from fedclust.config.data import federate
from fedclust.config.schema import relevant
from fedclust.core.federation import build, summary, write_table
from fedclust.core.types import Dataset, Federation
from fedclust.datasets.csv import Csv
from fedclust.datasets.npz import Npz
from fedclust.helpers.errors import ConfigError, DataError, UserError, typed
from fedclust.partitions.from_file import FromFile
from fedclust.partitions.iid import IID
from fedclust.partitions.natural import Natural

ROWS = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(20, 80, ROWS),
        "chol": RNG.normal(200, 30, ROWS).round(1),
        "label": RNG.integers(0, 2, ROWS),
        "who": [f"h{i % 3}" for i in range(ROWS)],
    }
)
CPU = torch.device("cpu")


def load(table: pd.DataFrame, folder: Path, *, index: bool = False, **options: Any) -> Dataset:
    table.to_csv(folder / "t.csv", index=index)
    return Csv(path=str(folder / "t.csv"), client="who", **options).load()


@pytest.mark.full
@pytest.mark.parametrize(
    ("more", "index"),
    [
        ({}, True),  # "Unnamed: 0"
        ({"index": range(5, ROWS + 5)}, False),
        ({"Index": [i % 20 for i in range(ROWS)]}, False),  # of tables that were joined
        ({"__index_level_0__": range(ROWS)}, False),
        ({"nummer": RNG.permutation(ROWS) + 1}, False),
        ({"outcome": TABLE["label"].map({0: "no", 1: "yes"})}, False),
        ({"twice": 1 - TABLE["label"]}, False),
    ],
    ids=lambda one: "/".join(one) if isinstance(one, dict) else str(one),
)
def test_row_numbers_and_copies_of_the_label_are_no_inputs(
    more: dict[str, Any], index: bool, tmp_path: Path
) -> None:
    dataset = load(TABLE.assign(**more), tmp_path, index=index)
    assert dataset.names.features == ("age", "chol")
    (remark,) = dataset.remarks
    why = "repeats the label" if {"outcome", "twice"} & set(more) else "numbers the rows"
    assert f"t.csv: column {next(iter(more), 'Unnamed: 0')} {why} and is no input" in remark
    assert "dataset.exclude=[] keeps every column" in remark
    if "outcome" not in more:  # words
        assert load(TABLE.assign(**more), tmp_path, index=index, exclude=[]).shape == (3,)
        some = load(TABLE.assign(**more), tmp_path, index=index, exclude=["age"])
        (remark,) = some.remarks
        assert some.shape == (2,)
        column = next(iter(more), "Unnamed: 0")
        assert f"{column} {why} and is an input all the same; " in remark
        assert f"{typed('dataset.exclude', ['age', column])} leaves it out, too" in remark


def test_a_measurement_called_index_is_an_input_and_an_empty_column_is_none(tmp_path: Path) -> None:
    table = TABLE.assign(index=RNG.integers(0, 11, ROWS) / 10, level_0=5)
    dataset = load(table, tmp_path)
    assert dataset.names.features == ("age", "chol", "index", "level_0")
    assert not dataset.remarks
    text = "\n".join(f"{line}," for line in TABLE.to_csv(index=False).split())
    (tmp_path / "t.csv").write_text(text)  # a comma at the end of every line
    found = Csv(path=str(tmp_path / "t.csv"), client="who").load()
    assert found.names.features == ("age", "chol")
    assert "column Unnamed: 4 is empty and is no input" in found.remarks[0]


@pytest.mark.parametrize(
    ("more", "options", "says"),
    [
        # of a patient with several rows
        ({"patient_id": TABLE["label"] * 1000 + np.arange(ROWS) // 4}, {}, "column patient_id"),
        # a copy with a gap, and with wrong rows
        ({"leak": TABLE["label"].where(TABLE.index > 0)}, {"fill": "median"}, "column leak"),
        ({"leak": TABLE["label"] ^ (TABLE.index == 7)}, {}, "in all but 1 row"),
        # codes without an order
        ({"code": TABLE["label"] * 2 + 3 * (TABLE.index % 2)}, {}, "column code"),
        (
            {"lab": TABLE["age"].where(TABLE["label"] == 1)},
            {"fill": "indicator"},
            "“lab is missing”",
        ),
    ],
    ids=["patient", "gap", "wrong", "codes", "missing"],
)
def test_what_nearly_tells_the_classes_apart_is_named(
    more: dict[str, Any], options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    remarks = load(TABLE.assign(**more), tmp_path, **options).remarks
    # of a patient it is told besides that rows are on both sides
    (remark,) = (one for one in remarks if "dataset.unit" not in one)
    assert says in remark
    assert "alone tells the classes apart" in remark
    assert not load(TABLE.assign(noise=RNG.integers(0, 3, ROWS)), tmp_path).remarks


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (
            np.arange(ROWS) + 5 * (np.arange(ROWS) > 30),
            True,
        ),  # of rows, of which some were left out
        (np.arange(ROWS) % 30, True),  # of two files that were joined
        (np.arange(ROWS) % 10, False),  # days of a study, 0 to 9 of every person
        (1960 + np.arange(ROWS) // 6, False),  # years in order
    ],
    ids=["rows", "files", "days", "years"],
)
def test_a_counter_that_begins_anew_is_no_number_of_the_row(
    column: Any, told: bool, tmp_path: Path
) -> None:
    remarks = load(TABLE.assign(days=column), tmp_path).remarks
    assert ["days, an input, looks like a number of the row" in one for one in remarks] == [
        True
    ] * told


def test_numbers_that_follow_the_target_are_named(tmp_path: Path) -> None:
    celsius = RNG.normal(20, 5, ROWS).round(1)
    more = {"fahrenheit": (celsius * 1.8 + 32).round(0), "square": np.exp(celsius / 5)}
    table = TABLE.assign(target=celsius, **more, noise=celsius + RNG.normal(0, 1, ROWS))
    table.to_csv(tmp_path / "t.csv", index=False)
    how: dict[str, Any] = {"label": "target", "client": "who"}
    found = Csv(path=str(tmp_path / "t.csv"), **how).load("numbers")
    assert ["rank correlation" in remark for remark in found.remarks] == [True, True]
    assert all(name in "".join(found.remarks) for name in more)


@pytest.mark.parametrize(("value", "odd"), [(-999, True), (999, True), (-9, False), (120, False)])
def test_numbers_that_stand_for_gaps_are_named(value: int, odd: bool, tmp_path: Path) -> None:
    ages = TABLE["age"].where(TABLE.index % 9 > 0, value)
    remarks = load(TABLE.assign(age=ages), tmp_path).remarks
    assert [f"has {value} in 7 rows, far from all else" in one for one in remarks] == [True] * odd


def test_rows_that_stand_several_times_are_told(tmp_path: Path) -> None:
    thrice = pd.concat([TABLE] * 3, ignore_index=True)
    (remark,) = load(thrice, tmp_path).remarks
    assert f"{3 * ROWS} of {3 * ROWS} rows stand more than once" in remark
    split = ["train"] * ROWS + ["test"] * ROWS
    twice = pd.concat([TABLE] * 2, ignore_index=True).assign(part=split)
    (remark,) = load(twice, tmp_path, split="part").remarks
    assert f"{ROWS} of {ROWS} test examples stand among the training examples" in remark
    other = twice.assign(label=twice["label"] ^ (twice["part"] == "test"))
    assert not load(other, tmp_path, split="part").remarks  # with another target
    coarse = TABLE.assign(age=TABLE["age"] > 60, chol=0.0)  # equal rows are no copies there
    assert not load(coarse, tmp_path).remarks


def test_points_between_thousands_are_refused(tmp_path: Path) -> None:
    text = TABLE.assign(chol=["1.500" if i % 2 else "999,5" for i in range(ROWS)])
    text.to_csv(tmp_path / "t.csv", index=False, sep=";")
    how: dict[str, Any] = {"separator": ";", "decimal": ",", "client": "who"}
    with pytest.raises(DataError, match=r"has 1\.500 in column chol, row 2: with .dataset.decimal"):
        Csv(path=str(tmp_path / "t.csv"), **how).load()


def test_a_spreadsheet_by_another_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(DataError, match="is an archive or a spreadsheet"):
        Csv(path=str(tmp_path / "t.csv")).load()


def test_an_index_of_parquet_is_no_input(tmp_path: Path) -> None:
    table = TABLE.drop(columns="who").sample(frac=1, random_state=1).reset_index()
    table.to_parquet(tmp_path / "t.parquet")
    dataset = Csv(path=str(tmp_path / "t.parquet")).load()
    assert dataset.names.features == ("age", "chol")


def test_columns_are_left_out_by_name_and_suspects_are_named(tmp_path: Path) -> None:
    suspects = TABLE.assign(
        patient_id=RNG.integers(10**6, 10**7, ROWS), severity=3 * TABLE["label"] + RNG.random(ROWS)
    )
    dataset = load(suspects, tmp_path)
    assert [remark.split(":", 2)[2].split(",")[0] for remark in dataset.remarks] == [
        " column patient_id",
        " column severity",
    ]
    assert "alone tells the classes apart" in dataset.remarks[1]
    left = load(suspects, tmp_path, exclude=["patient_id", "severity"])
    assert (left.names.features, left.remarks) == (("age", "chol"), ())
    with pytest.raises(DataError, match=r"no column id, which dataset.exclude names"):
        load(suspects, tmp_path, exclude=["id"])
    with pytest.raises(ConfigError, match=r"dataset.exclude=\['age'\] is not allowed: null with"):
        load(suspects, tmp_path, exclude=["age"], features=["chol"])


def test_blanks_around_words_make_no_class_or_client(tmp_path: Path) -> None:
    words = TABLE["label"].map({0: "no", 1: "yes"})
    words[3], words[7] = words[3] + " ", "\t" + words[7]
    who = TABLE["who"].where(TABLE.index % 7 > 0, TABLE["who"] + " ")
    dataset = load(TABLE.assign(label=words, who=who), tmp_path)
    assert dataset.names.classes == ("no", "yes")
    assert dataset.names.clients == ("h0", "h1", "h2")
    assert len(dataset.remarks) == 2
    assert "column label: blanks around words are left out" in dataset.remarks[0]
    small = load(TABLE.assign(who=who.replace("h1", "H0")), tmp_path)
    assert "'H0' and 'h0' differ in capitals or blanks only" in small.remarks[1]
    assert small.names.clients == ("H0", "h0", "h1", "h2")


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,label,x\n1,0,2\n2,1,3\n")
    with pytest.raises(DataError, match="has several columns named x: give each a name"):
        Csv(path=str(tmp_path / "t.csv")).load()


def test_byte_order_marks_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(b"\xef\xbb\xbflabel;x\n0;1,5\n1;2,5\n0;3,5\n1;4,25\n")
    with pytest.raises(DataError, match=r"a single column, label;x: 'dataset.separator=\";\"'"):
        Csv(path=str(file)).load()
    given = {"path": str(file), "separator": ";", "normalise": "none", "test_share": 0.5}
    with pytest.raises(
        DataError, match=r"numbers with commas in column x: 'dataset.decimal=\",\"'"
    ):
        Csv(**given).load()
    dataset = Csv(**given, decimal=",").load()
    both = torch.cat([dataset.x_train, dataset.x_test]).flatten().sort().values
    assert both.tolist() == [1.5, 2.5, 3.5, 4.25]
    file.write_text("label\tx\n0\t1\n1\t2\n0\t3\n")
    for sign in ("\\t", "\t"):
        assert Csv(path=str(file), separator=sign).load().shape == (1,)
    with pytest.raises(ConfigError, match=r"dataset.decimal=; is not allowed: another sign"):
        Csv(path=str(file), separator=";", decimal=";")


def test_all_that_is_wrong_with_columns_is_told_at_once(tmp_path: Path) -> None:
    odd = TABLE.assign(sex="m", when="2020-01-31", ca=np.where(TABLE.index % 3, 1.0, np.nan))
    odd["chol"] = odd["chol"].where(odd.index != 4)
    odd["age"] = odd["age"].astype(object).where(odd.index != 5, "old")
    with refused(DataError) as error:
        load(odd, tmp_path)
    for part in (
        "dates in column when (2020-01-31 in row 1)",
        "old in column age, row 6: features must be numbers",
        "words in column sex (m in row 1)",
        "no value in columns ca (20 rows), chol (1 row), first in row 1: dataset.fill=median",
        "dataset.exclude or dataset.features leaves columns out",
    ):
        assert part in str(error.value)


def test_several_columns_name_a_client(tmp_path: Path) -> None:
    table = TABLE.assign(lea=np.arange(ROWS) % 2)
    table.to_csv(tmp_path / "t.csv", index=False)
    dataset = Csv(path=str(tmp_path / "t.csv"), client=["lea", "who"], test_share=0).load()
    assert dataset.names.clients == ("0/h0", "0/h1", "0/h2", "1/h0", "1/h1", "1/h2")
    assert dataset.names.features == ("age", "chol")
    assert dataset.owner[:4].tolist() == [0, 4, 2, 3]


def test_a_class_of_test_rows_only_is_refused(tmp_path: Path) -> None:
    part = np.where(TABLE.index < 40, "train", "test")
    label = np.where(TABLE.index == 50, "rare", TABLE["label"].map({0: "no", 1: "yes"}))
    with pytest.raises(DataError, match="has test rows of class rare, but none to train on"):
        load(TABLE.assign(part=part, label=label), tmp_path, split="part")


def test_a_class_that_a_draw_leaves_to_tests_only_is_told(tmp_path: Path) -> None:
    label = np.where(TABLE.index == 50, "N/A", TABLE["label"].map({0: "no", 1: "yes"}))
    dataset = load(TABLE.assign(label=label), tmp_path, test_share=0.5)
    assert dataset.remarks[0].endswith("t.csv, column label: 'N/A' is a name like any other")
    feds = federate(dataset, Natural(), range(6), CPU)
    said = [line for fed in feds.values() for line in fed.remarks[1:]]
    rare = [s for s, fed in feds.items() if 0 not in fed.pool.y[fed.train.index.long()]]
    assert 0 < len(rare) < 6
    assert said == [f"t: nobody trains on class N/A in seed {s}, but it is tested" for s in rare]


def test_clients_without_tests_are_told(tmp_path: Path) -> None:
    """Each of the clients, but the first, has rows for training alone."""
    first = TABLE["who"].eq(TABLE["who"].iloc[0])
    part = np.where(first & (TABLE.index % 2 == 1), "test", "train")
    dataset = load(TABLE.assign(part=part), tmp_path, split="part")
    (fed,) = federate(dataset, Natural(), range(1), CPU).values()
    number = fed.num_clients
    said = (
        f"t: {number - 1} of {number} clients have no test examples, and only the others are tested"
    )
    assert said in fed.remarks


def test_every_client_tests_on_its_classes_by_their_shares(tmp_path: Path) -> None:
    table = pd.concat([TABLE] * 5, ignore_index=True).assign(
        label=np.arange(300) // 3 % 5 == 0, who=[f"h{i % 3}" for i in range(300)]
    )
    for seed in range(5):  # 100 rows and 20 of the class in each client
        dataset = load(table, tmp_path, data_seed=seed)
        assert dataset.test_owner is not None
        for client in range(3):
            assert int(dataset.y_test[dataset.test_owner == client].sum()) == 4


@pytest.mark.full
@pytest.mark.parametrize("share", [0.2, 0.6])
@pytest.mark.parametrize("rare", [2, 3, 5])
def test_a_rare_class_is_on_both_sides_where_a_client_has_two(
    rare: int, share: float, tmp_path: Path
) -> None:
    table = pd.concat([TABLE] * 2, ignore_index=True)  # 40 rows of each client
    table["label"] = np.where(table.index // 3 < rare, "ill", "well")
    table.loc[table["who"] == "h2", "label"] = ["ill"] + ["well"] * 39
    for seed in range(10):
        dataset = load(table, tmp_path, data_seed=seed, test_share=share)
        assert dataset.owner is not None
        assert dataset.test_owner.bincount().tolist() == [40 * share] * 3
        for owner, y in ((dataset.owner, dataset.y_train), (dataset.test_owner, dataset.y_test)):
            ill = [int((y[owner == client] == 0).sum()) for client in range(2)]
            assert min(ill) >= 1
    one = table[table["who"] == "h0"].assign(label=np.arange(40) // 2)  # more classes than rows
    some = load(one, tmp_path, data_seed=0)
    assert (len(some.y_train), len(some.y_test)) == (32, 8)
    left = set[int]()  # of twenty, eight at a time, whichever a seed leaves
    for seed in range(5):
        left |= set(load(one, tmp_path, data_seed=seed, test_share=0.8).y_train.tolist())
    assert len(left) > 8


def seen(fed: Federation, rows: torch.Tensor) -> torch.Tensor:
    """What a model sees of some rows, [n, F] float64."""
    return fed.pool.inputs(rows.long()).double()


@pytest.mark.parametrize("word", ["mean_std", "client"])
def test_a_large_mean_loses_nothing(word: str, tmp_path: Path) -> None:
    seconds = 1.7e9 + RNG.random(ROWS)
    dataset = load(TABLE.assign(seconds=seconds), tmp_path, normalise=word, test_share=0)
    fed = federate(dataset, Natural(train_fraction=0.5), [0], CPU)[0]
    for rows in [fed.train.index] if word == "mean_std" else map(fed.train.of_client, range(3)):
        values = seconds[rows]
        exact = (values - values.mean()) / values.std()
        np.testing.assert_allclose(seen(fed, rows)[:, 2], exact, atol=1e-4)
    lost = load(TABLE.assign(seconds=seconds), tmp_path, normalise="none")
    assert "column seconds has 60 values, of which float32 tells 1 apart" in lost.remarks[0]


def test_npz_with_a_large_mean_and_whole_numbers_of_64_bits(tmp_path: Path) -> None:
    x = 10**12 + RNG.integers(0, 9, (40, 2))
    y = np.arange(40) % 2
    np.savez(tmp_path / "t.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])
    dataset = Npz(path=str(tmp_path / "t.npz")).load()
    exact = (x[30:] - x[:30].mean(0)) / x[:30].std(0)
    np.testing.assert_allclose(dataset.x_test * dataset.scale + dataset.shift, exact, atol=1e-4)


def check_scaled_by_training_rows(fed: Federation) -> None:
    inputs = seen(fed, fed.train.index)
    np.testing.assert_allclose(inputs.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(inputs.std(0, correction=0), 1, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"test_share": 0}, {"data_seed": 3}])
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_no_test_row_moves_the_scale(
    options: dict[str, Any], validation: float, tmp_path: Path
) -> None:
    dataset = load(TABLE, tmp_path, **options)
    feds = federate(dataset, Natural(train_fraction=0.5), [0, 1], CPU, validation)
    for fed in feds.values():
        check_scaled_by_training_rows(fed)
        rows = torch.cat([split.index for split in fed.splits.values()])
        order = torch.cat([dataset.x_train, dataset.x_test])
        assert torch.equal(order[fed.pool.row(rows).long(), 0].sort().values.int(), ages())
    # a seed alone sees the same
    alone = federate(dataset, Natural(train_fraction=0.5), [1], CPU, validation)[1]
    assert torch.equal(seen(alone, alone.test.index), seen(feds[1], feds[1].test.index))
    assert summary(alone) == summary(feds[1])


def ages() -> torch.Tensor:
    return torch.tensor(sorted(TABLE["age"]), dtype=torch.int32)


def test_a_partition_file_scales_by_its_training_rows(tmp_path: Path) -> None:
    dataset = load(TABLE, tmp_path, test_share=0)
    write_table(tmp_path / "p.parquet", build(dataset, Natural(train_fraction=0.5), 0))
    partition = FromFile(path=str(tmp_path / "p.parquet"), base=IID(num_clients=1))
    feds = federate(dataset, partition, [0, 1], CPU)
    check_scaled_by_training_rows(feds[0])
    assert feds[1].pool.copies == 1  # both seeds have the same training rows


def test_a_scale_that_saw_no_test_row_stays_as_it_is(tmp_path: Path) -> None:
    dataset = load(TABLE, tmp_path, data_seed=0)
    fed = federate(dataset, Natural(), [0, 1], CPU)[1]
    assert torch.equal(fed.pool.scale, dataset.scale)
    assert torch.equal(fed.pool.x[: len(dataset.x_train)], dataset.x_train)


def test_clients_are_scaled_by_their_own_training_rows(tmp_path: Path) -> None:
    far = TABLE.assign(chol=TABLE["chol"] + 1000 * TABLE["who"].str[1].astype(int), one=5)
    far.loc[far["who"] == "h1", "age"] = 40
    fed = federate(load(far, tmp_path, normalise="client"), Natural(), [0, 1], CPU)[1]
    for client in range(3):
        inputs = seen(fed, fed.train.of_client(client))
        np.testing.assert_allclose(inputs.mean(0), 0, atol=1e-5)
        wanted = [0 if client == 1 else 1, 1, 0]  # what is constant becomes 0
        np.testing.assert_allclose(inputs.std(0, correction=0), wanted, atol=1e-5)
        tests = seen(fed, fed.test.of_client(client))
        assert float(tests[:, 1].abs().max()) < 4


def test_clients_scaled_apart_fill_gaps_by_their_own_training_rows(tmp_path: Path) -> None:
    far = TABLE.assign(chol=TABLE["chol"] + 1000 * TABLE["who"].str[1].astype(int))
    far.loc[far.index % 4 == 0, "chol"] = np.nan
    fed = federate(load(far, tmp_path, normalise="client", fill="mean"), Natural(), [0], CPU)[0]
    for client in range(3):  # a mean is 0 where its own rows are scaled, 1,000 away it is not
        inputs = torch.cat([seen(fed, rows.of_client(client)) for rows in fed.splits.values()])
        assert float(inputs[:, 1].abs().max()) < 4
        assert int((inputs[:, 1].abs() < 1e-4).sum()) >= len(inputs) // 5
    none = far.assign(chol=far["chol"].where(far["who"] != "h1"))  # no value: that of all is taken
    fed = federate(load(none, tmp_path, normalise="client", fill="mean"), Natural(), [0], CPU)[0]
    assert bool(seen(fed, fed.train.of_client(1)).isfinite().all())


@pytest.mark.parametrize("normalise", ["mean_std", "client"])
def test_inputs_that_say_whether_something_holds_stay_0_and_1(
    normalise: str, tmp_path: Path
) -> None:
    ward = np.where(TABLE.index % 20 == 1, "rare", np.where(TABLE.index % 2, "a", "b"))
    lab = TABLE["age"].where(TABLE.index % 7 > 0)
    dataset = load(
        TABLE.assign(ward=ward, lab=lab),
        tmp_path,
        categories="onehot",
        fill="indicator",
        normalise=normalise,
    )
    fed = federate(dataset, Natural(), [0], CPU)[0]
    names = dataset.names.features
    trained, tested = (seen(fed, split.index) for split in fed.splits.values())
    whole = dict(zip(names, torch.cat([trained, tested]).T, strict=True))
    for name, often in (("ward=rare", 3), ("ward=a", 27), ("ward=b", 30), ("lab is missing", 9)):
        assert sorted(set(whole[name].tolist())) == [0, 1]
        assert int(whole[name].sum()) == often
    for name in ("age", "chol", "lab"):  # numbers are scaled
        assert float(trained[:, names.index(name)].mean()) == pytest.approx(0, abs=1e-5)


def test_channels_of_a_series_are_scaled_one_by_one(tmp_path: Path) -> None:
    x = RNG.normal(0, 1, (30, 3, 8)) * np.array([1, 100, 0.01])[:, None] + 5
    y = np.arange(30) % 2
    np.savez(tmp_path / "t.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    for word, remarks in (("mean_std", 1), ("by_row", 0)):
        dataset = Npz(path=str(tmp_path / "t.npz"), normalise=word).load()
        inputs = (dataset.x_train * dataset.scale + dataset.shift).double()
        np.testing.assert_allclose(inputs.mean((0, 1, 3)), 0, atol=1e-4)
        np.testing.assert_allclose(inputs.std((0, 1, 3), correction=0), 1, atol=1e-4)
        assert len(dataset.remarks) == remarks
    turned = {"x_train": x[:20].swapaxes(1, 2), "x_test": x[20:].swapaxes(1, 2)}
    np.savez(tmp_path / "turned.npz", **turned, y_train=y[:20], y_test=y[20:])
    (remark,) = Npz(path=str(tmp_path / "turned.npz")).load().remarks
    assert "channels of a series belong first, (N, channels, length)" in remark
    flat = {"x_train": x[:20].reshape(20, -1), "x_test": x[20:].reshape(10, -1)}
    np.savez(tmp_path / "flat.npz", **flat, y_train=y[:20], y_test=y[20:])
    with pytest.raises(ConfigError, match=r"dataset.normalise=by_row is not allowed: mean_std"):
        Npz(path=str(tmp_path / "flat.npz"), normalise="by_row").load()


@pytest.mark.parametrize(
    ("fill", "values"),
    [("median", [2.0]), ("mean", [3.25]), ("most_frequent", [2.0]), ("indicator", [3.25, 1.0])],
)
def test_gaps_become_what_training_rows_say(fill: Any, values: list[float], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "x,z,label,part\n2,1,0,train\n2,2,1,train\n?,3,0,train\n,4,1,train\n1,5,0,train\n"
        "8,6,1,train\n,7,0,test\n900,8,1,test\n"
    )
    given = {"path": str(tmp_path / "t.csv"), "split": "part", "normalise": "none"}
    dataset = Csv(**given, fill=fill).load()
    fed = federate(dataset, IID(num_clients=2), [0, 1], CPU)[1]
    x = fed.pool.x[fed.pool.row(torch.arange(8))]
    at = [list(dataset.names.features).index("x")] + [
        i for i, name in enumerate(dataset.names.features) if name == "x is missing"
    ]
    for row in (2, 3, 6):
        assert x[row, at].tolist() == values
    assert x[7, at[0]] == 900


def test_categories_and_words_that_only_tests_have(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "c,x,label,part\nred,1,0,train\nblue,2,1,train\nred,3,0,train\n,4,1,train\n"
        "green,5,0,test\nblue,6,1,test\n"
    )
    given = {"path": str(tmp_path / "t.csv"), "split": "part", "normalise": "none"}
    dataset = Csv(**given, categories="onehot").load()
    assert dataset.names.features == ("c=blue", "c=green", "c=red", "x")
    x = federate(dataset, IID(num_clients=2), [0], CPU)[0].pool.x[:, :3]
    assert x[:4].tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert x[4:].tolist() == [[0, 0, 0], [1, 0, 0]]  # green is unknown
    (remark,) = dataset.remarks
    assert "column c has no word in 1 row: all its inputs are 0 there" in remark
    with pytest.raises(DataError, match=r"no value in column c \(1 row\), first in row 4"):
        Csv(**given, categories="ordinal").load()
    dataset = Csv(**given, categories="ordinal", fill="mean").load()
    x = federate(dataset, IID(num_clients=2), [0], CPU)[0].pool.x[:, 0]
    assert x.tolist() == pytest.approx([2, 0, 2, 4 / 3, 4 / 3, 0])


def test_advice_keeps_what_is_left_out_already(tmp_path: Path) -> None:
    table = TABLE.assign(patient_id=TABLE["label"] * 1000 + np.arange(ROWS) // 4, nr=range(ROWS))

    def advice(**options: Any) -> list[str]:
        remarks = load(table, tmp_path, **options).remarks
        return [one for one in remarks if "dataset.unit" not in one]

    slip, remark = advice()
    assert "column nr numbers the rows and is no input" in slip
    assert "dataset.exclude=[nr,patient_id] leaves it out" in remark
    (remark,) = advice(exclude=["chol", "nr"])
    assert "dataset.exclude=[chol,nr,patient_id] leaves it out" in remark
    (remark,) = advice(features=["age", "patient_id"])
    assert "dataset.features without patient_id leaves it out" in remark


@pytest.mark.parametrize("data_seed", [None, 3])
def test_one_cut_for_all_seeds_where_the_partition_cuts(
    data_seed: int | None, tmp_path: Path
) -> None:
    dataset = load(TABLE, tmp_path, test_share=0, data_seed=data_seed)
    feds = [build(dataset, Natural(train_fraction=0.8), seed) for seed in (0, 1)]
    one, other = (set(fed.test.index.tolist()) for fed in feds)
    assert (one == other) == (data_seed is not None)
    assert len(one) == 12
    again = build(replace(dataset, cut_seed=4), Natural(train_fraction=0.8), 0)
    assert set(again.test.index.tolist()) != one


def test_a_feature_without_a_training_value_is_named(tmp_path: Path) -> None:
    table = TABLE.assign(chol=np.where(TABLE.index == 7, 1.0, np.nan))
    part = np.where(TABLE.index == 7, "test", "train")
    dataset = load(table.assign(part=part), tmp_path, split="part", fill="mean")
    with pytest.raises(DataError, match="no training row has a value in column chol"):
        federate(dataset, Natural(min_train=1), [0], CPU)


def test_clients_classes_and_groups_keep_their_names(tmp_path: Path) -> None:
    table = TABLE.assign(land=TABLE["who"].map({"h0": "north", "h1": "south", "h2": "north"}))
    few = table[(table["who"] != "h1") | (table.index < 6)]
    fed = build(load(few, tmp_path, group="land", test_share=0.2), Natural(min_train=5), 1)
    names = summary(fed)["names"]
    assert names["clients"] == ["h0", "h2"]
    assert (names["groups"], names["classes"]) == (["north", "south"], ["0", "1"])
    assert names["features"] == ["age", "chol"]
    dealt = build(load(few, tmp_path, exclude=["land"]), IID(num_clients=2), 0)
    assert "clients" not in summary(dealt)["names"]


def test_options_from_before_do_not_change_the_hash() -> None:
    old = {"dataset": {"_target_": "fedclust.datasets.csv.Csv", "path": "a.csv", "label": "y"}}
    later = {"exclude": None, "fill": None, "categories": None, "separator": ",", "decimal": "."}
    assert relevant({"dataset": {**old["dataset"], **later}}) == relevant(old)
    assert relevant({"dataset": {**old["dataset"], **later, "fill": "mean"}}) != relevant(old)
    mine = {"dataset": {"_target_": "mine.Table", "fill": None}}
    assert relevant(mine) == mine


def test_two_clients_of_one_row_cannot_be_scaled_apart(tmp_path: Path) -> None:
    dataset = load(TABLE, tmp_path, normalise="client", test_share=0)
    (tmp_path / "p.csv").write_text("split,client,row\ntrain,0,1\ntrain,1,1\ntest,0,3\ntest,1,4\n")
    partition = FromFile(path=str(tmp_path / "p.csv"), base=IID(num_clients=1))
    with pytest.raises(UserError, match="two clients own one row"):
        federate(dataset, partition, [0], CPU)


def test_targets_of_other_tasks(tmp_path: Path) -> None:
    table = TABLE.assign(stay=RNG.normal(5, 2, ROWS), twice=lambda t: 2 * t["stay"] + 1, dead=0)
    table.loc[::3, "dead"] = 1
    table.to_csv(tmp_path / "t.csv", index=False)
    given = {"path": str(tmp_path / "t.csv"), "client": "who", "data_seed": 0}
    both = Csv(**given, label=["stay", "chol"]).load(targets="numbers")
    assert (both.y_train.dtype, both.y_train.shape[1], both.num_classes) == (torch.float64, 2, 2)
    assert (both.names.targets, both.names.features) == (("stay", "chol"), ("age", "label", "dead"))
    assert both.names.told()[1] == "2 targets (stay, chol)"
    assert "column twice is a target" in both.remarks[0]
    flags = Csv(**given, label=["label", "dead"]).load(targets="flags")
    assert (flags.y_train.dtype, flags.y_train.shape[1]) == (torch.uint8, 2)
    for label, targets, says in (
        ("who", "numbers", "has h0 in column who, row 1, which dataset.label names: this task"),
        ("age", "flags", r"in column age, row 1, which .* this task needs 0 or 1"),
        (["label", "dead"], "classes", r"dataset.label=.* is not allowed: one column with task="),
    ):
        with pytest.raises(UserError, match=says):
            Csv(**given | {"client": None}, label=label).load(targets=targets)


def test_hundreds_of_whole_numbers_are_no_classes(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": RNG.random(500), "charges": np.arange(500) % 390})
    table.to_csv(tmp_path / "t.csv", index=False)
    loader = Csv(path=str(tmp_path / "t.csv"), label="charges")
    with pytest.raises(DataError, match=r"has 390 different whole numbers .* task=regression"):
        loader.load()
    assert loader.load(targets="numbers").y_train.shape == (400, 1)


def test_wards_that_numbers_would_merge_are_words_and_names_that_look_alike_are_told(
    tmp_path: Path,
) -> None:
    halves = ROWS // 2
    wards = load(TABLE.assign(who=["1.10", "1.1"] * halves), tmp_path)
    assert wards.names.clients == ("1.1", "1.10")
    assert load(TABLE.assign(who=["2.0", "10"] * halves), tmp_path).names.clients == ("2", "10")
    assert load(TABLE.assign(who=["2.0", "2"] * halves), tmp_path).names.clients == ("2",)
    many = ["123456789012345.01", "123456789012345.02"]
    assert load(TABLE.assign(who=many * halves), tmp_path).names.clients == tuple(many)
    for other in ("Ko\u0308ln", "Köln\u200b"):
        (remark,) = load(TABLE.assign(who=["Köln", other] * halves), tmp_path).remarks
        assert remark.endswith("look alike, and count as different")


def test_a_column_of_lists_is_refused_in_one_line(tmp_path: Path) -> None:
    TABLE.assign(curve=[[1.0, 2.0]] * ROWS).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"has \[1. 2.\] in column curve, row 1: features must be"):
        Csv(path=str(tmp_path / "t.parquet"), client="who").load()


def test_words_that_alone_tell_the_classes_apart_are_named(tmp_path: Path) -> None:
    made = [f"{'ill' if y else 'well'} {i % 2}" for i, y in enumerate(TABLE["label"])]
    (remark,) = load(TABLE.assign(made=made), tmp_path, categories="onehot").remarks
    assert "column made, an input, alone tells the classes apart; if the label was" in remark
    other = TABLE.assign(made=[f"w{i // 2}" for i in range(ROWS)])
    assert not load(other, tmp_path, categories="onehot").remarks


def test_numbers_with_holes_are_told_as_classes(tmp_path: Path) -> None:
    score = 2 * (TABLE.index.to_numpy() % 6)
    (said,) = (one for one in load(TABLE.assign(label=score), tmp_path).remarks if "classes" in one)
    assert "the 6 numbers of column label, 0, 2, 4" in said
    assert "; task=regression predicts numbers" in said
    for codes in (score // 2, score // 2 + 1, TABLE.index.to_numpy() % 2 * 3):  # as classes are
        remarks = load(TABLE.assign(label=codes), tmp_path).remarks
        assert not [one for one in remarks if "task=regression" in one]


def test_a_time_and_its_event_are_told_as_two_numbers(tmp_path: Path) -> None:
    rows = TABLE.assign(days=RNG.integers(1, 900, len(TABLE)), died=TABLE.index % 2)
    rows.to_csv(tmp_path / "t.csv", index=False)

    def told(*label: str) -> list[str]:
        table = Csv(path=str(tmp_path / "t.csv"), client="who", label=label, exclude=["label"])
        return [one for one in table.load("numbers").remarks if "censoring" in one]

    (said,) = told("days", "died")
    assert "targets days and died, which is 0 or 1, are predicted as two numbers" in said
    assert told("days", "age") == told("days") == []

"""A user's own table, and what is said of one that will not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from torch import Tensor

from fedclust.config.data import federate
from fedclust.core.federation import build, digest, write_table
from fedclust.core.types import Dataset, Federation, Pool, Split
from fedclust.core.verbs import Partition
from fedclust.datasets.csv import Csv
from fedclust.helpers.errors import ConfigError, DataError, UserError
from fedclust.helpers.rng import Stream
from fedclust.partitions.dirichlet import DirichletLabels
from fedclust.partitions.from_file import FromFile
from fedclust.partitions.iid import IID
from fedclust.partitions.label_map import LabelMap
from fedclust.partitions.natural import Natural

TABLE = """age,label,height,who,land,part
1,yes,10,b,north,train
2,no,20,a,south,train
3,yes,30,b,north,test
4,maybe,40,a,south,train
5,no,50,c,north,test
6,no,60,c,north,train
"""
COLUMNS = {"client": "who", "group": "land", "split": "part"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "own.csv").write_text(TABLE)
    return tmp_path / "own.csv"


def test_every_column_has_its_meaning(path: Path) -> None:
    dataset = Csv(path=str(path), normalise="none", **COLUMNS).load()
    assert (dataset.name, dataset.num_classes, dataset.shape) == ("own", 3, (2,))
    assert dataset.x_train.tolist() == [[1, 10], [2, 20], [4, 40], [6, 60]]
    assert dataset.x_test.tolist() == [[3, 30], [5, 50]]
    assert dataset.y_train.tolist() == [2, 1, 0, 1]  # maybe, no, yes
    assert dataset.y_test.tolist() == [2, 1]
    assert dataset.owner.tolist() == [1, 0, 0, 2]
    fed = build(dataset, Natural(), 0)
    assert fed.group.tolist() == [1, 0, 0]
    assert [fed.train.of_client(i).tolist() for i in range(3)] == [[1, 2], [0], [3]]
    assert [fed.test.of_client(i).tolist() for i in range(3)] == [[], [4], [5]]


def test_parquet_holds_the_same_and_features_can_be_chosen(path: Path, tmp_path: Path) -> None:
    pd.read_csv(path).to_parquet(tmp_path / "own.parquet")
    one, two = (
        Csv(path=str(file), features=["height"], **COLUMNS).load()
        for file in (path, tmp_path / "own.parquet")
    )
    assert torch.equal(one.x_train, two.x_train)
    assert torch.equal(one.y_test, two.y_test)
    assert two.x_train.flatten().tolist() == [10, 20, 40, 60]
    seen = two.x_train * two.scale + two.shift
    # mean 32.5, variance (22.5² + 12.5² + 7.5² + 27.5²) / 4 = 368.75
    torch.testing.assert_close(seen[:, 0], (two.x_train[:, 0] - 32.5) / 368.75**0.5)


def test_a_share_is_drawn_from_every_client_and_rounded_up(tmp_path: Path) -> None:
    sizes = {"a": 10, "b": 5, "c": 2, "d": 1}
    who = [name for name, size in sizes.items() for _ in range(size)]
    table = pd.DataFrame({"x": np.arange(18), "label": np.arange(18) % 2, "who": who})
    table.to_csv(tmp_path / "own.csv", index=False)
    given = {"path": str(tmp_path / "own.csv"), "features": ["x"], "normalise": "none"}
    drawn = [Csv(**given, client="who", data_seed=seed).load() for seed in (0, 0, 1)]
    assert drawn[0].test_owner.bincount().tolist() == [2, 1, 1, 1]
    both = torch.cat([drawn[0].x_train, drawn[0].x_test]).flatten().sort().values
    assert both.tolist() == list(range(18))
    assert torch.equal(drawn[0].x_test, drawn[1].x_test)
    assert not torch.equal(drawn[0].x_test, drawn[2].x_test)
    with pytest.raises(DataError, match=r"client d has 1, none of them to train on: partition.min"):
        build(drawn[0], Natural(), 0)
    assert build(drawn[0], Natural(min_train=1), 0).num_clients == 3
    whole = Csv(**given).load()
    assert (len(whole.x_train), len(whole.x_test), whole.owner) == (14, 4, None)
    left = Csv(**given, client="who", test_share=0).load()
    assert (len(left.x_train), len(left.x_test), left.test_owner) == (18, 0, None)
    fed = build(left, Natural(train_fraction=0.5, min_train=1), 0)
    assert fed.train.count.tolist() == [5, 2, 1]


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """A table of 120 rows of four clients, whose only feature is the row's number."""
    rows = np.arange(120)
    table = pd.DataFrame({"x": rows, "label": rows % 3, "who": rows % 4})
    table.to_csv(tmp_path / "numbered.csv", index=False)
    return tmp_path / "numbered.csv"


def rows_of(fed: Federation, split: Split) -> list[int]:
    """The numbers of the table's rows that a split names."""
    return fed.pool.x[fed.pool.images(split.index.long())].flatten().int().tolist()


@pytest.mark.parametrize(
    "partition",
    [
        Natural(),
        IID(num_clients=4),
        DirichletLabels(num_clients=3, min_examples=1),
        LabelMap(base=Natural(), maps=[[0, 1, 2], [1, 2, 0]]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_seed_draws_test_rows_of_its_own(numbered: Path, partition: Partition) -> None:
    given = {"path": str(numbered), "features": ["x"], "normalise": "none"}
    given |= {"test_share": 0.25, "client": "who"}
    dataset = Csv(**given).load()
    feds = federate(dataset, partition, (0, 1, 2), torch.device("cpu"))
    tests = []
    for fed in feds.values():
        learnt, held = rows_of(fed, fed.train), rows_of(fed, fed.test)
        assert sorted(learnt + held) == list(range(120))
        # eight of the thirty rows of every client of the table, whoever owns them now
        assert np.bincount(np.array(held) % 4).tolist() == [8, 8, 8, 8]
        if isinstance(partition, Natural | LabelMap):
            assert [row % 4 for row in held] == fed.test.owner_and_place()[0].tolist()
        owner = fed.train.owner_and_place()[0]
        shift = fed.group[owner].clamp(min=0)  # concept 1 adds one to every label
        right = (torch.tensor(learnt) + shift) % 3
        assert torch.equal(fed.pool.y[fed.train.index.long()], right)
        tests.append(set(held))
    assert tests[0] != tests[1] != tests[2] != tests[0]
    fixed = Csv(**given, data_seed=5).load()
    feds = federate(fixed, partition, (0, 1), torch.device("cpu"))
    once, again = (set(rows_of(fed, fed.test)) for fed in feds.values())
    assert once == again


class Sorted(Natural):
    """A partition of one's own whose pool has the rows by label: its row numbers are its own."""

    def pool(self, dataset: Dataset) -> Pool:
        plain = super().pool(dataset)
        order = plain.y.argsort(stable=True)
        x, y = plain.x[order], plain.y[order]
        return Pool(x=x, y=y, scale=plain.scale, shift=plain.shift, num_classes=3)

    def split(self, dataset: Dataset, stream: Stream) -> tuple[Split, Split, Tensor]:
        rows = torch.arange(120).split(40)  # client k has label k
        return Split.of([one[:30] for one in rows]), Split.of([one[30:] for one in rows]), -ONES


ONES = torch.ones(3, dtype=torch.int64)


def test_the_rows_of_a_pool_in_another_order_stay_as_they_are(numbered: Path) -> None:
    dataset = Csv(path=str(numbered), features=["x"], test_share=0.25, client="who").load()
    fed = build(dataset, Sorted(), 3)
    for split in (fed.train, fed.test):
        owner = split.owner_and_place()[0]
        assert torch.equal(fed.pool.y[split.index.long()], owner)


def test_a_partition_that_a_seed_wrote_names_the_same_rows(numbered: Path) -> None:
    dataset = Csv(path=str(numbered), features=["x"], client="who").load()
    fed = build(dataset, Natural(), 7)
    write_table(numbered.with_name("seed.parquet"), fed)
    read = FromFile(path=str(numbered.with_name("seed.parquet")), base=Natural())
    for seed in (0, 7):
        assert digest(build(dataset, read, seed)) == digest(fed)


def test_all_rows_give_the_scale_where_seeds_draw_their_own(numbered: Path) -> None:
    """The mean of 0 to 119 is 59.5; that of the rows that one draw leaves to train on is not."""
    whole, once = (
        Csv(path=str(numbered), features=["x"], client="who", data_seed=seed).load()
        for seed in (None, 0)
    )
    assert float(-whole.shift / whole.scale) == pytest.approx(59.5)
    left = float(once.x_train.mean())
    assert left != pytest.approx(59.5)
    assert float(-once.shift / once.scale) == pytest.approx(left)


def test_whole_numbers_of_any_length_are_read(path: Path) -> None:
    path.write_text(TABLE.replace("20,a", f"{10**25},a"))
    dataset = Csv(path=str(path), normalise="none", **COLUMNS).load()
    assert dataset.x_train[:, 1].tolist() == [10, pytest.approx(1e25), 40, 60]


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        (TABLE, {"label": "klass"}, "no column klass, which dataset.label names: it has age, lab"),
        (TABLE, {"client": "owner"}, "no column owner, which dataset.client names"),
        (TABLE, {"features": ["weight"]}, "no column weight, which dataset.features names"),
        (TABLE, {"features": []}, "no column left for features"),
        (TABLE, {"features": ["age", "label"]}, "column label among its features"),
        (
            TABLE,
            {},
            "has words in columns who (b in row 1), land (north in row 1), part (train in row",
        ),
        (TABLE, {}, "reads words; dataset.client names the column of the clients;"),
        (TABLE, {"features": ["age"], "split": "land"}, "north in column land, row 1: train or"),
        (TABLE, {"client": "part", "group": "land"}, "client train in the groups north and south"),
        (
            TABLE.replace("yes,10", "yes,"),
            COLUMNS,
            "no value in column height (1 row), first in row 1: dataset.fill=median fills",
        ),
        (TABLE.replace("6,no", "6,"), COLUMNS, "no value in column label, row 6"),
        (
            TABLE.replace("6,no", "6,").replace("20,a,", "20,,"),
            COLUMNS,
            "row 6; in who, row 2: fill",
        ),
        (TABLE.replace("20,a,", "20,,"), COLUMNS, "no value in column who, row 2"),
        (TABLE.replace("yes,10", "yes,inf"), COLUMNS, "inf in column height, row 1: features must"),
        (TABLE.replace("yes,10", "yes,1e300"), COLUMNS, "1e+300 in column height, row 1"),
        (TABLE.replace("yes,10", "yes,ten"), COLUMNS, "has ten in column height, row 1: features"),
        (TABLE.replace("20,a", "1_0,a"), COLUMNS, "has 1_0 in column height, row 2: features"),
        (TABLE.replace("20,a", f"{10**50},a"), COLUMNS, "has 1e+50 in column height, row 2"),
        (TABLE.replace("0,", "e-40,"), COLUMNS, "at most 6e-40 in column height: that is next to"),
        (TABLE.replace("0,", "e-50,"), COLUMNS, "at most 6e-50 in column height: that is next to"),
        (
            TABLE.replace("yes,10", "yes,1.5"),
            {**COLUMNS, "label": "height"},
            "whole numbers; task=regression predicts numbers",
        ),
        (TABLE.replace("train", "test"), COLUMNS, "leaves no row to train on"),
        (TABLE.splitlines()[0], COLUMNS, "holds no row below its first line"),
        ("", {}, "cannot read"),
        ("\x00\x01\x02\n\x00,,,", {}, "holds no text but bytes: is it a table of text?"),
        ("a;label\n1;2\n", {}, "has a single column, a;label: 'dataset.separator=\";\"' reads it"),
        (
            "a,label\n1,2\n",
            {"separator": ";"},
            "column, a,label: 'dataset.separator=\",\"' reads it",
        ),
        ('age,label\n1,"2\n', {}, "cannot read"),
    ],
)
def test_a_table_that_will_not_do_is_one_line(
    table: str, options: dict[str, object], says: str, tmp_path: Path
) -> None:
    (tmp_path / "own.csv").write_text(table)
    with refused(DataError, r"csv: .*own.csv") as error:
        Csv(path=str(tmp_path / "own.csv"), **options).load()  # type: ignore[arg-type]
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"group": "land"}, r"dataset.group=land is not allowed: null without dataset.client"),
        ({"test_share": 0}, r"dataset.test_share=0 is not allowed: above 0 without dataset.client"),
        (
            {"normalise": "unit"},
            r"Csv.normalise=unit is not allowed: one of mean_std, client, none",
        ),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Csv(path="own.csv", **options)  # type: ignore[arg-type]


def test_missing_and_odd_files_are_one_line(tmp_path: Path) -> None:
    for name, says in (("no.csv", "not found: set dataset.path"), ("mixed.parquet", "cannot read")):
        if name != "no.csv":
            (tmp_path / name).write_text("no parquet")
        with refused(UserError, says):
            Csv(path=str(tmp_path / name)).load()
    odd = pd.DataFrame({"x": [1.0, 2.0], "label": [[0, 1], [1]], "who": [1, 2]})
    odd.to_parquet(tmp_path / "odd.parquet")
    with pytest.raises(DataError, match=r"several kinds in column label|features must be numbers"):
        Csv(path=str(tmp_path / "odd.parquet")).load()


def test_names_are_text_and_numbers_keep_their_order(tmp_path: Path) -> None:
    """07 is another client than 7, NA is a name, and 10 comes behind 2 where all are numbers."""
    file = tmp_path / "own.csv"
    file.write_text("x,label,who\n1,2,07\n2,10,7\n3,2,NA\n4,10,007\n5,2,7\n")
    dataset = Csv(path=str(file), client="who", test_share=0, normalise="none").load()
    assert dataset.y_train.tolist() == [0, 1, 0, 1, 0]
    assert dataset.owner.tolist() == [1, 2, 3, 0, 2]  # 007, 07, 7, NA
    file.write_text("x,label,who\n1,no,10\n2,yes,2\n")
    dataset = Csv(path=str(file), client="who", test_share=0, normalise="none").load()
    assert dataset.owner.tolist() == [1, 0]


def test_a_row_with_more_fields_than_names_shifts_nothing(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("x,label\n1,2,0\n3,4,1\n")
    with pytest.raises(DataError, match="more fields than its first line names"):
        Csv(path=str(tmp_path / "own.csv")).load()


def test_blanks_that_matter_are_shown(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("x,label,part\n1,0,tr ain\n3,1,test\n")
    with pytest.raises(DataError, match="has tr ain in column part, row 1: train or test"):
        Csv(path=str(tmp_path / "own.csv"), split="part").load()


def test_numbers_to_predict_are_read_as_inputs_are(tmp_path: Path) -> None:
    table = pd.DataFrame({"dose": [1.5, 2.5, -3.25, 4e-7], "sick": [True, False, True, True]})
    table["label"] = [0.5, 1e-6, -12.75, 3]
    table.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    options: dict[str, Any] = {"path": str(tmp_path / "t.csv"), "separator": ";", "decimal": ","}
    whole: dict[str, Any] = {"test_share": 0.25, "data_seed": 0}
    data = Csv(**options, **whole, label=["label", "dose"]).load("numbers")
    y = torch.cat([data.y_train, data.y_test])
    assert sorted(y[:, 0].tolist()) == sorted(table["label"])
    assert sorted(y[:, 1].tolist()) == sorted(table["dose"])
    flags = Csv(**options, **whole, label=["sick"]).load("flags")
    assert sorted(torch.cat([flags.y_train, flags.y_test]).flatten().tolist()) == [0, 1, 1, 1]
    table.loc[1, "label"] = None
    table.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    with pytest.raises(DataError, match=r"has no value in column label, row 2: fill it"):
        Csv(**options).load("numbers")


def test_an_index_of_parquet_that_is_asked_for_is_a_column(tmp_path: Path) -> None:
    table = pd.DataFrame({"dose": range(8), "label": [0, 1] * 4, "site": ["b", "a"] * 4, "nr": 7})
    table.set_index(["site", "nr"]).to_parquet(tmp_path / "t.PARQUET")
    data = Csv(path=str(tmp_path / "t.PARQUET"), client="site", test_share=0).load()
    assert data.names.clients == ("a", "b")
    assert data.names.features == ("dose",)
    with pytest.raises(DataError, match=r"has no column who, which dataset.client names: it has d"):
        Csv(path=str(tmp_path / "t.PARQUET"), client="who").load()


def test_text_in_another_encoding_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("label,dose,site\n0,1,Köln\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"no text in UTF-8 .*: dataset.encoding=latin-1 r"):
        Csv(path=str(tmp_path / "t.csv")).load()


def test_rows_count_those_of_the_file_where_tests_are_cut_later(tmp_path: Path) -> None:
    part = ["test", "train", "train", "test", "train", "train"] * 2
    table = pd.DataFrame({"x": range(12), "label": [0, 1] * 6, "who": ["b", "a"] * 6, "part": part})
    table.to_csv(tmp_path / "t.csv", index=False)
    given: dict[str, Any] = {"path": str(tmp_path / "t.csv"), "features": ["x"], "client": "who"}
    later = Csv(**given, normalise="none", test_share=0).load()
    for fed in federate(later, Natural(train_fraction=0.5), [0, 1], torch.device("cpu")).values():
        for split in fed.splits.values():
            assert fed.pool.x[split.index.long()].flatten().tolist() == split.index.tolist()
    named = build(Csv(**given, normalise="none", split="part").load(), Natural(), 0)
    order = [row for kind in ("train", "test") for row in range(12) if part[row] == kind]
    assert named.pool.x.flatten().tolist() == order

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from fakes import fake
from refusals import refused

from fedclust.core.federation import build, digest, read_table, write_table
from fedclust.core.verbs import Partition
from fedclust.helpers.errors import DataError, UserError
from fedclust.partitions.femnist10 import Femnist10
from fedclust.partitions.from_file import FromFile
from fedclust.partitions.iid import IID
from fedclust.partitions.rotated import Rotated


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(
    "base",
    [
        Rotated(num_clients=8, num_rotations=4),
        IID(num_clients=9),
        Femnist10(num_clients=10, total=200),
    ],
    ids=["rotated", "iid", "femnist10"],
)
def test_a_written_partition_comes_back_bit_by_bit(
    suffix: str, base: Partition, tmp_path: Path
) -> None:
    dataset = fake(500, 100)
    fed = build(dataset, base, 5)
    path = tmp_path / "partition.parquet"
    write_table(path, fed)
    if suffix == "csv":
        pd.read_parquet(path).to_csv(tmp_path / "partition.csv", index=False)
    again = build(dataset, FromFile(path=str(tmp_path / f"partition.{suffix}"), base=base), 0)
    assert digest(again) == digest(fed)
    assert torch.equal(again.pool.x, fed.pool.x)
    assert torch.equal(again.group, fed.group)


def test_a_table_by_hand(tmp_path: Path) -> None:
    fed = from_table(tmp_path, "1,7,train", "0,3,train", "1,10,test", "1,5,train")
    assert [fed.train.of_client(i).tolist() for i in range(2)] == [[3], [7, 5]]
    assert [fed.test.of_client(i).tolist() for i in range(2)] == [[], [10]]
    assert fed.group.tolist() == [-1, -1]


def test_a_test_row_that_is_a_training_row_is_refused(tmp_path: Path) -> None:
    rows = ("0,0,train", "0,1,train", "1,2,train", "1,1,test")
    with pytest.raises(UserError, match=r"row 1 in a training and a test set \(1 such rows\)"):
        from_table(tmp_path, *rows)
    fed = from_table(tmp_path, *rows, shared=True)
    assert fed.test.of_client(1).tolist() == [1]


def test_two_clients_may_share_a_row(tmp_path: Path) -> None:
    rows = ("0,3,train,-1", "1,3,train,0", "1,4,train,0", "1,9,test,0")
    fed = from_table(tmp_path, *rows, columns="client,row,split,group")
    assert [fed.train.of_client(i).tolist() for i in range(2)] == [[3], [3, 4]]
    assert fed.group.tolist() == [-1, 0]


def test_a_table_without_a_test_row_is_one_line(tmp_path: Path) -> None:
    with refused(DataError, "no client has a test example of dataset=fake") as error:
        from_table(tmp_path, "0,3,train", "1,4,train")
    assert "partition.path" in str(error.value)


def from_table(folder: Path, *rows: str, columns: str = "client,row,split", **options: Any) -> Any:
    """The federation of a table, of a dataset with 8 + 4 examples."""
    path = folder / "mine.csv"
    path.write_text("\n".join([columns, *rows, ""]))
    return build(fake(8, 4), FromFile(path=str(path), base=IID(num_clients=1), **options), 0)


def table(**changes: list[object]) -> pd.DataFrame:
    columns = {
        "split": ["train", "train", "test"],
        "client": [0, 1, 1],
        "row": [0, 1, 2],
        "group": [0, 1, 1],
    }
    return pd.DataFrame({k: v for k, v in (columns | changes).items() if v is not None})


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"row": None}, "lacks the column row"),
        ({"split": ["train", "valid", "test"]}, "split=valid: only train, test and validation"),
        ({"client": [0, 2, 2]}, "no row of client 1: clients must be numbered"),
        ({"client": [0, -1, 1]}, "client=-1: numbers start at 0"),
        ({"row": [0, 2**32 + 1, 2]}, "row=4294967297: at most 2147483647 is allowed"),
        ({"row": [0, 2**63 + 1, 2]}, "row=9223372036854775809: at most 2147483647 is allowed"),
        ({"client": [0, 10**12, 1]}, "client=1000000000000: at most 2147483647 is allowed"),
        ({"client": [0, 10**9, 1]}, "no row of client 2: clients must be numbered"),
        ({"group": [-5, 1, 1]}, "group=-5: numbers start at 0, and -1 stands for none"),
        ({"group": [2**40, 1, 1]}, "group=1099511627776: at most 2147483647 is allowed"),
        (
            {"split": ["train"] * 3, "client": [0, 0, 0], "row": [4, 3, 4], "group": None},
            r"gives client 0 row 4 twice in its train set \(1 such rows\)",
        ),
        (
            {"split": ["train", "test", "test"], "client": [0, 0, 0], "row": [4, 3, 3]},
            "gives client 0 row 3 twice in its test set",
        ),
        ({"row": [0, 1.5, 2]}, "row of type float64: whole numbers"),
        ({"row": [0, 1, None]}, "row of type float64: whole numbers"),
        ({"group": [0, 1, 2]}, "gives client 1 more than one group"),
        ({"row": [0, 1, 12]}, "names rows 12 to 12, but the pool of dataset=fake has rows 0 to 11"),
        ({"split": ["test", "train", "test"]}, "client 0 has no training example"),
        (
            {"split": [], "client": [], "row": [], "group": []},
            "has no rows: it needs one per client",
        ),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_wrong_table_is_one_line(
    changes: dict[str, list[object]],
    says: str,
    suffix: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / f"table.{suffix}"
    frame = table(**changes)
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    with refused(UserError, says):
        build(fake(8, 4), FromFile(path=str(path), base=IID(num_clients=1)), 0)


def test_missing_damaged_or_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not found: set partition.path"):
        read_table(tmp_path / "no.parquet")
    for name, says in (("a.parquet", "cannot read"), ("a.txt", "ends in .parquet or .csv")):
        (tmp_path / name).write_bytes(b"hello")
        with refused(UserError, says):
            read_table(tmp_path / name)


def test_a_row_is_trained_on_or_kept_for_validation(tmp_path: Path) -> None:
    path = tmp_path / "partition.csv"
    path.write_text("split,client,row\ntrain,0,1\nvalidation,0,1\ntest,0,2\n")
    with pytest.raises(DataError, match="row 1 as train and as validation"):
        read_table(path)

"""A dataset and a partition to a federation; its table on disk, its numbers, its fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedclust.core.naming import named
from fedclust.core.trivial import trivial
from fedclust.core.types import Dataset, Federation, Pool, Split
from fedclust.core.validation import cut, redrawn
from fedclust.core.verbs import Partition
from fedclust.helpers.errors import DataError, counted, require
from fedclust.helpers.files import plain_file
from fedclust.helpers.rng import Stream

if TYPE_CHECKING:
    import pandas as pd

_FEW_CLIENTS = 1000  # whose examples are written one by one
_COLUMNS = ("split", "client", "row")
_HIGHEST = 2**31 - 1  # a row, client or group; rows are kept as int32


def build(
    dataset: Dataset,
    partition: Partition,
    seed: int,
    *,
    pool: Pool | None = None,
    allow_empty: bool = False,
    validation: float = 0.0,
) -> Federation:
    """The federation of one seed, on the CPU.

    Args:
        pool: `partition.pool(dataset)` where it has been made already; the seeds of a run share it.
        allow_empty: accept clients without training examples, which an algorithm must never sample.
        validation: part of each client's training examples that becomes its validation examples.

    Raises:
        ConfigError: dataset and partition do not fit together.
        DataError: a client has no training examples, or a row twice, nobody has a test example, or
            a row lies outside the pool.
    """
    pool = partition.pool(dataset) if pool is None else pool
    train, test, group = _split(dataset, partition, seed, pool)
    if len({len(train.count), len(test.count), len(group)}) > 1:
        raise DataError(
            f"the partition gives training rows for {counted(len(train.count), 'client')}, test "
            f"rows for {len(test.count)} and groups for {len(group)}: it must have all for each"
        )
    fed = Federation(pool=pool, train=train, test=test, group=group)
    require(fed.num_clients >= 1, "partition.num_clients", fed.num_clients, "at least 1")
    for split in (train, test):
        low, high = map(int, split.index.aminmax()) if len(split.index) else (0, 0)
        if low < 0 or high >= max(1, len(pool.y)):
            raise DataError(
                f"the partition names rows {low} to {high}, but the pool of "
                f"dataset={dataset.name} has rows 0 to {len(pool.y) - 1}: check dataset, "
                "partition.path and partition.base"
            )
    _check_apart(dataset, train, test, len(pool.y))
    unit = _units(dataset, train, test, pool)
    if not allow_empty and int(train.count.min()) < 1:
        raise DataError(
            f"client {int(train.count.argmin())} has no training example of "
            f"dataset={dataset.name}: lower partition.num_clients or use a larger dataset"
        )
    if int(test.count.sum()) < 1:
        why = (
            "the data set, or the table of partition.path, needs at least one"
            if len(dataset.x_test)
            else "without a test set (dataset.test_share=0) partition=natural cuts one per client"
        )
        raise DataError(
            f"no client has a test example of dataset={dataset.name}, so nothing can be measured: "
            f"{why}"
        )
    fed = named(dataset, fed, seed)
    if not validation:
        return fed
    train, held_out = cut(fed.train, pool.strata, validation, seed, unit)
    return replace(fed, train=train, validation=held_out)


def _check_apart(dataset: Dataset, train: Split, test: Split, size: int) -> None:
    """Refuse a row that a client has twice, for training, for testing or for both."""
    rows = torch.cat([train.index, test.index]).long()
    if len(rows) == 0 or int(rows.bincount(minlength=size).max()) < 2:
        return  # nobody shares a row, as in nearly all partitions
    owner = torch.cat([split.owner_and_place()[0] for split in (train, test)])
    own, place = (owner * size + rows).sort()
    twice = torch.nonzero(own[1:] == own[:-1]).flatten()
    if len(twice):
        client, row = divmod(int(own[twice[0]]), size)
        both = {int(i) < len(train.index) for i in place[twice[0] : twice[0] + 2]}
        where = "to train on and to be tested on" if len(both) == 2 else "twice"
        raise DataError(
            f"the partition gives client {client} row {row} of dataset={dataset.name} {where} "
            f"({counted(len(twice), 'such row')}): a client has a row once"
        )


def _units(dataset: Dataset, train: Split, test: Split, pool: Pool) -> Tensor | None:
    """Of whom every row of the pool is, [N] int64; None where each is by itself."""
    if dataset.unit is None:
        return None
    whole = pool.in_order and len(pool.y) == pool.concepts * len(dataset.unit)
    key, allowed = "dataset.unit", "null with a partition that makes examples of its own"
    require(whole, key, "a column", allowed)
    unit = dataset.unit.repeat_interleave(pool.concepts)
    learnt, tested = (unit[split.index.long()].numpy() for split in (train, test))
    both = np.intersect1d(learnt, tested)
    allowed = f"null where {counted(len(both), 'unit')} would be in training and test: use "
    allowed += "partition=natural, or another that leaves the test rows of the data as they are"
    require(not len(both), key, "a column", allowed)
    return unit


def _split(
    dataset: Dataset, partition: Partition, seed: int, pool: Pool
) -> tuple[Split, Split, Tensor]:
    """Train split, test split and group [M] of a seed.

    Where the seed draws test examples of its own, the partition sees the dataset with these, and
    its rows are led back to those of the pool. A pool that is not `in_order` keeps the examples
    that all seeds share.
    """
    stream = Stream.of(seed, "partition")
    whole = len(pool.y) == pool.concepts * (len(dataset.y_train) + len(dataset.y_test))
    if dataset.test_share is None or not (pool.in_order and whole):
        return partition.split(dataset, stream)
    seen, place = redrawn(dataset, seed)
    train, test, group = partition.split(seen, stream)
    return _led_back(train, place, pool), _led_back(test, place, pool), group


def _led_back(split: Split, place: Tensor, pool: Pool) -> Split:
    """The split with example r of its rows as example `place[r]`, the concepts unchanged."""
    rows = split.index.long()
    rows = place[rows // pool.concepts] * pool.concepts + rows % pool.concepts
    return Split(rows.to(torch.int32), split.start)


def label_histogram(fed: Federation, clients: Tensor) -> Tensor:
    """Training examples of every class for `clients` [C], [C, Y] int64; without classes [C, 1]."""
    return fed.train.classes(fed.pool.strata, fed.pool.num_strata)[clients]


def concept_shares(fed: Federation) -> Tensor:
    """Part of every client's training examples that is under each concept, [M, G] float64.

    0 for clients without training examples.
    """
    concepts = fed.pool.concepts
    owner, _ = fed.train.owner_and_place()
    counts = torch.zeros(fed.num_clients * concepts, dtype=torch.float64, device=owner.device)
    ones = torch.ones(len(owner), dtype=torch.float64, device=owner.device)
    counts.index_add_(0, owner * concepts + fed.train.index % concepts, ones)
    return counts.view(-1, concepts) / fed.train.count.clamp(min=1).unsqueeze(1)


def column(values: NDArray[Any], kind: pa.DataType | None = None) -> pa.Array:
    """An Arrow array of one-dimensional numbers without gaps, over their memory where it can be.

    `pa.array` gives the same, and imports pandas first: most of a second; `cast` imports
    `pyarrow.compute`, a tenth of one.

    Args:
        kind: of the column; None for that of the numbers.
    """
    kind = pa.from_numpy_dtype(values.dtype) if kind is None else kind
    whole = np.ascontiguousarray(values, kind.to_pandas_dtype())
    if kind == pa.bool_():  # eight to a byte
        whole = np.packbits(whole, bitorder="little")
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(whole)])


def write_table(path: Path, fed: Federation) -> None:
    """Write who owns what as parquet: split, client, group, row; rows keep their order."""
    group = fed.group.cpu().numpy().astype(np.int32)
    ends = np.cumsum([0, *map(len, fed.splits)], dtype=np.int32)
    text = pa.py_buffer("".join(fed.splits).encode())
    splits = pa.StringArray.from_buffers(len(fed.splits), pa.py_buffer(ends), text)
    parts = []
    for name, split in enumerate(fed.splits.values()):
        count = split.count.cpu().numpy()
        client = np.repeat(np.arange(fed.num_clients, dtype=np.int32), count)
        names = column(np.full(len(client), name, dtype=np.int8))
        columns = {
            "split": pa.DictionaryArray.from_arrays(names, splits),
            "client": column(client),
            "group": column(group[client]),
            "row": column(fed.pool.row(split.index).cpu().numpy()),
        }
        parts.append(pa.table(columns))
    with path.open("wb") as file:  # a name need not be UTF-8, which pyarrow expects
        pq.write_table(pa.concat_tables(parts), file, compression="zstd")


def read_table(path: Path) -> tuple[Split, Split, Tensor]:
    """Train split, test split and group [M] of a table that `write_table` or a user wrote.

    Several clients may own the same row, as with `sharing=prefix` of FEMNIST-10; one client may not
    own it twice in a split. Validation rows are training rows here, the last ones of their client:
    a job with the same `validation` and seed cuts the same ones off again.

    Args:
        path: .parquet or .csv with the columns split, client, row and optionally group, -1 where a
            client has none.

    Raises:
        DataError: the file is missing, unreadable or inconsistent.
    """
    table = _frame(path)
    client = table["client"].to_numpy(np.int64)
    known = np.unique(client)
    num_clients = len(known)
    gaps = np.flatnonzero(known != np.arange(num_clients))
    if len(gaps):
        raise DataError(
            f"{path} has no row of client {gaps[0]}: clients must be numbered 0, 1, … without gaps"
        )
    twice = table[table.duplicated(list(_COLUMNS))]
    if len(twice):
        split, owner, row = twice.iloc[0][list(_COLUMNS)]
        raise DataError(
            f"{path} gives client {owner} row {row} twice in its {split} set ({len(twice)} such "
            "rows): remove the second"
        )
    learnt = table[table["split"] != "test"]
    both = learnt[learnt.duplicated(["client", "row"])]
    if len(both):
        owner, row = both.iloc[0][["client", "row"]]
        raise DataError(
            f"{path} gives client {owner} row {row} as train and as validation ({len(both)} such "
            "rows): keep one of them"
        )
    rows, tests = table["row"].to_numpy(np.int64), (table["split"] == "test").to_numpy()
    late = (table["split"] == "validation").to_numpy()
    splits = []
    for chosen in (~tests, tests):
        order = np.lexsort((late[chosen], client[chosen]))  # keeps the order of equal ones
        start = np.concatenate([[0], np.bincount(client[chosen], minlength=num_clients).cumsum()])
        arrays = rows[chosen][order].astype(np.int32), start.astype(np.int64)
        splits.append(Split(*map(torch.from_numpy, arrays)))
    group = np.full(num_clients, -1, dtype=np.int64)
    if "group" in table:
        given = table["group"].to_numpy(np.int64)
        group[client] = given
        if (group[client] != given).any():
            odd = int(client[group[client] != given][0])
            raise DataError(
                f"{path} gives client {odd} more than one group: make the column constant per "
                "client"
            )
    return splits[0], splits[1], torch.from_numpy(group)


def _frame(path: Path) -> pd.DataFrame:
    """The table, with known columns and whole numbers."""
    import pandas as pd  # most runs read no table, and it takes most of a second to load

    plain_file(path, "", "set partition.path to a .parquet or .csv file")
    known = path.suffix in (".parquet", ".csv")
    require(known, "partition.path", path, "a file that ends in .parquet or .csv")
    try:
        with path.open("rb") as file:
            table = pd.read_parquet(file) if path.suffix == ".parquet" else pd.read_csv(file)
    except Exception as error:  # pandas and pyarrow raise many kinds for a damaged file
        words = " ".join(str(error).split())[:200]
        raise DataError(
            f"cannot read {path} ({words}): replace it, or change partition.path"
        ) from error
    missing = [column for column in _COLUMNS if column not in table]
    if missing:
        needed = "split, client, row and optionally group"
        raise DataError(f"{path} lacks the column {missing[0]}: it needs {needed}")
    odd = sorted({*map(str, table["split"].astype(str))} - {"train", "test", "validation"})
    if odd:
        raise DataError(
            f"{path} has split={odd[0][:40]}: only train, test and validation are allowed"
        )
    if not len(table):
        raise DataError(f"{path} has no rows: it needs one per client and example")
    for name in ("client", "row", *(("group",) if "group" in table else ())):
        if table[name].dtype.kind not in "ui" or table[name].isna().any():
            kind = table[name].dtype
            raise DataError(f"{path} has {name} of type {kind}: whole numbers are needed")
        low, high, least = int(table[name].min()), int(table[name].max()), -(name == "group")
        if low < least:
            none = ", and -1 stands for none" if least else ""
            raise DataError(f"{path} has {name}={low}: numbers start at 0{none}")
        if high > _HIGHEST:
            raise DataError(f"{path} has {name}={high}: at most {_HIGHEST} is allowed")
    return table


def describe(fed: Federation) -> dict[str, float]:
    """Numbers about a federation by name: clients, groups (0 for none), examples per client."""
    numbers: dict[str, float] = {
        "clients": fed.num_clients,
        "groups": len(set(fed.group.tolist()) - {-1}),
        "pool": len(fed.pool.y) // fed.pool.copies,
    }
    for name, split in fed.splits.items():
        count = split.count
        numbers[f"{name}_examples"] = int(count.sum())
        numbers[f"{name}_min"] = int(count.min())
        numbers[f"{name}_mean"] = float(count.double().mean())
        numbers[f"{name}_max"] = int(count.max())
    return numbers


def summary(fed: Federation, arrived: Tensor | None = None) -> dict[str, Any]:
    """What a report says about a federation, JSON-able.

    clients, groups; `train`, `test` and, where there are such examples, `validation`: examples in
    total and mean, std, min, max and quartiles per client (ddof=0); `classes`: mean, min and max of
    the classes a client has training examples of; `label_skew`: mean over clients of the total
    variation between the classes of their training examples and those of all; `examples`: training
    examples of every class per true group, "-1" for clients without one; without true groups and
    for up to 1,000 clients also `client_examples`, the same per client. A task without classes has
    one number of examples in their place, and no `classes` and `label_skew`. `tested`: digest of
    the examples that are tested on; `used`: the share of the pool's examples that somebody owns;
    `repeated`: how often rows of the pool are owned besides the first time; `trained_and_tested`:
    rows that somebody trains on and somebody is tested on. `trivial`: scores of a guess without
    inputs by the clients that have `arrived` [M] bool, see `fedclust.core.trivial`. `names`: of
    features, classes, clients and groups.
    """
    histogram = fed.train.classes(fed.pool.strata, fed.pool.num_strata)
    groups = sorted(set(fed.group.tolist()))
    numbers: dict[str, Any] = {"clients": fed.num_clients, "groups": len(set(groups) - {-1})}
    for name, split in fed.splits.items():
        count = split.count.double()
        numbers[name] = {
            "total": int(count.sum()),
            "mean": float(count.mean()),
            "std": float(count.std(correction=0)),
            "min": int(count.min()),
            "max": int(count.max()),
            "quartiles": np.quantile(split.count.tolist(), (0.25, 0.5, 0.75)).tolist(),
        }
    if fed.pool.task.targets == "classes":
        numbers |= _of_classes(histogram)
    numbers["examples"] = {
        str(group): histogram[fed.group == group].sum(0).tolist() for group in groups
    }
    each = (fed.pool.row(split.index).cpu().numpy() for split in fed.splits.values())
    train, tested, *more = each
    rows = np.concatenate([train, tested, *more])
    numbers["repeated"] = len(rows) - len(np.unique(rows))
    numbers["trained_and_tested"] = len(np.intersect1d(train, tested))
    examples = np.unique(tested // fed.pool.concepts)
    numbers["tested"] = hashlib.blake2b(examples.tobytes(), digest_size=8).hexdigest()
    owned = len(np.unique(rows // fed.pool.concepts))
    numbers["used"] = owned * fed.pool.concepts * fed.pool.copies / len(fed.pool.y)
    numbers["trivial"] = trivial(fed, arrived)
    if not numbers["groups"] and fed.num_clients <= _FEW_CLIENTS:
        numbers["client_examples"] = histogram.tolist()
    if names := {part: list(known) for part, known in asdict(fed.names).items() if known}:
        numbers["names"] = names
    return numbers


def _of_classes(histogram: Tensor) -> dict[str, Any]:
    """How the classes of training examples [M, Y] are spread over clients."""
    owned = (histogram > 0).sum(1).double()
    share = histogram.double() / histogram.sum(1, keepdim=True)
    overall = histogram.sum(0).double() / histogram.sum()
    return {
        "label_skew": float(((share - overall).abs().sum(1) / 2).nanmean()),
        "classes": {"mean": float(owned.mean()), "min": int(owned.min()), "max": int(owned.max())},
    }


def digest(fed: Federation) -> str:
    """SHA-256 of who owns what, in hexadecimal digits, equal on every device."""
    sha = hashlib.sha256()
    train, test, *held_out = ((fed.pool.row(s.index), s.start) for s in fed.splits.values())
    for part in (*train, *test, fed.group, *(array for both in held_out for array in both)):
        array = part.cpu().contiguous().numpy()
        sha.update(f"{array.dtype.str}{array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()

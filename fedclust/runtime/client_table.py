"""One row per client and evaluation: parts while a run goes on, one file at its end."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from fedclust.core.federation import column
from fedclust.core.types import Evaluation, Predictions, Round
from fedclust.helpers.files import Sealed, atomic_write, new_digest

CLIENTS = pa.schema(
    [
        ("seed", pa.int64()),
        ("round", pa.int32()),
        ("client", pa.int32()),
        ("group", pa.int32()),
        ("label", pa.int32()),
        ("train_count", pa.int32()),
        ("test_count", pa.int32()),
        ("loss_sum", pa.float64()),
    ]
)
# rows; fixed, so that the joined file does not depend on how it was cut into parts
ROW_GROUP = 1 << 18


def client_rows(rnd: Round, evaluation: Evaluation) -> pa.Table:
    """A row per client: `CLIENTS`, what the task adds up, its headline, and the client's name."""
    num_clients = rnd.fed.num_clients
    columns = {
        "seed": torch.full((num_clients,), rnd.seed, dtype=torch.int64),
        "round": torch.full((num_clients,), rnd.t, dtype=torch.int64),
        "client": torch.arange(num_clients),
        "group": rnd.fed.group,
        "label": evaluation.served.label,
        "train_count": rnd.fed.train.count,
        "test_count": evaluation.count,
        "loss_sum": evaluation.loss_sum.double(),
    }
    pool, schema = rnd.fed.pool, CLIENTS
    for name, values in zip(
        pool.task.sum_names(pool.num_classes), evaluation.sums.T.contiguous(), strict=True
    ):
        columns[name] = values
        kind = pa.int32() if pool.task.counts else pa.float64()
        schema = schema.append(pa.field(name, kind))
    if len(schema) > len(CLIENTS) + 1:  # the headline does not stand in a single sum
        columns[pool.task.score.name] = pool.task.headline(evaluation.sums, evaluation.count)
        schema = schema.append(pa.field(pool.task.score.name, pa.float64()))
    if rnd.fed.hostile is not None:
        columns["hostile"] = rnd.fed.hostile.int()
        schema = schema.append(pa.field("hostile", pa.bool_()))
    arrays = [column(columns[field.name].cpu().numpy(), field.type) for field in schema]
    if names := rnd.fed.names.clients:
        schema = schema.append(pa.field("name", pa.string()))
        arrays.append(pa.array(names, pa.string()))
    return pa.Table.from_arrays(arrays, schema=schema)


def with_scores(
    rows: pa.Table, names: Sequence[str], scores: Mapping[str, NDArray[np.float64]]
) -> pa.Table:
    """The rows with a column per score [M] float64; null where it is not defined or not taken."""
    for name in names:
        empty = pa.nulls(len(rows), pa.float64())
        given = pa.array(scores[name], from_pandas=True) if name in scores else empty
        if name not in rows.column_names:
            rows = rows.append_column(name, given)
    return rows


def write_predictions(file: Path, seed: int, predictions: Predictions) -> None:
    """A row per test example: seed, client, row, target and output (or several)."""
    columns = {
        "seed": torch.full_like(predictions.client, seed),
        "client": predictions.client.int(),
        "row": predictions.row.int(),
    }
    for name, values in (("target", predictions.targets), ("output", predictions.predictions)):
        wide = values.unsqueeze(1) if values.dim() == 1 else values
        for number, one in enumerate(wide.T.contiguous()):
            columns[name if wide.shape[1] == 1 else f"{name}_{number}"] = one
    arrays = {name: column(values.numpy()) for name, values in columns.items()}
    atomic_write(file, _parquet(pa.table(arrays)))


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def write_part(rows: pa.Table, folder: Path, number: int) -> tuple[str, Sealed]:
    """The name of the part that now holds `rows`, and its seal."""
    name = f"part-{number:06d}.parquet"
    content = _parquet(rows)
    atomic_write(folder / name, content)
    digest = new_digest()
    digest.update(content)
    return name, Sealed(len(content), digest.hexdigest())


def join_parts(parts: Sequence[Path], target: Path) -> None:
    """The rows of all parts in one file, in row groups of `ROW_GROUP` rows."""
    schema = pq.read_schema(pa.BufferReader(parts[0].read_bytes())) if parts else CLIENTS
    # opened here: a name need not be UTF-8, which pyarrow expects
    with target.open("wb") as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        waiting = pa.Table.from_batches([], schema=schema)  # `empty_table` imports pandas
        for part in parts:
            waiting = pa.concat_tables(
                [waiting, pq.ParquetFile(pa.BufferReader(part.read_bytes())).read()]
            )
            whole = len(waiting) // ROW_GROUP * ROW_GROUP
            for start in range(0, whole, ROW_GROUP):
                writer.write_table(
                    waiting.slice(start, ROW_GROUP).combine_chunks(), row_group_size=ROW_GROUP
                )
            waiting = waiting.slice(whole)
        if len(waiting):
            writer.write_table(waiting.combine_chunks(), row_group_size=ROW_GROUP)

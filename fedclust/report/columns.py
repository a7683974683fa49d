"""Tables of many rows of one kind, described by their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedclust.report.formats import plus_minus
from fedclust.report.table import Cell, Table


@dataclass(frozen=True)
class TableColumn:
    """One column of a table.

    Attributes:
        head: its head; None where its value stands in the CSV alone.
        read: the value of a row, which may be of any kind, or the cell itself.
        write: the value as readers see it.
        record: the value as plain numbers by name, for the CSV, or the one name it has there; ""
            where it has none.
    """

    head: str | None
    read: Callable[[Any], Any]
    write: Callable[[Any], str | Cell] = str
    record: str | Callable[[Any], Mapping[str, Any]] = ""

    def cell(self, value: Any) -> Cell:
        """The value for readers."""
        written = value if isinstance(value, Cell) else self.write(value)
        return written if isinstance(written, Cell) else Cell(text=written)

    def numbers(self, value: Any) -> Mapping[str, Any]:
        """The value for the CSV."""
        if callable(self.record):
            return self.record(value)
        return {self.record: value} if self.record else {}


ARM = TableColumn("arm", lambda arm: arm.label, record="arm")


def tabulate(
    name: str,
    title: str,
    columns: Sequence[TableColumn],
    rows: Iterable[Any],
    *,
    notes: Sequence[str] = (),
    folded: bool = False,
) -> Table | None:
    """The table of some rows; None without any. See `Table` for the other arguments."""
    cells, records = [], []
    for row in rows:
        values = [column.read(row) for column in columns]
        pairs = list(zip(columns, values, strict=True))
        cells.append(tuple(c.cell(v) for c, v in pairs if c.head is not None))
        records.append({k: number for c, v in pairs for k, number in c.numbers(v).items()})
    heads = (column.head for column in columns if column.head is not None)
    if not cells:
        return None
    return Table(
        name=name,
        title=title,
        columns=tuple(heads),
        rows=tuple(cells),
        records=tuple(records),
        notes=tuple(notes),
        folded=folded,
    )


def mean_of(name: str) -> Callable[[NDArray[np.float64]], Mapping[str, float]]:
    """Records the mean over seeds [S]; nothing where no seed has a value."""
    return lambda values: {name: float(values.mean())} if len(values) else {}


def mean_and_std(mean: str, std: str) -> Callable[[NDArray[np.float64]], Mapping[str, float]]:
    """Records mean and standard deviation over seeds [S]; nothing where no seed has a value."""
    return lambda values: (
        {mean: float(values.mean()), std: float(values.std())} if len(values) else {}
    )


def over_seeds(
    head: str,
    name: str,
    read: Callable[[Any], NDArray[np.float64]],
    digits: int | Callable[[NDArray[np.float64]], int] = 2,
    factor: float = 1.0,
    suffix: str = "_std",
) -> TableColumn:
    """A column of values per seed [S]: mean ± standard deviation times `factor`."""

    def write(values: NDArray[np.float64]) -> str:
        return plus_minus(factor * values, digits(values) if callable(digits) else digits)

    return TableColumn(head, read, write, mean_and_std(name, f"{name}{suffix}"))

"""A user's own series in time: a file for each client, or one file with a column of clients."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedclust.core.types import Dataset
from fedclust.datasets.checks import read
from fedclust.datasets.columns import ColumnName, name_columns, shown
from fedclust.datasets.csv import CsvSigns, csv_table, passed_over, table_files
from fedclust.datasets.sites import told
from fedclust.datasets.suspects import stands_for_a_gap
from fedclust.datasets.windows import Values, Windows
from fedclust.helpers.errors import DataError, require, typed
from fedclust.helpers.ranges import AtLeastTwo

_DATED = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ]|$)")
_DOTTED = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}")
_AMERICAN = ("%m/%d/%Y %I:%M %p", "%m/%d/%Y %I:%M:%S %p")  # of which pandas guesses nothing


@dataclass(frozen=True, kw_only=True)
class Series(CsvSigns, Windows):
    """Forecasts of one column, for task=regression; see `Windows` for how series are cut.

    Attributes:
        path: a folder with a .csv or .parquet file for each client, or such a file with the column
            `client`. Rows are steps of equal length.
        value: column that is predicted.
        features: further columns whose past a model sees.
        time: column of dates or numbers that rows are sorted by, with equal steps; None where rows
            are in order.
        time_format: how its dates are written, as in %d.%m.%Y %H:%M; None for the usual ways. Where
            days and months could be taken for each other, the month is first unless dots stand
            between them or a row says otherwise.
        client: column of the client; None where `path` is a folder, whose file names are the
            clients.
        group: column of the client's true group, the same in all its rows; None where there is
            none.
        normalise: mean_std (of every channel, by the training parts, or with `blocks` by all) or
            none. Targets keep their unit here; the task standardises them.
        blocks: equal stretches of time into which every series is cut; no window leaves its own,
            and every seed draws a share `test_share` of a client's blocks for testing. None: the
            end of every series is tested, the same in every seed.
    """

    path: str
    value: ColumnName = "value"
    features: Sequence[ColumnName] = ()
    time: ColumnName | None = None
    time_format: str | None = None
    client: ColumnName | None = None
    group: ColumnName | None = None
    normalise: Literal["mean_std", "none"] = "mean_std"
    blocks: AtLeastTwo | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name_columns(self, "value", "features", "time", "client", "group")
        require(bool(self.path), "dataset.path", "''", "a CSV or parquet file, or a folder of them")

    def load(self) -> Dataset:
        """The windows, clients in the sorted order of their names.

        Raises:
            DataError: a file or column is missing, a value is no finite number, times are not of
                equal steps, or a series is too short.
        """
        tables = self._tables()
        clients = sorted(tables)
        when: dict[str, tuple[Any, Any]] = {}
        series = [self._values(client, tables[client], when) for client in clients]
        groups = self.group and [self._group(client, tables[client]) for client in clients]
        scaled = self.normalise == "mean_std"
        name = Path(self.path).stem
        made = self.cut(name, series, clients, groups or None, scaled=scaled, blocks=self.blocks)
        by_name = dict(zip(clients, series, strict=True))
        gaps = [*_odd_values(by_name, [self.value, *self.features]), *self._units(by_name)]
        gaps += self._over_gaps(tables)
        return replace(
            made, remarks=(*passed_over("series", Path(self.path)), *self._at_odds(when), *gaps)
        )

    def channels(self) -> dict[str, Values]:
        """The channels of every client [steps, C] in time, what is predicted first, in the sorted
        order of the names; raises as `load`, but takes series of any length.
        """
        return {name: self._values(name, rows, {}) for name, rows in sorted(self._tables().items())}

    def _over_gaps(self, tables: Mapping[str, Any]) -> Iterator[str]:
        """Remarks on dates that are not of equal steps, where nobody says that rows have times."""
        wanted = (self.value, *self.features, self.client, self.group)
        for name in next(iter(tables.values())).columns if self.time is None else ():
            odd = list[tuple[str, Any, Any]]()
            for client, table in tables.items():
                if name in wanted or name not in table.columns or len(table) < 2:
                    continue
                column = table[name]
                dated = column.dtype.kind == "M" or column.astype(str).str.match(_DATED).all()
                with suppress(DataError):
                    if dated and len(uneven := _uneven(self._times(client, column))):
                        odd.append((client, *column.iloc[uneven[0] : uneven[0] + 2]))
            if odd:
                client, before, after = odd[0]
                others = f" (and at {len(odd) - 1} more)" if odd[1:] else ""
                yield (
                    f"series: {Path(self.path).stem}: column {name} goes from {before} to {after} "
                    f"in {client}{others}, which is not its usual step: windows reach over it; "
                    f"{typed('dataset.time', str(name))} refuses that"
                )

    def _units(self, series: Mapping[str, Values]) -> Iterator[str]:
        """Remarks on clients whose columns seem to be in other units."""
        for place, name in enumerate([self.value, *self.features]):
            own = {client: channels[:, place] for client, channels in series.items()}
            for remark in told(own, f"column {name}", is_coded=False):
                yield f"series: {Path(self.path).stem}: {remark}"

    def _at_odds(self, when: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
        """Remarks on clients whose steps are longer, or whose windows begin at another time of the
        day, than those of others; `when` has the first time and the step of every client.
        """
        if not when:
            return
        what = f"series: {Path(self.path).stem}"
        (first, (begun, step)), *others = when.items()
        for client, (_, other) in others:
            if not np.isclose(_number(other), _number(step), rtol=1e-6):
                yield (
                    f"{what}: a step of {self.time} is {step} in {first} and {other} in {client}: "
                    "windows of both have as many steps, and so other spans of time"
                )
                return
        places = {
            client: round(_number(start - begun) / _number(step)) % self.stride
            for client, (start, _) in others
        }
        apart = [client for client, place in places.items() if place]
        if apart:
            yield (
                f"{what}: windows begin every {self.stride} steps from a client's first, which is "
                f"{begun} in {first} and {when[apart[0]][0]} in {apart[0]}: they begin at "
                "different times of the stride; cut the series to begin alike, or take "
                "dataset.stride=1"
            )

    def _tables(self) -> dict[str, Any]:
        """The rows of every client, each with its place in the file."""
        path = Path(self.path)
        files = table_files("series", path)
        if path.is_dir() != (self.client is None):
            kind = "a folder, whose file names are the clients" if path.is_dir() else "one file"
            asked = "null" if path.is_dir() else "the column of the clients"
            raise DataError(f"series: {path} is {kind}: dataset.client must be {asked}")
        tables: dict[str, Any] = {}
        for file in files:
            if file.stem in tables:
                raise DataError(
                    f"series: {path} has two files of client {file.stem}, such as {file.name}: one "
                    "is needed"
                )
            tables[file.stem] = read("series", file, partial(self._table, file), "dataset.path")
        for name, table in tables.items():
            wanted = (self.value, *self.features, self.time, self.client, self.group)
            lacking = [one for one in wanted if one is not None and one not in table.columns]
            if lacking:
                raise DataError(
                    f"series: {path if path.is_file() else name} has no column {lacking[0]}, which "
                    f"dataset names: it has {', '.join(map(str, table.columns[:8]))}"
                )
        if self.client is None:
            return tables
        (table,) = tables.values()
        gaps = np.flatnonzero(table[self.client].isna())
        if len(gaps):
            raise DataError(f"series: {path} has no client in row {gaps[0] + 1}: fill it")
        return {
            str(name): rows for name, rows in table.groupby(_names(table[self.client]), sort=False)
        }

    def _table(self, file: Path) -> Any:
        """The columns of a file, its rows numbered from 0. Clients and groups are words, in which
        07 is not 7 and NA is a name.
        """
        import pandas as pd

        if file.suffix.lower() != ".parquet":
            words = [one for one in (self.client, self.group) if one is not None]
            needed = [one for one in (self.value, *self.features, self.time) if one is not None]
            needed = [*needed, *words]
            signs = self.separator, self.decimal, self.encoding
            return csv_table("series", file, needed, words, *signs)
        table = pd.read_parquet(file)
        named = [one for one in table.index.names if one is not None and one not in table.columns]
        if named:  # what pandas wrote as the index of the rows
            table = table.reset_index(level=named)
        return table.reset_index(drop=True)

    def _values(self, client: str, table: Any, when: dict[str, tuple[Any, Any]]) -> Values:
        """The channels of a client [steps, C] in time; `when` gets its first time and step."""
        import pandas as pd

        where = f"series: client {client} has"
        if self.time is not None:
            times = table[self.time]
            if not pd.api.types.is_numeric_dtype(times):
                place = f"column {self.time} of client {client}"
                times = read("series", place, partial(self._times, client, times), "dataset.time")
            if times.isna().any():
                raise DataError(f"{where} no time in a row of column {self.time}: fill it")
            times = times.sort_values()
            table = table.loc[times.index]
            uneven = _uneven(times)
            if len(uneven):
                two = slice(uneven[0], uneven[0] + 2)
                before, after = table[self.time].iloc[two]
                seen = " and ".join(map(str, times.iloc[two]))
                seen = "" if seen == f"{before} and {after}" else f" (read as {seen})"
                raise DataError(
                    f"{where} {before} and then {after} in column {self.time}{seen}, which is not "
                    "one step: fill the gap or take a row out, or dataset.time=null takes rows as "
                    "steps of equal length, so that windows reach over it"
                )
            if len(times) > 1:
                when[client] = times.iloc[0], times.iloc[1] - times.iloc[0]
        columns = [self.value, *self.features]
        values = table[columns].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
        with np.errstate(over="ignore"):  # what does not fit is refused
            odd = np.argwhere(~np.isfinite(values.astype(np.float32)))
        if len(odd):
            row, column = odd[0]
            raise DataError(
                f"{where} {table[columns[column]].iloc[row]} in column {columns[column]}, row "
                f"{table.index[row] + 1}: finite numbers that fit float32 are needed, gaps have to "
                "be filled beforehand"
            )
        return np.asarray(values, dtype=np.float64)

    def _times(self, client: str, column: Any) -> Any:
        """The times of a client, of one zone, those that name theirs in UTC."""
        import pandas as pd

        texts = column[column.notna()].astype(str).str.strip()
        dotted = bool(texts.str.match(_DOTTED).all())  # nobody writes 12.31.2026
        # of 01/02 the month is first, unless a later row, as 13/02, says that the day is
        ways: list[dict[str, Any]] = [{"dayfirst": dotted}, {"dayfirst": True}]
        ways += [{"format": form} for form in _AMERICAN]
        if self.time_format is not None:
            ways = [{"format": self.time_format}]
        with warnings.catch_warnings(action="error"):  # a form that is not recognised
            for way in ways:
                with suppress(ValueError, UserWarning):
                    return pd.to_datetime(column, utc=True, **way).dt.tz_localize(None)
        with warnings.catch_warnings(action="ignore"):
            odd = texts[pd.to_datetime(texts, utc=True, errors="coerce", **ways[0]).isna()]
        form = typed("dataset.time_format", "%d.%m.%Y %H:%M")
        raise DataError(
            f"series: client {client} has {shown((odd if len(odd) else texts).iloc[0])} in column "
            f"{self.time}, which is no time in {self.time_format or 'a form that is known'}: "
            f"{form} says another"
        )

    def _group(self, client: str, table: Any) -> str:
        where = f"series: client {client}"
        if table[self.group].isna().any():
            raise DataError(f"{where} has no group in a row of column {self.group}: fill it")
        own = _names(table[self.group]).unique()
        if len(own) != 1:
            raise DataError(
                f"{where} is in {len(own)} groups of column {self.group}: one is needed"
            )
        return str(own[0])


def _odd_values(series: Mapping[str, Values], columns: Sequence[str]) -> Iterator[str]:
    """A remark on numbers such as -999 that may stand for gaps, of the first client with some."""
    for client, channels in series.items():
        for name, one in zip(columns, channels.T, strict=True):
            if (value := stands_for_a_gap(one)) is not None:
                yield (
                    f"series: client {client} has {value:g} in column {name}, far from all else; "
                    "if it stands for a gap, fill it beforehand"
                )
                return


def _uneven(times: Any) -> npt.NDArray[np.int64]:
    """The places of times that are not one step before the next; a step is the usual one."""
    steps = np.diff(times.to_numpy()).astype(np.float64)  # of dates in their own unit
    usual = np.median(steps) if len(steps) else 0
    return np.flatnonzero(~np.isclose(steps, usual, rtol=1e-6) | (steps <= 0))


def _number(span: Any) -> float:
    """A span of time as a number: of dates in seconds."""
    return float(span.total_seconds() if hasattr(span, "total_seconds") else span)


def _names(column: Any) -> Any:
    """What a column calls clients or groups, without the blanks around it."""
    return column.astype(str).str.strip()

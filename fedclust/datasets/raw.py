"""From the values of a file to what a model sees: said of a seed's data, and done again to new
ones.

What is said is JSON-able, and stands in `inputs/seed=S.json` of a job:

    columns        of a table: how each becomes features, see `fedclust.datasets.inputs.Read`
    features       their names; none of pictures
    clients        the names of the clients, where they have some
    least, most    of each feature of a table, in the unit of the file
    less, over     taken off the numbers of the file, and what they are divided by, before float32
    seen, fill, fill_of_clients    see `fedclust.datasets.fit.filled`
    shape, kind    of a stored example, channels first; uint8, float32, or int64 of token ids
    scale, shift   a model sees value * scale + shift
    of_clients     in place of these, with normalise=client: mean and deviation of every client
    view           of pictures, see `fedclust.datasets.view.ImageToInput`
    vocabulary     number of token ids
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Federation, Pool
from fedclust.datasets.column import Column, Read
from fedclust.datasets.columns import few, no_values, only_named, shown
from fedclust.datasets.fit import filled, typical
from fedclust.datasets.inputs import Inputs, features_of
from fedclust.datasets.normalise import as_float32
from fedclust.datasets.view import ImageToInput
from fedclust.helpers.errors import DataError

_KINDS = {"int64": "ui", "float32": "uif"}  # of arrays that become these


def described(fed: Federation) -> dict[str, Any]:
    """How the examples of a seed were made, see above; not yet what a network makes of them."""
    pool = fed.pool
    kind = "uint8" if pool.x.dtype == torch.uint8 else "float32"
    return {
        "features": list(fed.names.features),
        "clients": list(fed.names.clients),
        "shape": list(pool.x.shape[1:]),
        "kind": kind if pool.vocabulary is None else "int64",
        "scale": pool.scale.tolist(),
        "shift": pool.shift.tolist(),
        "view": asdict(pool.view) if isinstance(pool.view, ImageToInput) else None,
        "vocabulary": pool.vocabulary,
        **fed.raw,
    }


def prepared(about: Mapping[str, Any], given: Any, client: int, pool: Pool) -> Pool:
    """A pool whose rows are new examples as a client's model sees them.

    Args:
        about: what `described` said.
        given: a frame with the columns of the file, in any order and beside others; or an array
            [N, *shape] of numbers, of pictures with channels last or first.
        client: whose, which matters with normalise=client.
        pool: with labels of any kind, whose examples are replaced.

    Raises:
        DataError: a column is missing, or a value is of another kind than in the job's data.
    """
    if "columns" in about:
        x = _of_table(about, given, client)
    else:
        x = _of_array(about, np.asarray(given))
    if "of_clients" in about:
        own = about["of_clients"][client]
        mean, deviation = (torch.tensor(own[k], dtype=torch.float64) for k in ("mean", "deviation"))
        flat = x.reshape(len(x), -1).double()
        x = ((flat - mean) / deviation).float().view_as(x)
    scale, shift = (torch.tensor(about[name], dtype=torch.float32) for name in ("scale", "shift"))
    view = None if about["view"] is None else ImageToInput(**about["view"])
    seen = {"vocabulary": about["vocabulary"], "view": view}
    return Pool(x=x, y=pool.y, scale=scale, shift=shift, num_classes=pool.num_classes, **seen)


def of_new_client(
    about: Mapping[str, Any], given: Any, fill: str | None, name: str
) -> Mapping[str, Any]:
    """What `described` said, for rows of a client that the job did not know: with normalise=client
    all of these rows say how they are filled and scaled, as its training rows do of a known client.

    Args:
        given: all rows of the client, see `prepared`.
        fill: how the job filled gaps.
        name: of the client.

    Raises:
        DataError: a single row, which says nothing of a deviation.
    """
    if "of_clients" not in about:
        return about
    known: Sequence[Mapping[str, list[float]]] = about["of_clients"]
    if "columns" in about:
        x, names = _features_of_table(about, given)
    else:
        x, names = _of_array(about, np.asarray(given)).numpy(), []
    if len(x) < 2:
        raise DataError(
            f"the table has one row of {name}, which the job does not know: with "
            "dataset.normalise=client give several, since they say how they are scaled"
        )
    own = dict(about)
    if "fill" in about:
        ways = ["most_frequent" if str(p) in about["seen"] else fill for p in range(x.shape[1])]
        stand_ins = typical(x, ways)
        own["fill_of_clients"] = [stand_ins] * len(known)
        x = filled(x, own, names, 0)
    flat = x.reshape(len(x), -1).astype(np.float64)
    mean, deviation = flat.mean(0), flat.std(0)
    means, deviations = (np.array([one[k] for one in known]) for k in ("mean", "deviation"))
    as_it_is = (means == 0).all(0) & (deviations == 1).all(0)  # flags
    mean[as_it_is], deviation[as_it_is] = 0, 1
    deviation = np.where(deviation > 0, deviation, deviations.mean(0))
    scale = {"mean": mean.tolist(), "deviation": deviation.tolist()}
    return own | {"of_clients": [scale] * len(known)}


@dataclass(frozen=True)
class Far:
    """A column of new rows with values far outside of those of the job's rows, in its unit.

    Attributes:
        column: its name.
        rows: how many of the rows.
        value: the farthest.
        least, most: of the job's rows.
    """

    column: str
    rows: int
    value: float
    least: float
    most: float


def far_outside(about: Mapping[str, Any], given: Any) -> list[Far]:
    """The columns of a table whose values lie farther outside of the job's rows than these are
    apart: another unit, or a mistake. None of data that are no table, or whose job did not say.
    """
    if "least" not in about:
        return []
    inputs = _inputs_of_table(about, given)
    least, most = np.array(about["least"]), np.array(about["most"])
    outside = np.nan_to_num(np.maximum(least - inputs.x, inputs.x - most))
    is_far = outside > most - least
    is_far[:, [int(place) for place in about.get("seen", ())]] = False  # categories, which are gaps
    return [
        Far(
            column=inputs.names[place],
            rows=int(is_far[:, place].sum()),
            value=float(inputs.x[outside[:, place].argmax(), place]),
            least=float(least[place]),
            most=float(most[place]),
        )
        for place in is_far.any(0).nonzero()[0]
    ]


def _of_table(about: Mapping[str, Any], table: Any, client: int) -> Tensor:
    """Features [N, F] float32 of a frame, gaps filled."""
    x, names = _features_of_table(about, table)
    if "fill" in about:
        x = filled(x, about, names, client)
    odd = np.argwhere(~np.isfinite(x))
    if len(odd):
        row, place = odd[0]
        raise DataError(
            f"the table has a value that is not finite, or too large for float32, in column "
            f"{names[place]}, row {row + 1}: replace it"
        )
    return torch.from_numpy(np.ascontiguousarray(x))


def _features_of_table(
    about: Mapping[str, Any], table: Any
) -> tuple[npt.NDArray[np.float32], Sequence[str]]:
    """Features [N, F] float32 of a frame, NaN for a gap, and their names."""
    inputs = _inputs_of_table(about, table)
    return as_float32(inputs.x, np.array(about["less"])).numpy(), inputs.names


def _inputs_of_table(about: Mapping[str, Any], table: Any) -> Inputs:
    """Features of a frame in the unit of the file, NaN for a gap."""
    import pandas as pd

    columns = [Read(**{**one, "words": tuple(one["words"])}) for one in about["columns"]]
    if not isinstance(table, pd.DataFrame):
        raise DataError(
            f"examples of type {type(table).__name__}: the job's are rows of a table: give a "
            f"pandas DataFrame with the columns {few([one.name for one in columns])}, or the path "
            "of a CSV"
        )
    names = [str(name) for name in table.columns]
    only_named("the table", names)  # refuses two columns of one name
    missing = [one.name for one in columns if one.name not in names]
    if missing:
        raise DataError(
            f"the table has no column {few(missing)}: the job's inputs are "
            f"{few([one.name for one in columns])}"
        )
    if not len(table):
        raise DataError("the table has no rows: give one or more")
    read = list[tuple[Column, Read]]()
    for how in columns:
        column = Column(how.name, _plain(table.iloc[:, names.index(how.name)], how))
        read.append((column, how))
        place = list(about["features"]).index(how.name) if how.kind != "onehot" else 0
        _check(column, how, filled="fill" in about and about["fill"][place] is not None)
    return features_of(read)


def _plain(values: Any, how: Read) -> npt.NDArray[Any]:
    """The values of a column as a file gives them: whole numbers beside gaps are whole as words,
    and a text such as ? is no value, unless the job knows it as a word.
    """
    array: npt.NDArray[Any] = values.to_numpy()
    if how.kind != "number" and array.dtype.kind == "f":
        whole = [int(one) if one == np.floor(one) else one for one in array.tolist()]
        return np.array(whole, dtype=object)
    if array.dtype.kind in "buifmM":
        return array
    absent = {*no_values()} - {*how.words}
    values = [None if isinstance(one, str) and one in absent else one for one in array]
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _check(column: Column, how: Read, *, filled: bool) -> None:
    """Refuse what the job's data did not hold."""
    if how.kind == "number":
        odd, allowed = np.flatnonzero(column.odd), "numbers are needed"
    else:
        known = np.isin(column.words, np.array(how.words))
        odd, allowed = np.flatnonzero(~known & ~column.gaps), f"the job knows {few(how.words)}"
    if len(odd):
        value = shown(column.values[odd[0]])
        raise DataError(
            f"the table has {value} in column {column.name}, row {odd[0] + 1}: {allowed}"
        )
    if column.gaps.any() and not filled and how.kind != "onehot":
        row = int(np.flatnonzero(column.gaps)[0]) + 1
        raise DataError(
            f"the table has no value in column {column.name}, row {row}, and the job has none that "
            "stands for it: give one, or train with dataset.fill=…"
        )


def _of_array(about: Mapping[str, Any], x: npt.NDArray[Any]) -> Tensor:
    """Examples [N, *shape] of an array, as they are stored."""
    shape, kind = tuple(about["shape"]), about["kind"]
    if len(shape) == 3 and x.shape[1:] != shape:
        x = x[..., None] if x.ndim == 3 else x
        x = np.moveaxis(x, 3, 1) if x.ndim == 4 else x
    if x.shape[1:] != shape or x.ndim != len(shape) + 1:
        raise DataError(f"examples of shape {x.shape[1:]}: the job's have shape {shape}")
    if not (x.dtype == kind if kind == "uint8" else x.dtype.kind in _KINDS[kind]):
        raise DataError(f"examples of type {x.dtype}: the job's are {kind}")
    if kind == "uint8":
        return torch.from_numpy(np.ascontiguousarray(x))
    if kind == "int64":
        ids = torch.from_numpy(np.ascontiguousarray(x.astype(np.int64)))
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < about["vocabulary"]:
            raise DataError(
                f"token ids from {int(ids.min())} to {int(ids.max())}: the job's are below "
                f"{about['vocabulary']}"
            )
        return ids
    less, over = np.asarray(about.get("less", 0.0)), np.asarray(about.get("over", 1.0))
    moved = as_float32((x - less) / over if np.any(less) or np.any(over != 1) else x, 0.0)
    return torch.from_numpy(_finite(moved.numpy()))


def _finite(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if not np.isfinite(x).all():
        raise DataError("a value is not finite, or too large for float32: replace it")
    return np.ascontiguousarray(x)

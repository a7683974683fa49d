"""What a job's models say of a table in which every row names its client, known or new."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedclust.config.build import build
from fedclust.config.objects import Objects
from fedclust.datasets.raw import Far, far_outside
from fedclust.datasets.series import Series
from fedclust.datasets.windows import Values
from fedclust.helpers.errors import DataError, require, some_of
from fedclust.runtime.placing import by_inputs, by_loss, placed_rightly
from fedclust.runtime.trained import Trained

_MEMBERS = 4  # clients that a model is named by
By = Literal["own", "labels", "inputs", "only"]


@dataclass(frozen=True)
class Placed:
    """The model that a client of a table gets.

    Attributes:
        client: its name in the table.
        like: the number of a client of the job that uses the model.
        model: the clients of the job that use it, in words.
        by: own: the client was in the job. labels, inputs: see `fedclust.runtime.placing`. only:
            all clients of the job use one model.
        sure: share of resamples of the client's rows in which the same model fits best; 1 of those
            that need no choice.
        labelled: rows that decided, with by=labels.
    """

    client: str
    like: int
    model: str
    by: By
    sure: float = 1.0
    labelled: int = 0


@dataclass(frozen=True)
class Predicted:
    """What was said.

    Attributes:
        frame: a row per row of the table, in its order: client, model, by, sure; then of classes
            predicted and p_CLASS for every class; of flags p_LABEL; of numbers predicted, or
            predicted_TARGET of several. Of series a row per client and step ahead: client, model,
            by, sure, step from 1, predicted.
        placed: the clients of the table in the order of their first rows.
        far: by client, the columns whose values lie far outside of the job's rows.
        rightly: of how many known clients the inputs alone would say which model they have, and of
            how many that could be looked at; None unless a client was placed by its inputs.
    """

    frame: pd.DataFrame
    placed: Sequence[Placed]
    far: Mapping[str, Sequence[Far]] = field(default_factory=dict)
    rightly: tuple[int, int] | None = None


def predicted(trained: Trained, table: pd.DataFrame | Path, client: str | None = None) -> Predicted:
    """What the models of a job say of every row; of series, of the steps behind their ends.

    Args:
        table: with the columns of the job's table, also the one that names clients; that of the
            label may be missing or have gaps. Of series the path of files like those of the job.
        client: whose all rows are; None where the table's column says it.

    Raises:
        DataError, ConfigError, RunFolderError: as `Trained.predict`.
    """
    require(client != "", "client", client, "the name of a client")
    loader = Objects(trained.user_dir).make(trained.config["dataset"], "dataset")
    if isinstance(loader, Series):
        return _forecast(trained, loader, table, client)
    frame = _read(trained, table, needs_client=client is None)
    trained.pool(frame, 0)  # refuses what is odd by its row in the whole table
    column = _client_column(trained)
    known = trained.about["clients"]
    names = [client] * len(frame) if client is not None else _names(frame[column], column, known)
    rows = {name: np.flatnonzero(np.array(names) == name) for name in dict.fromkeys(names)}
    chooser = _Chooser(trained)
    placed = []
    for name, own in rows.items():
        given = frame.iloc[own]
        placed.append(chooser.placed(name, given, partial(_labelled, trained, given)))
    parts = [_said(trained, frame.iloc[rows[one.client]], one) for one in placed]
    said = pd.concat(parts).iloc[np.argsort(np.concatenate(list(rows.values())))]
    said.index = frame.index
    is_by_inputs = any(one.by == "inputs" for one in placed)
    far = {one.client: _far(trained, frame.iloc[rows[one.client]], one) for one in placed}
    return Predicted(said, placed, far, chooser.rightly() if is_by_inputs else None)


def _far(trained: Trained, rows: pd.DataFrame, placed: Placed) -> Sequence[Far]:
    """The columns of a client's rows that lie far outside; none where its own rows scale them."""
    own_scale = placed.by != "own" and "of_clients" in trained.about
    return () if own_scale else far_outside(trained.about, rows)


def _forecast(
    trained: Trained, loader: Series, path: pd.DataFrame | Path, client: str | None
) -> Predicted:
    """The next steps of every series, by the model of its client; a new client's own past says
    which model fits it.
    """
    allowed = "a file with the column of the clients" if loader.client else "a folder of files"
    fits = isinstance(path, Path) and path.is_dir() == (loader.client is None)
    require(fits and client is None, "the series", path, f"{allowed}, as the job had it")
    chooser, placed, parts = _Chooser(trained), [], []
    for name, values in replace(loader, path=str(path), blocks=None).channels().items():
        if len(values) < loader.length:
            raise DataError(
                f"the series of {name} has {len(values)} steps: {loader.length} are needed"
            )
        last = values[-loader.length :].T[None, None].astype(np.float32)
        one = chooser.placed(name, last, partial(_windows, loader, values))
        said, _ = trained.predict(last, one.like)
        content: dict[str, Any] = {"client": name, "model": one.model, "by": one.by}
        content |= {"sure": one.sure, "step": range(1, loader.horizon + 1)}
        parts.append(pd.DataFrame({**content, "predicted": said[0].numpy()}))
        placed.append(one)
    by_inputs = any(one.by == "inputs" for one in placed)
    frame = pd.concat(parts, ignore_index=True)
    return Predicted(frame, placed, rightly=chooser.rightly() if by_inputs else None)


def _windows(loader: Series, values: Values) -> tuple[NDArray[np.float32], Tensor]:
    """The windows of a series [steps, C], and what followed each; none of a short one."""
    if len(values) < loader.length + loader.horizon:
        return np.zeros((0, 1, values.shape[1], loader.length), np.float32), torch.zeros(0)
    past, ahead = loader.pairs(values)
    return past[:, None].astype(np.float32), torch.tensor(ahead, dtype=torch.float64)


def _client_column(trained: Trained) -> str:
    return str(trained.config["dataset"].get("client"))


def _label_columns(trained: Trained) -> list[str]:
    label = trained.config["dataset"].get("label", "label")
    return [label] if isinstance(label, str) else [str(one) for one in label]


def _read(trained: Trained, table: pd.DataFrame | Path, *, needs_client: bool) -> pd.DataFrame:
    """The table with all columns that are read; DataError if one is missing."""
    inputs, column = trained.inputs(), _client_column(trained)
    if isinstance(table, Path):
        words = [column, *(_label_columns(trained) if _of_classes(trained) else ())]
        frame = trained.table(table, inputs, words)
    else:
        frame = table
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"examples of type {type(frame).__name__}: give a pandas DataFrame")
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    if needs_client and column not in frame:
        raise DataError(
            f"the table has no column {column}, which names the client of every row: give client=, "
            "or add it"
        )
    if not len(frame):
        raise DataError("the table has no rows: give one or more")
    return frame


def _of_classes(trained: Trained) -> bool:
    return trained.task().targets == "classes"


def _names(values: Any, column: str, known: Collection[str]) -> list[str]:
    """Clients, or classes, as the job names them: 7.0 is 7, as whole numbers beside gaps become
    decimals, unless the job knows the text 7.0.
    """
    found = []
    for row, value in enumerate(values):
        is_gap = value is None or value != value or (isinstance(value, str) and not value.strip())
        if is_gap:
            raise DataError(f"the table has no value in column {column}, row {row + 1}: give one")
        is_whole = isinstance(value, float) and value.is_integer()
        name = str(int(value) if is_whole else value).strip()
        whole = name.removesuffix(".0")
        found.append(whole if name not in known and whole.lstrip("-").isdecimal() else name)
    return found


class _Chooser:
    """Chooses models for clients that a job did not know."""

    def __init__(self, trained: Trained) -> None:
        self._trained = trained
        self._known: Sequence[str] = trained.about["clients"]
        self._model = trained.models().numpy()
        used = sorted({int(one) for one in self._model if one >= 0})
        self._first = [int(np.flatnonzero(self._model == one)[0]) for one in used]
        self._inputs: list[NDArray[np.float64]] | None = None

    def placed(
        self, name: str, given: Any, labelled_of: Callable[[], tuple[Any, Tensor]]
    ) -> Placed:
        """The model of a client with these examples; of a new one `labelled_of` is asked, for those
        that have targets and these, see `Trained.losses`.
        """
        number = self._number(name)
        if number is not None and self._model[number] >= 0:
            return Placed(name, number, self._words(number), "own")
        trained = self._trained.for_new_client(given, name)
        require(bool(self._first), "the job", self._trained.folder, "one that serves a client")
        if len(self._first) == 1:
            return Placed(name, self._first[0], self._words(self._first[0]), "only")
        seed = self._trained.seed
        labelled, targets = labelled_of()
        if len(labelled):
            fit = by_loss(
                np.stack([trained.losses(labelled, targets, one).numpy() for one in self._first]),
                seed,
            )
            like = self._first[fit.place]
            return Placed(name, like, self._words(like), "labels", fit.sure, len(labelled))
        new = trained.pool(given, self._first[0])
        at = torch.arange(len(new.x))
        seen = new.inputs(at).flatten(1).double().numpy()
        own = [np.concatenate(self._of_model(int(self._model[one]))) for one in self._first]
        fit = by_inputs(seen, own, seed)
        like = self._first[fit.place]
        return Placed(name, like, self._words(like), "inputs", fit.sure)

    def rightly(self) -> tuple[int, int]:
        """See `placed_rightly`."""
        served = np.flatnonzero(self._model >= 0)
        inputs = self._known_inputs()
        own = [inputs[int(client)] for client in served]
        return placed_rightly(own, self._model[served], self._trained.seed)

    def _number(self, name: str) -> int | None:
        if name in self._known:
            return self._known.index(name)
        is_number = not self._known and name.isdecimal() and int(name) < len(self._model)
        return int(name) if is_number else None

    def _words(self, client: int) -> str:
        """The clients that use the model of one."""
        which = np.flatnonzero(self._model == self._model[client]).tolist()
        names = [self._known[one] if self._known else str(one) for one in which]
        return some_of(names, _MEMBERS, " + ")

    def _of_model(self, model: int) -> list[NDArray[np.float64]]:
        inputs = self._known_inputs()
        return [inputs[int(client)] for client in np.flatnonzero(self._model == model)]

    def _known_inputs(self) -> list[NDArray[np.float64]]:
        """Of every client of the job what the model sees of its rows, [N_i, F]."""
        if self._inputs is None:
            trained = self._trained
            config = {**trained.config, "seeds": [trained.seed]}
            fed = build(config, trained.user_dir).federations[trained.seed]
            self._inputs = []
            for client in range(fed.num_clients):
                rows = torch.cat([split.of_client(client) for split in fed.splits.values()])
                self._inputs.append(fed.pool.inputs(rows).flatten(1).double().cpu().numpy())
        return self._inputs


def _labelled(trained: Trained, rows: pd.DataFrame) -> tuple[pd.DataFrame, Tensor]:
    """The rows that have all targets, and these, see `Trained.losses`."""
    columns = _label_columns(trained)
    if any(name not in rows for name in columns):
        return rows[:0], torch.zeros(0)
    labelled = rows[rows[columns].notna().all(axis=1)]
    if not _of_classes(trained):
        numbers = labelled[columns].apply(pd.to_numeric, errors="coerce")
        if numbers.isna().to_numpy().any():
            raise DataError(f"the table has words in column {', '.join(columns)}: give numbers")
        return labelled, torch.tensor(numbers.to_numpy(dtype=np.float64))
    classes = trained.about["outputs"]["names"]
    words = _names(labelled[columns[0]], columns[0], classes)
    for word in words:
        if word not in classes:
            known = some_of(classes, 8)
            raise DataError(
                f"the table has {word} in column {columns[0]}: the job knows {known}; leave it "
                "empty where it is not known"
            )
    return labelled, torch.tensor([classes.index(one) for one in words], dtype=torch.int64)


def _said(trained: Trained, rows: pd.DataFrame, placed: Placed) -> pd.DataFrame:
    """The frame of one client's rows."""
    if placed.by != "own":
        trained = trained.for_new_client(rows, placed.client)
    said, names = trained.predict(rows, placed.like)
    values, targets = said.numpy(), trained.task().targets
    names = names or [str(place) for place in range(values.shape[1])]
    content: dict[str, Any] = {
        "client": placed.client,
        "model": placed.model,
        "by": placed.by,
        "sure": placed.sure,
    }
    if targets == "classes":
        content["predicted"] = [names[place] for place in values.argmax(1)]
    if targets == "numbers":
        only = len(names) == 1
        content |= {
            "predicted" if only else f"predicted_{name}": values[:, place]
            for place, name in enumerate(names)
        }
    else:
        content |= {f"p_{name}": values[:, place] for place, name in enumerate(names)}
    return pd.DataFrame(content, index=rows.index)

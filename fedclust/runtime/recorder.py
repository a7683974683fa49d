"""What a run leaves behind: every number of every round, every client's result, arrays.

`rounds.csv` grows by rounds, `clients.parquet` by parts joined at the end, so memory does not grow.
`commit` ties both to a checkpoint by digests; `resume` cuts off what was written after it, so that
a run that continues ends with the bytes of an uninterrupted one.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from fedclust.core.tracker import Tracker
from fedclust.core.types import Cost, Evaluation, Predictions, Round
from fedclust.helpers.errors import RunFolderError
from fedclust.helpers.files import Sealed, atomic_write, new_digest, replacing, sync, sync_folder
from fedclust.helpers.ops import on_host
from fedclust.metrics import OURS, meaning
from fedclust.metrics.accuracy import accuracy, validation_accuracy
from fedclust.metrics.after_change import AfterChange
from fedclust.metrics.judged import Judged, judged, meanings, pictures_of
from fedclust.metrics.meanings import NAME, write_meanings
from fedclust.metrics.recovery import apart, churn, recovery, share_error, sizes
from fedclust.metrics.score_pictures import PICTURES
from fedclust.metrics.scores import Measure
from fedclust.metrics.summary import write_summary
from fedclust.runtime.client_table import (
    ROW_GROUP,
    client_rows,
    join_parts,
    with_scores,
    write_part,
    write_predictions,
)

_BLOCK = 1 << 20  # bytes read at once
HEADER = b"seed,round,metric,value\n"


class Recorder:
    """Writes the files of one job; used from one thread, with rounds in ascending order.

    Args:
        num_params: P with running statistics, for the bytes of a model transfer.
        tracker: further sink of the same numbers, which has begun.
    """

    def __init__(
        self,
        folder: Path,
        seeds: Sequence[int],
        num_params: int,
        tracker: Tracker,
        scores: Sequence[Measure] = (),
    ) -> None:
        self._scores = scores
        self._folder = folder
        self._seeds = tuple(seeds)
        self._num_params = num_params
        self._tracker = tracker
        self._file: BinaryIO | None = None
        # by round, of a seed and metric
        self._pending: dict[int, dict[tuple[int, str], float]] = {}
        # by round and seed, since the last part
        self._clients: dict[tuple[int, int], pa.Table] = {}
        self._parts: dict[str, Sealed] = {}
        self._written = new_digest()  # of rounds.csv
        self._told: set[str] = set()  # metrics of a user's own that metrics.json explains
        self._flushed = -1  # the last round that is in rounds.csv
        self._open = True
        self._label: dict[int, Tensor] = {}  # seed → labels at its last evaluation
        self._after: dict[int, AfterChange] = {}  # seed → its last change, where there are any
        self._latest: dict[int, tuple[int, dict[str, float]]] = {}  # seed → its last round, values

    def start(self) -> None:
        """Begins the files anew, whatever an earlier try has left of them."""
        self._close_file()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._drop_parts(keep=())
        for name in ("clients.parquet", "summary.csv", NAME):
            (self._folder / name).unlink(missing_ok=True)
        self._file = (self._folder / "rounds.csv").open("wb")
        self._written = new_digest()
        self._write(HEADER)
        self._file.flush()
        sync_folder(self._folder)

    def cost(self, seed: int, t: int, report: Cost) -> None:
        """Record an algorithm's call; those of a round add up. ConfigError for unknown notes."""
        transfers = report.models_down + report.models_up
        floats = report.floats_down + report.floats_up
        self._add(seed, t, "models_down", report.models_down)
        self._add(seed, t, "models_up", report.models_up)
        whole = 4 * (self._num_params * transfers + floats)
        self._add(seed, t, "bytes", whole + report.bits_up / 8)
        self._add(seed, t, "scalars_up", report.scalars_up)
        self._add(seed, t, "gradient_steps", report.gradient_steps)
        self._add(seed, t, "forward_passes", report.forward_passes)
        self._add(seed, t, "backward_passes", report.backward_passes)
        values = {name: float(value) for name, value in report.notes.items()}
        if not math.isnan(report.train_loss):
            values["train_loss"] = report.train_loss
        self._put(seed, t, values)
        for name, array in report.arrays.items():
            self._save(seed, name, array.detach().cpu().numpy())

    def evaluate(
        self, rnd: Round, evaluation: Evaluation, predictions: Predictions | None = None
    ) -> dict[str, float]:
        """The metrics of an evaluation, by name, recorded with a row per client and scores."""
        shares = share_error(evaluation, rnd)
        rnd, evaluation = _on_host(rnd, evaluation)
        values = accuracy(evaluation, rnd) | recovery(evaluation, rnd) | sizes(evaluation, rnd)
        values |= shares | apart(evaluation, rnd) | self._churn(rnd.seed, evaluation.served.label)
        if rnd.is_change is not None:
            values |= self._after_change(rnd.seed).evaluated(rnd, evaluation)
        scored = Judged()
        if predictions is not None:
            scored = judged(predictions, self._scores, rnd.fed.num_clients)
            values = scored.values | values  # what the task records, it says best
            for name in pictures_of(self._scores):
                picture = PICTURES[name](
                    predictions.targets.numpy(), predictions.predictions.numpy()
                )
                self._save(rnd.seed, f"score_{name}", picture)
        self._put(rnd.seed, rnd.t, values)
        names = [one.about.name for one in self._scores if meanings(one)]
        rows = with_scores(client_rows(rnd, evaluation), names, scored.clients)
        self._clients[rnd.t, rnd.seed] = rows
        return values

    def _save(self, seed: int, name: str, array: NDArray[Any]) -> None:
        """Keep an array beside the run, in place of an older one."""
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        atomic_write(self._folder / "arrays" / f"seed={seed}" / f"{name}.npy", buffer.getvalue())

    def keep(self, rnd: Round, predictions: Predictions) -> None:
        """Writes what is said of every test example."""
        write_predictions(
            self._folder / "predictions" / f"seed={rnd.seed}.parquet", rnd.seed, predictions
        )

    def validate(
        self, rnd: Round, validation: Evaluation, predictions: Predictions | None = None
    ) -> None:
        """Records what is served on the validation examples, and the scores of predictions."""
        values = validation_accuracy(validation, rnd.fed.pool.task)
        if predictions is not None:
            scored = judged(predictions, self._scores, rnd.fed.num_clients).values
            names = [one.about.name for one in self._scores]
            values = {
                f"validation_{name}": scored[name] for name in names if name in scored
            } | values
        self._put(rnd.seed, rnd.t, values)

    def change(self, rnd: Round, untrained: Evaluation) -> None:
        """Records how the clients fare whose data have just changed, before the round trains."""
        self._put(rnd.seed, rnd.t, self._after_change(rnd.seed).change(rnd, untrained))

    def seconds(self, seed: int, t: int, value: float) -> None:
        """Records the wall-clock time of round t, this seed's share of it."""
        self._put(seed, t, {"seconds": value})

    def latest(self) -> dict[str, float]:
        """The values of the newest round by metric: means over the seeds that are still running."""
        newest = max((t for t, _ in self._latest.values()), default=0)
        running = [values for t, values in self._latest.values() if t == newest]
        names = dict.fromkeys(name for values in running for name in values)
        return {name: fmean(v[name] for v in running if name in v) for name in names}

    def commit(self) -> dict[str, Any]:
        """Where the files stand, for a checkpoint: JSON-able, and safe on the disk before this
        returns.

        Raises:
            RunFolderError: when somebody has deleted or replaced a file meanwhile.
        """
        self._flush(max(self._pending, default=-1))
        self._spill()
        file = self._opened()
        sync(file.fileno())
        self._check_there()
        size, parts = file.tell(), list(self._parts)
        seals = {f"clients/{name}": seal for name, seal in self._parts.items()}
        seals["rounds.csv"] = Sealed(size, self._written.hexdigest())
        return {"rounds_csv": size, "parts": parts, "round": self._flushed, "files": seals}

    def _check_there(self) -> None:
        """Notice files that were deleted or replaced while the job ran."""
        path = self._folder / "rounds.csv"
        try:
            same = os.path.samestat(path.stat(), os.fstat(self._opened().fileno()))
        except FileNotFoundError:
            same = False
        lost = [name for name in self._parts if not (self._folder / "clients" / name).is_file()]
        if lost or not same:
            gone = self._folder / "clients" / lost[0] if same else path
            raise RunFolderError(
                f"{gone} was deleted or replaced while the job ran; delete the folder and start "
                "the job again"
            )

    def resume(self, position: Mapping[str, Any], state: Mapping[int, Mapping[str, Any]]) -> None:
        """Cut the files back to where `commit` returned `position`, checked by `RunFolder.load`.

        RunFolderError where the files hold less than the checkpoint says.
        """
        path, size = self._folder / "rounds.csv", int(position["rounds_csv"])
        parts = {name: Sealed(*position["files"][f"clients/{name}"]) for name in position["parts"]}
        there = all((self._folder / "clients" / name).is_file() for name in parts)
        if not there or not path.is_file() or path.stat().st_size < size:
            raise RunFolderError(
                f"{self._folder} cannot be continued: rounds.csv or clients/ holds less than its "
                f"checkpoint says; delete it, or choose another name=…"
            )
        self._drop_parts(keep=tuple(parts))
        for name in ("clients.parquet", "summary.csv"):
            (self._folder / name).unlink(missing_ok=True)
        self._pending.clear()
        self._clients.clear()
        self._parts = parts
        self._close_file()
        self._file = path.open("r+b")
        self._written = new_digest()
        while left := size - self._file.tell():
            self._written.update(self._file.read(min(left, _BLOCK)))
        self._file.truncate(size)
        self._flushed = int(position["round"])
        self.load(state)

    def state(self) -> dict[int, dict[str, Tensor]]:
        """For a checkpoint, per seed: labels [M] of its last evaluation, and its last change."""
        kept = {seed: {"label": label.clone()} for seed, label in self._label.items()}
        for seed, after in self._after.items():
            kept.setdefault(seed, {}).update(after.state())
        return kept

    def load(self, state: Mapping[int, Mapping[str, Any]]) -> None:
        """Takes over what `state` returned."""
        self._label = {
            seed: kept["label"].cpu().clone() for seed, kept in state.items() if "label" in kept
        }
        self._after = {
            seed: AfterChange.of(kept) for seed, kept in state.items() if "changed" in kept
        }

    def finish(self) -> None:
        """Completes `clients.parquet` and `summary.csv` and closes everything.

        Row groups are joined one by one from parts, which stay: a second call gives the same.
        """
        self.commit()
        self._close_file()
        if self._parts:
            with replacing(self._folder / "clients.parquet") as temporary:
                join_parts([self._folder / "clients" / name for name in self._parts], temporary)
        write_summary(self._folder)
        self.close()

    def close(self) -> None:
        """Closes the files of a run that stops early and keeps what is written."""
        if not self._open:
            return
        self._open = False
        if self._file is not None and not self._file.closed:
            self._flush(max(self._pending, default=-1))
        self._close_file()

    def _add(self, seed: int, t: int, metric: str, value: float) -> None:
        earlier = self._pending.get(t, {}).get((seed, metric), 0.0)
        self._put(seed, t, {metric: earlier + value})

    def _put(self, seed: int, t: int, values: Mapping[str, float]) -> None:
        for metric in values:
            meaning(metric, "metric")
        if self._pending and t > max(self._pending):
            self._flush(t - 1)
        self._pending.setdefault(t, {}).update({(seed, m): float(v) for m, v in values.items()})
        last, others = self._latest.get(seed, (t, {}))
        own = {m: float(v) for m, v in values.items()}
        self._latest[seed] = t, (others | own if last == t else own)

    def _flush(self, until: int) -> None:
        """Write all rounds up to `until`, sorted by round, seed and metric."""
        file = self._opened()
        for t in sorted(t for t in self._pending if t <= until):
            rows = sorted(self._pending.pop(t).items())
            own = {metric for (_, metric), _ in rows} - OURS - self._told
            if own:
                self._told |= own
                write_meanings(self._folder, self._told)
            lines = [f"{seed},{t},{metric},{value!r}\n" for (seed, metric), value in rows]
            self._write("".join(lines).encode())
            by_seed: dict[int, dict[str, float]] = {}
            for (seed, metric), value in rows:
                by_seed.setdefault(seed, {})[metric] = value
            self._tracker.log(t, by_seed)
            self._flushed = t
        file.flush()
        if sum(len(rows) for rows in self._clients.values()) >= ROW_GROUP:
            self._spill()

    def _spill(self) -> None:
        """Move the client rows of the rounds that are in rounds.csv to a part of their own."""
        ready = sorted(key for key in self._clients if key[0] <= self._flushed)
        if ready:
            rows = pa.concat_tables([self._clients.pop(key) for key in ready])
            name, seal = write_part(rows, self._folder / "clients", len(self._parts))
            self._parts[name] = seal

    def _write(self, text: bytes) -> None:
        """Append to rounds.csv."""
        self._opened().write(text)
        self._written.update(text)

    def _opened(self) -> BinaryIO:
        assert self._file is not None, "start or resume comes first"
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def _drop_parts(self, keep: Sequence[str]) -> None:
        folder = self._folder / "clients"
        if not folder.is_dir():
            return
        for path in folder.iterdir():
            if path.name not in keep:
                path.unlink()
        if not keep:
            folder.rmdir()

    def _after_change(self, seed: int) -> AfterChange:
        return self._after.setdefault(seed, AfterChange.nothing())

    def _churn(self, seed: int, label: Tensor) -> dict[str, float]:
        before, self._label[seed] = self._label.get(seed), label.clone()
        if before is None or len(before) != len(label):
            return {}
        both = (before >= 0) & (label >= 0)
        if not bool(both.any()):
            return {}
        return {"churn": churn(before[both], label[both])}


def _on_host(rnd: Round, evaluation: Evaluation) -> tuple[Round, Evaluation]:
    """A round and its evaluation with all that is recorded in the host's memory, by one copy."""
    fed, served, test = rnd.fed, evaluation.served, evaluation
    label, loss_sum, sums, count, group, start = on_host(
        *(served.label, test.loss_sum, test.sums, test.count), *(fed.group, fed.train.start)
    )
    fed = replace(fed, group=group, train=replace(fed.train, start=start))
    served = replace(served, label=label)
    test = Evaluation(served=served, loss_sum=loss_sum, sums=sums, count=count)
    return replace(rnd, fed=fed), test

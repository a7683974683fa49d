"""The folder of one job: who may write it, which config it belongs to, and where the job stands.

    config.yaml, versions.json   the resolved config and its hash; package versions, commit, device
    status.json                  pending, running, done, failed or interrupted, with the round and
                                 the error
    checkpoints/                 the last two rounds, see `fedclust.runtime.checkpoints`
    checkpoints/done.json        digests of the results of a finished job, and of its data

A file that a finished job needs is sealed there, so that later damage is found.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import torch

from fedclust.config.read import read_config, written
from fedclust.config.schema import ENGINES, differing, relevant, spelt_as
from fedclust.helpers.errors import FolderInUse, RunFolderError, counted, typed
from fedclust.helpers.files import (
    Sealed,
    atomic_write,
    harmless,
    is_litter,
    opened_json,
    replacing,
    sealed_file,
    sealed_json,
)
from fedclust.helpers.locks import LOCK, is_free, lock, without_locks
from fedclust.helpers.names import USER_FILES
from fedclust.metrics.meanings import NAME as METRICS_FILE
from fedclust.metrics.summary import write_summary
from fedclust.runtime.checkpoints import ANEW, WAY_OUT, Checkpoint, Checkpoints
from fedclust.runtime.inputs import code_of, data_files
from fedclust.runtime.versions import Changes, engine_of, files_changed_since, write_versions


def config_hash(config: Mapping[str, Any]) -> str:
    """Hash of everything in the resolved config that can change a result."""
    return hashlib.sha256(json.dumps(relevant(config), sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class RunFolder:
    """One job's folder.

    Attributes:
        config: the resolved config the folder must belong to.
        user_dir: the folder given with --config-dir, whose files can change a result too.
        changes: what computed it before and is another now.
        remarks: what was found damaged and is repaired or passed over, a line each.
        data: digests of the examples and of who owns what, by name, kept with every checkpoint.
        finished_here: whether this process has computed its last round.
    """

    path: Path
    config: Mapping[str, Any]
    user_dir: Path | None = None
    changes: Changes = field(default_factory=Changes)
    remarks: list[str] = field(default_factory=list)
    data: Mapping[str, str] = field(default_factory=dict)
    finished_here: bool = False
    _lock: BinaryIO | None = None
    _was_empty: bool | None = None  # before this process wrote to it; None where nobody has looked
    _before: frozenset[str] = frozenset()  # what was there then
    _found: Checkpoint | None = None
    _files: dict[str, Sealed] = field(default_factory=dict)
    _data_files: dict[str, str] = field(init=False)  # as they look before anybody reads them

    def __post_init__(self) -> None:
        self._data_files = data_files(self.config)

    @property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path, config_hash(self.config))

    @property
    def status(self) -> dict[str, Any]:
        """What status.json says; state `pending` where there is none, `unknown` if changed."""
        try:
            text = harmless(self.path / "status.json").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return {"state": "pending"}
        return opened_json(text, "state") or {"state": "unknown"}

    def engine(self) -> str:
        """What is to compute the job: where that is chosen by itself, what began it."""
        asked, begun = str(self.config["engine"]), engine_of(self.path / "versions.json")
        return begun if asked == "auto" and begun in ENGINES else asked

    def is_done(self) -> bool:
        """Whether the job is finished and its results are whole, as far as its checkpoints tell."""
        status, file, sealed = self.status, self._done_file, self._done
        self.remarks.clear()
        if sealed is None:
            if file.is_file():
                self.remarks.append(f"{file} is damaged, so the results were not compared with it")
            done = status["state"] == "done" and all((self.path / n).is_file() for n in _NEEDED)
            if done:
                self._look_at_code()
            return done
        gone = []
        for name, seal in sealed["files"].items():
            file = self.path / name
            if Sealed(*seal).fits(file):
                continue
            if name in _NEEDED:
                self.remarks.append(f"{file} is damaged, changed by hand or gone")
                return False
            if name == "summary.csv":
                write_summary(self.path)
                self.remarks.append(f"{file} {_AGAIN}")
            elif file.is_file():
                self.remarks.append(f"{file} is damaged or was changed by hand")
            else:
                gone.append(name)
        if gone:
            more = f" and {counted(len(gone) - 1, 'file')} more are" if gone[1:] else " is"
            self.remarks.append(f"{self.path / gone[0]}{more} gone; the results are whole")
        for file in self._checkpoints.changed_states():
            self.remarks.append(f"{file}, trained weights, is damaged; the results are whole")
        if status["state"] != "done":
            if status["state"] == "unknown":
                self.remarks.append(f"{self.path / 'status.json'} {_AGAIN}")
            self.write_status(**sealed["status"])
        self._drop_parts()
        self._look_at_code()
        return True

    @property
    def _done_file(self) -> Path:
        return self.path / "checkpoints" / "done.json"

    @property
    def _done(self) -> dict[str, Any] | None:
        """What done.json says; None where there is none, or it was changed."""
        try:
            return opened_json(harmless(self._done_file).read_bytes(), *_SEALED)
        except OSError:
            return None

    def _look_at_code(self) -> None:
        """Remark on a user's code that has changed since it computed a finished job."""
        if self.user_dir is None:
            return
        now = code_of(self.config, self.user_dir)
        changed = files_changed_since(self.path / "versions.json", now)
        if changed:
            self.remarks.append(
                f"{', '.join(changed)} changed since {self.path} was computed: its numbers are "
                "those of the old code; to compute it anew, delete the folder, or choose another "
                "name=…"
            )

    def has_touched_data(self) -> bool:
        """Whether data files were written since a finished job read them; see `confirm_data`."""
        done = self._done or {}
        known = done.get("data_files", {})
        return "data" in done and any(
            known.get(key) != looks for key, looks in self._data_files.items()
        )

    def confirm_data(self, data: Mapping[str, str]) -> None:
        """Refuse a finished job whose data are others now, naming what has changed."""
        done = self._done
        assert done is not None
        self._refuse_others(done["data"], data, "computed")
        with suppress(OSError):  # a folder that nobody may write is compared each time
            atomic_write(self._done_file, sealed_json({**done, "data_files": self._data_files}))

    def check(self) -> None:
        """RunFolderError for a folder that belongs to another config, or to no job at all."""
        file = self.path / "config.yaml"
        if not file.is_file():
            self._check_foreign()
            return
        self._was_empty = False
        try:
            there = read_config(file)
        except Exception as error:  # any YAML error means the same to the user
            raise RunFolderError(
                f"{file} is unreadable ({type(error).__name__}); {WAY_OUT}"
            ) from None
        known = there.pop("hash", None) if isinstance(there, dict) else None
        if known is None:
            raise RunFolderError(f"{file} is damaged: its hash, the last line, is gone; {WAY_OUT}")
        if config_hash(there) != known:
            raise RunFolderError(
                f"{file} was changed by hand: its values and its hash differ; {WAY_OUT}"
            )
        if asked := _not_asked(there, self.config):
            raise RunFolderError(
                f"{self.path} was computed without {asked}, so its files lack that; {WAY_OUT}"
            )
        if known == config_hash(self.config):
            return
        if key := differing(there, self.config):
            raise RunFolderError(f"{self.path} belongs to another config, by {key}; {WAY_OUT}")
        self.config = spelt_as(self.config, there)

    def renew(self) -> None:
        """Make a finished job's report what its config asks for now; the rest stays."""
        file, sealed = self.path / "config.yaml", self._done
        seal = sealed["files"].pop(file.name, None) if sealed else None
        if seal and not Sealed(*seal).fits(file):
            return  # changed by hand, which the report says
        text = self._text_renewed()
        if sealed and text is not None:  # a kill leaves it without a seal, not with an old one
            atomic_write(self._done_file, sealed_json(sealed))
        if text is not None:
            atomic_write(file, text)
        if sealed and (text is not None or seal is None):
            sealed["files"][file.name] = _seal(file)
            atomic_write(self._done_file, sealed_json(sealed))

    def _text(self) -> str:
        """The config with its hash, which shows whether it was changed by hand."""
        return written({**self.config, "hash": config_hash(self.config)})

    def _text_renewed(self) -> str | None:
        """The config on the disk with the report asked for now; None where that is the same."""
        there = read_config(self.path / "config.yaml")
        assert isinstance(there, dict)
        asked = {name: self.config.get(name) for name in _REPORTED}
        asked["tags"] = {**(there.get("tags") or {}), **(asked["tags"] or {})}
        if all(there.get(name) == value for name, value in asked.items()):
            return None
        return written({**there, **asked})

    def _check_foreign(self) -> None:
        """Refuse a folder with files that no job has written."""
        if self._was_empty:  # seen before; a tracker may have begun to write
            return
        there = list(self.path.iterdir()) if self.path.is_dir() else []
        self._before = frozenset(path.name for path in there)
        mine = [p for p in there if p.name not in _BEFORE_CONFIG and not is_litter(p)]
        if mine:
            raise RunFolderError(
                f"{self.path} is not empty ({min(mine).name}) and holds no job; choose another "
                "name=…"
            )
        self._was_empty = True

    def acquire(self, versions: Mapping[str, Any]) -> bool:
        """Create the folder, lock it against other processes and write what it belongs to.

        Returns:
            False where another process has finished the job meanwhile: nothing is left to do.

        Raises:
            RunFolderError: if the folder cannot be written, is locked, belongs to another config,
                or has checkpoints of which none is whole.
        """
        self.check()
        remarks = self._take_lock()
        try:
            self.check()  # whoever had the lock before may have written all of it
            if self.is_done():
                self.release()
                return False
            self._found = self._checkpoints.newest(self.remarks)
            self.remarks += remarks
        except RunFolderError:
            self.release()
            raise
        self._look_at_status()
        self._tidy()
        file = self.path / "config.yaml"
        seal = self._found.files.get(file.name) if self._found else None
        whole = self._found is not None and (seal is None or seal.fits(file))
        renewed = self._text_renewed() if whole else None
        if renewed is None:
            self.keep(file.name, lambda file: file.write_text(self._text(), encoding="utf-8"))
        else:
            self._checkpoints.unseal(file.name)
            atomic_write(file, renewed)
            self._files[file.name] = _seal(file)
        users = {} if self.user_dir is None else {USER_FILES: code_of(self.config, self.user_dir)}
        self.changes = write_versions(self.path / "versions.json", {**versions, **users})
        return True

    def _take_lock(self) -> list[str]:
        """Lock the folder, made if need be, or RunFolderError; returns what to know of the lock."""
        file, remarks = self.path / LOCK, list[str]()
        try:
            while self._lock is None:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = file.open("ab")
                if not lock(self._lock):
                    remarks += without_locks(self._lock)
                there = file.stat() if file.is_file() else None
                if there is None or not os.path.samestat(there, os.fstat(self._lock.fileno())):
                    self.release()  # whoever had it has deleted the folder
        except BlockingIOError:
            self.release()
            raise self._in_use() from None
        except OSError as error:
            self.release()
            raise RunFolderError(
                f"{self.path} cannot be written ({error.strerror}): run in another "
                "folder, or change name=…"
            ) from None
        return remarks

    def check_unused(self) -> None:
        """Refuse a folder that another process writes, before anything is computed for it."""
        if (self.path / LOCK).is_file() and not is_free(self.path / LOCK):
            raise self._in_use()

    def _in_use(self) -> FolderInUse:
        return FolderInUse(
            f"{self.path} is being written by another process; wait, or change name=…"
        )

    def _look_at_status(self) -> None:
        """Remark on a status that does not fit the checkpoints."""
        status = self.status
        if status["state"] == "unknown":
            self.remarks.append(
                f"{self.path / 'status.json'} is damaged or was changed by hand; the checkpoints "
                "say where the job stands"
            )
        elif self._found is None and status.get("rounds_done") and ANEW not in str(self.remarks):
            self.remarks.append(f"the checkpoints of {self.path} are gone; {ANEW}")

    def _tidy(self) -> None:
        """Delete what a process that was killed left half written."""
        for path in self.path.glob("checkpoints/round=*.partial"):
            shutil.rmtree(path, ignore_errors=True)
        for path in filter(is_litter, self.path.rglob(".*")):
            path.unlink(missing_ok=True)
        self._done_file.unlink(missing_ok=True)

    def keep(self, name: str, write: Callable[[Path], object]) -> None:
        """Make sure of a file that follows from the job alone: written once and where damaged."""
        file = self.path / name
        sealed = self._found.files.get(name) if self._found is not None else None
        if sealed is None or not sealed.fits(file):
            if sealed is not None:
                self.remarks.append(f"{file} {_AGAIN}")
            with replacing(file) as temporary:
                write(temporary)
            sealed = _seal(file)
        self._files[name] = sealed

    def same_data(self, data: Mapping[str, str]) -> None:
        """Refuse to continue with other data than before; RunFolderError names what has changed."""
        self.data = dict(data)
        self._refuse_others({} if self._found is None else self._found.data, data, "begun")

    def _refuse_others(self, before: Mapping[str, str], now: Mapping[str, str], how: str) -> None:
        # earlier versions wrote fewer
        changed = [what for what in now if before.get(what, now[what]) != now[what]]
        if changed:
            raise RunFolderError(
                f"{self.path} was {how} with other data ({changed[0]} changed); bring them back, "
                f"{WAY_OUT}"
            )

    def release(self) -> None:
        """Let other processes write the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def abandon(self) -> None:
        """Delete what this job wrote where the folder was new or empty, and nothing else."""
        if not self._was_empty or self._lock is None:
            return
        for path in [path for path in self.path.iterdir() if path.name not in self._before]:
            if path.name in _OWN_FOLDERS and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name in _OWN_FILES or is_litter(path):
                path.unlink()
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def write_status(self, **status: Any) -> None:
        """Replace status.json, unless the whole folder has been deleted meanwhile."""
        if self.path.is_dir():
            atomic_write(self.path / "status.json", sealed_json(status))

    def save(
        self, t: int, seeds: Mapping[int, Mapping[str, Any]], position: Mapping[str, Any]
    ) -> None:
        """Make round t the newest checkpoint, see `Checkpoints.save`."""
        self._checkpoints.save(t, seeds, position, self.data, self._files)

    def load(
        self, device: torch.device
    ) -> tuple[int, dict[int, dict[str, Any]], dict[str, Any]] | None:
        """The newest whole checkpoint: round, content per seed, recorder position; else None.

        Raises:
            RunFolderError: if all are damaged.
        """
        remarks = self.remarks if self._lock is None else []  # `acquire` has told
        checkpoint = self._checkpoints.newest(remarks) if self._found is None else self._found
        if checkpoint is None:
            return None
        seeds = self._checkpoints.load(checkpoint, device)
        return checkpoint.round, seeds, dict(checkpoint.position)

    def finish(self, status: Mapping[str, Any]) -> None:
        """Seal the results, then say that the job is done."""
        results = [self.path / name for name in (*_NEEDED, "summary.csv", METRICS_FILE)]
        files = {file.name: _seal(file) for file in results if file.is_file()}
        kept = (self.path / "arrays").rglob("*.npy"), (self.path / "predictions").glob("*.parquet")
        files |= {str(file.relative_to(self.path)): _seal(file) for file in sorted(chain(*kept))}
        files = {**self._files, **files}
        done = sealed_json(
            {"files": files, "status": status, "data": self.data, "data_files": self._data_files}
        )
        atomic_write(self._done_file, done)
        self.write_status(**status)
        self.finished_here = True
        self._drop_parts()

    def _drop_parts(self) -> None:
        """Delete the parts of a table that has been joined."""
        shutil.rmtree(self.path / "clients", ignore_errors=True)


def _not_asked(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What is asked for now and was not, of what a job records beside its results, or ""."""
    for name in ("discrepancy", "predictions"):
        if now.get(name) and not there.get(name):
            return typed(name, True)
    before = there.get("scores") or ()
    more = [score for score in now.get("scores") or () if score not in before]
    if more:
        return typed("scores", more)
    every = now.get("score_every")
    return "" if every in (None, there.get("score_every")) else typed("score_every", every)


def _seal(file: Path) -> Sealed:
    """The seal of a file that is there."""
    sealed = sealed_file(file)
    assert sealed is not None
    return sealed


_AGAIN = "was damaged, changed by hand or gone, and is written again"
_SEALED = ("files", "status")  # in done.json
_REPORTED = ("report", "tags")  # what only a report reads of a config
_NEEDED = ("rounds.csv", "clients.parquet")  # of a job that is done, for its report
# what a job and its trackers write before the first round
_OWN_FILES = (
    *(LOCK, "config.yaml", "versions.json", "status.json", "federation.json", METRICS_FILE),
    *("rounds.csv", "clients.parquet", "summary.csv", "tracker.json"),
)
_OWN_FOLDERS = (
    *("checkpoints", "clients", "arrays", "predictions", "partition", "inputs"),
    *("wandb", "tensorboard", "mlruns"),
)
# what a process that was killed at once can have left, or Hydra makes
_BEFORE_CONFIG = (LOCK, "multirun.yaml")

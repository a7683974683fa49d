"""The folder of one job: who may write it, which config it belongs to, and where the job stands.

    config.yaml, versions.json   the resolved config and its hash; package versions, commit, device
    status.json                  pending, running, done, failed or interrupted, with the round and
                                 the error
    checkpoints/round=<t>/       one file per seed, and record.json: their digests, and those of
                                 all other files as they were at that round
    checkpoints/latest.json      the newest complete round, a copy of its record
    checkpoints/done.json        digests of the results of a finished job

A round becomes the newest only when all its files are on disk and `latest.json` has been replaced,
so a process that dies at any moment leaves either the old or the new round, never half of one. The
round before is kept too: a job whose newest checkpoint is damaged continues from there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from omegaconf import OmegaConf
from torch import Tensor

from fedclust.config.schema import MOVED, relevant
from fedclust.errors import RunFolderError
from fedclust.files import (
    Sealed,
    atomic_write,
    is_litter,
    new_digest,
    opened_json,
    replacing,
    sealed_file,
    sealed_json,
)
from fedclust.metrics.summary import write_summary


def config_hash(config: Mapping[str, Any]) -> str:
    """Hash of everything in the resolved config that can change a result."""
    return hashlib.sha256(json.dumps(relevant(config), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete round on disk.

    Attributes:
        round: the last round that is complete.
        seeds: digest of the file of every seed.
        position: where the recorder's files ended.
        data: digests of the examples and of who owned what, by name.
        files: seals of all other files as they were then, by path in the job's folder.
    """

    round: int
    seeds: Mapping[int, str]
    position: Mapping[str, Any]
    data: Mapping[str, str]
    files: Mapping[str, Sealed]


@dataclass
class RunFolder:
    """One job's folder.

    Attributes:
        path: the folder.
        config: the resolved config the folder must belong to.
        user_dir: the folder given with --config-dir, whose files can change a result too.
        changes: what computed it before and is another now, in words; empty if nothing.
        remarks: what was found damaged and is repaired or passed over, a line each.
        data: digests of the examples and of who owns what, by name, kept with every checkpoint.
    """

    path: Path
    config: Mapping[str, Any]
    user_dir: Path | None = None
    changes: str = ""
    remarks: list[str] = field(default_factory=list)
    data: Mapping[str, str] = field(default_factory=dict)
    _lock: BinaryIO | None = None
    _was_empty: bool | None = None  # before this process wrote to it; None where nobody has looked
    _found: Checkpoint | None = None
    _files: dict[str, Sealed] = field(default_factory=dict)

    @property
    def status(self) -> dict[str, Any]:
        """What status.json says; state `pending` where there is none, `unknown` where it was
        changed.
        """
        try:
            text = (self.path / "status.json").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return {"state": "pending"}
        return opened_json(text) or {"state": "unknown"}

    def is_done(self) -> bool:
        """Whether the job is finished and its results are as it left them.

        A status.json that says otherwise is written again. Where the checkpoints have been deleted
        the status alone decides.
        """
        status, file = self.status, self.path / "checkpoints" / "done.json"
        self.remarks.clear()
        try:
            sealed = opened_json(file.read_bytes())
        except OSError:
            sealed = None
        if sealed is None:
            if file.is_file():
                self.remarks.append(f"{file} is damaged, so the results were not compared with it")
            return status["state"] == "done" and all((self.path / n).is_file() for n in _NEEDED)
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
        if status["state"] != "done":
            if status["state"] == "unknown":
                self.remarks.append(f"{self.path / 'status.json'} {_AGAIN}")
            self.write_status(**sealed["status"])
        self._drop_parts()
        return True

    def check(self) -> None:
        """Refuse a folder that belongs to another config, or to no job at all.

        Raises:
            RunFolderError: naming the folder and the way out.
        """
        file = self.path / "config.yaml"
        if not file.is_file():
            self._check_foreign()
            return
        self._was_empty = False
        try:
            there: Any = OmegaConf.to_container(OmegaConf.load(file))
        except Exception as error:  # any YAML error means the same to the user
            raise RunFolderError(
                f"{file} is unreadable ({type(error).__name__}); {_WAY_OUT}"
            ) from None
        known = there.pop("hash", None) if isinstance(there, dict) else None
        if known == config_hash(self.config):
            if config_hash(there) != known:
                raise RunFolderError(
                    f"{file} was changed by hand: its values and its hash differ; {_WAY_OUT}"
                )
            return
        old = [name for name in MOVED if name in there] if isinstance(there, dict) else []
        if old:
            raise RunFolderError(
                f"{self.path} was written by an earlier version: {old[0]} is "
                f"{MOVED[old[0]]} now; {_WAY_OUT}"
            )
        raise RunFolderError(f"{self.path} belongs to another config; {_WAY_OUT}")

    def _check_foreign(self) -> None:
        """Refuse a folder with files that no job has written."""
        if self._was_empty:  # seen before; a tracker may have begun to write
            return
        there = list(self.path.iterdir()) if self.path.is_dir() else []
        mine = [p for p in there if p.name not in _BEFORE_CONFIG and not is_litter(p)]
        if mine:
            raise RunFolderError(
                f"{self.path} is not empty ({min(mine).name}) and holds no job; choose another "
                "name=…"
            )
        self._was_empty = True

    def acquire(self, versions: Mapping[str, Any]) -> None:
        """Create the folder, lock it against other processes and write what it belongs to.

        Raises:
            RunFolderError: if the folder cannot be written, is locked, belongs to another config,
                or has checkpoints of which none is whole.
        """
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise RunFolderError(
                f"{self.path} is being written by another process; wait, or change name=…"
            ) from None
        except OSError as error:
            self.release()
            raise RunFolderError(
                f"{self.path} cannot be written ({error.strerror}); change name=…"
            ) from None
        try:
            self._found = self._newest()
        except RunFolderError:
            self.release()
            raise
        self._look_at_status()
        self._tidy()
        text = OmegaConf.to_yaml(
            OmegaConf.create({**self.config, "hash": config_hash(self.config)})
        )
        self.keep("config.yaml", lambda file: file.write_text(text))
        self._write_versions(versions)

    def _look_at_status(self) -> None:
        """Remark on a status that does not fit the checkpoints."""
        status = self.status
        if status["state"] == "unknown":
            self.remarks.append(
                f"{self.path / 'status.json'} is damaged or was changed by hand; the checkpoints "
                "say where the job stands"
            )
        elif self._found is None and status.get("rounds_done"):
            self.remarks.append(f"the checkpoints of {self.path} are gone; the job begins anew")

    def _tidy(self) -> None:
        """Delete what a process that was killed left half written."""
        for path in [*self.path.rglob(".*.tmp"), *self.path.glob("checkpoints/*.partial")]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif is_litter(path):
                path.unlink(missing_ok=True)
        (self.path / "checkpoints" / "done.json").unlink(missing_ok=True)

    def keep(self, name: str, write: Callable[[Path], object]) -> None:
        """Make sure of a file that follows from the job alone: written before round 0, and again
        where it is damaged.

        Args:
            name: path in the folder.
            write: writes the file at the path it is given.
        """
        file = self.path / name
        sealed = self._found.files.get(name) if self._found is not None else None
        if sealed is None or not sealed.fits(file):
            if sealed is not None:
                self.remarks.append(f"{file} {_AGAIN}")
            with replacing(file) as temporary:
                write(temporary)
            sealed = sealed_file(file)
        assert sealed is not None
        self._files[name] = sealed

    def same_data(self, data: Mapping[str, str]) -> None:
        """Refuse to continue with other data than before.

        Args:
            data: digests by what they are of.

        Raises:
            RunFolderError: naming what has changed.
        """
        self.data = dict(data)
        before = {} if self._found is None else self._found.data
        changed = [what for what in data if before and before.get(what) != data[what]]
        if changed:
            raise RunFolderError(
                f"{self.path} was begun with other data ({changed[0]} changed); bring them back, "
                f"{_WAY_OUT}"
            )

    def _write_versions(self, versions: Mapping[str, Any]) -> None:
        """What computes the job now, and what did before where that was something else."""
        file, before = self.path / "versions.json", {}
        if file.is_file():
            with suppress(RunFolderError):  # says nothing that the job needs
                before = _read_json(file)
        earlier = before.pop("before", [])
        users = {} if self.user_dir is None else {"user_files": digest_of_code(self.user_dir)}
        now = json.loads(json.dumps({**versions, **users}))
        self.changes = _changes(before, now) if before else ""
        if self.changes:
            earlier = [*earlier, before]
        content = {**now, "before": earlier} if earlier else now
        atomic_write(file, json.dumps(content, indent=2) + "\n")

    def release(self) -> None:
        """Let other processes write the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def abandon(self) -> None:
        """Delete the folder if it was missing or empty before: the job turned out to be impossible.

        A folder that held anything is left alone.
        """
        if self._was_empty and self._lock is not None:
            shutil.rmtree(self.path)

    def write_status(self, **status: Any) -> None:
        """Replace status.json, unless the whole folder has been deleted meanwhile."""
        if self.path.is_dir():
            atomic_write(self.path / "status.json", sealed_json(status))

    def save(
        self, t: int, seeds: Mapping[int, Mapping[str, Any]], position: Mapping[str, Any]
    ) -> None:
        """Make round t the newest checkpoint and keep the one before.

        Args:
            t: the last round that is complete.
            seeds: per seed a mapping of tensors, numbers, strings and None.
            position: where the recorder's files end at this round, JSON-able, with their seals
                under `files`.
        """
        root = self.path / "checkpoints"
        new = root / f"round={t}"
        partial = root / f"round={t}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        digests = {}
        whose = {"round": t, "config": config_hash(self.config)}
        for seed, content in seeds.items():
            digests[seed] = _save({**content, **whose, "seed": seed}, partial / f"seed={seed}.pt")
        record = sealed_json(
            {
                **whose,
                "seeds": digests,
                "position": position,
                "data": self.data,
                "files": {**self._files, **position.get("files", {})},
            }
        )
        (partial / "record.json").write_text(record)
        shutil.rmtree(new, ignore_errors=True)
        partial.rename(new)
        atomic_write(root / "latest.json", record)
        before = max((n for n in _rounds(root) if n < t), default=t)
        for old in root.glob("round=*"):
            if old.name not in (f"round={t}", f"round={before}"):
                shutil.rmtree(old, ignore_errors=True)

    def load(
        self, device: torch.device
    ) -> tuple[int, dict[int, dict[str, Any]], dict[str, Any]] | None:
        """The newest checkpoint: round, content per seed, recorder position; None where there is
        none.

        A damaged one is passed over with a remark.

        Raises:
            RunFolderError: if all are damaged.
        """
        found = self._newest() if self._found is None else self._found
        if found is None:
            return None
        seeds: dict[int, dict[str, Any]] = {}
        for seed in found.seeds:
            file = self.path / "checkpoints" / f"round={found.round}" / f"seed={seed}.pt"
            try:
                content = torch.load(file, map_location=device, weights_only=True)
            except Exception as error:  # torch raises many kinds; memory may be short, for one
                reason = " ".join(str(error).split())[:200]
                raise RunFolderError(f"{file} cannot be read ({reason}); {_WAY_OUT}") from None
            owner = (content.pop("seed"), content.pop("round"), content.pop("config"))
            assert owner == (seed, found.round, config_hash(self.config))
            seeds[seed] = content
        return found.round, seeds, dict(found.position)

    def _newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, with every other file it needs; None where there is
        none at all.

        Raises:
            RunFolderError: naming what is damaged, where nothing is left to continue from.
        """
        damage: list[str] = []
        tried: set[int] = set()
        for record in self._records():
            found = self._opened(record)
            if found is not None and found.round in tried:
                continue
            tried |= set() if found is None else {found.round}
            bad = f"{record} is damaged" if found is None else self._damage(found)
            if found is not None and bad is None:
                if damage:
                    self.remarks.append(
                        f"{damage[0]}; continued from the older checkpoint of round {found.round}"
                    )
                return found
            damage.append(str(bad))
        if not damage:
            return None
        damage = [*self.remarks[:1], *damage]  # a finished job has more to say
        older = f", and so is the older checkpoint ({damage[-1]})" if len(damage) > 1 else ""
        raise RunFolderError(f"{damage[0]}{older}; {_WAY_OUT}")

    def _records(self) -> Iterator[Path]:
        """Files that describe a checkpoint, newest first."""
        root = self.path / "checkpoints"
        if (root / "latest.json").is_file():
            yield root / "latest.json"
        for t in sorted(_rounds(root), reverse=True):
            if (root / f"round={t}" / "record.json").is_file():
                yield root / f"round={t}" / "record.json"

    def _opened(self, record: Path) -> Checkpoint | None:
        """What a record says; None where it is damaged or of another job."""
        try:
            content = opened_json(record.read_bytes())
        except OSError:
            return None
        if content is None or content["config"] != config_hash(self.config):
            return None
        return Checkpoint(
            round=content["round"],
            seeds={int(seed): digest for seed, digest in content["seeds"].items()},
            position=content["position"],
            data=content["data"],
            files={name: Sealed(*seal) for name, seal in content["files"].items()},
        )

    def _damage(self, found: Checkpoint) -> str | None:
        """The first file that is not what it was at a checkpoint, in words; None if all are."""
        for seed, digest in found.seeds.items():
            file = self.path / "checkpoints" / f"round={found.round}" / f"seed={seed}.pt"
            there = sealed_file(file)
            if there is None or there.digest != digest:
                return f"{file} is damaged" if there is not None else f"{file} is gone"
        for name, seal in found.position.get("files", {}).items():
            file = self.path / name
            if not file.is_file():
                return f"{file} is gone"
            if not Sealed(*seal).fits(file):
                return f"{file} is damaged or was changed by hand"
        return None

    def finish(self, status: Mapping[str, Any]) -> None:
        """Seal the results, then say that the job is done.

        Args:
            status: what status.json is to say.
        """
        files = dict(self._files)
        for name in (*_NEEDED, "summary.csv"):
            sealed = sealed_file(self.path / name)
            if sealed is not None:
                files[name] = sealed
        done = sealed_json({"files": files, "status": status})
        atomic_write(self.path / "checkpoints" / "done.json", done)
        self.write_status(**status)
        self._drop_parts()

    def _drop_parts(self) -> None:
        """Delete the parts of a table that has been joined."""
        shutil.rmtree(self.path / "clients", ignore_errors=True)


_WAY_OUT = "delete the folder, or choose another name=…"
_AGAIN = "was damaged, changed by hand or gone, and is written again"
_NEEDED = ("rounds.csv", "clients.parquet")  # of a job that is done, for its report
# what a process that was killed at once can have left, or Hydra makes
_BEFORE_CONFIG = (".lock", "multirun.yaml")
# a folder with one of these is a sweep's, a job's or a virtual environment
_NO_CODE = {"multirun.yaml", "versions.json", "pyvenv.cfg"}


def _rounds(root: Path) -> list[int]:
    """The rounds that have a complete folder of their own."""
    names = [path.name.removeprefix("round=") for path in root.glob("round=*")]
    return [int(name) for name in names if name.isdecimal()]


def digest_of_code(folder: Path) -> str:
    """Digest of every Python and YAML file below a folder, names included.

    Hidden folders, virtual environments and what runs have left are passed over.
    """
    digest = new_digest()
    for where, folders, names in os.walk(folder):
        if _NO_CODE & set(names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name[0] not in "._" and name != "outputs")
        for file in sorted(Path(where, name) for name in names):
            if file.suffix in (".py", ".yaml", ".yml"):
                digest.update(f"{file.relative_to(folder)}\0{sealed_file(file)}\0".encode())
    return digest.hexdigest()[:16]


class _Digesting:
    """A file that digests what is written to it, and remembers why it could not be written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest = file, new_digest()
        self.error: OSError | None = None

    def write(self, block: Any) -> int:
        """As of a file."""
        self.digest.update(block)
        try:
            return self._file.write(block)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """As of a file."""
        self._file.flush()


def _save(content: Mapping[str, Any], file: Path) -> str:
    """The digest of the file that now holds `content`."""
    with file.open("wb") as opened:
        digesting = _Digesting(opened)
        try:
            torch.save(_on_cpu(content), digesting)  # type: ignore[arg-type]
        except RuntimeError:  # PyTorch's word for a full disk is "unexpected pos 960 vs 854"
            if digesting.error is None:
                raise
            raise digesting.error from None
    return digesting.digest.hexdigest()


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{file} is unreadable ({type(error).__name__}); {_WAY_OUT}") from None
    if not isinstance(content, dict):
        raise RunFolderError(f"{file} is unreadable (not a mapping); {_WAY_OUT}")
    return content


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between two accounts of what computes a job; their numbers of ranks may
    differ.
    """
    flat, flat_now = ({**one, **one.get("packages", {})} for one in (before, now))
    keys = [key for key in {**flat, **flat_now} if key not in ("packages", "ranks")]
    return ", ".join(
        f"{key} {flat.get(key)} → {flat_now.get(key)}"
        for key in keys
        if flat.get(key) != flat_now.get(key)
    )


def _on_cpu(content: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the tensors on the CPU; a view is saved without the storage it looks into."""
    moved: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            value = value.clone() if value.untyped_storage().nbytes() > value.nbytes else value
        moved[name] = dict(_on_cpu(value)) if isinstance(value, Mapping) else value
    return moved

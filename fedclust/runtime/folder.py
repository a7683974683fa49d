"""The folder of one job: who may write it, which config it belongs to, and where the job stands.

    config.yaml, versions.json   the resolved config and its hash; package versions, commit, device
    status.json                  pending, running, done, failed or interrupted, with the round and
    the error checkpoints/round=<t>/       one file per seed; checkpoints/latest.json names the
    newest complete round

A round becomes the newest only when all its files are on disk and `latest.json` has been replaced,
so a process that dies at any moment leaves either the old or the new round, never half of one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from fedclust.config.schema import MOVED, relevant
from fedclust.errors import RunFolderError
from fedclust.files import atomic_write


def config_hash(config: Mapping[str, Any]) -> str:
    """Hash of everything in the resolved config that can change a result."""
    return hashlib.sha256(json.dumps(relevant(config), sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class RunFolder:
    """One job's folder.

    Attributes:
        path: the folder.
        config: the resolved config the folder must belong to.
        changes: what computed it before and is another now, in words; empty if nothing.
    """

    path: Path
    config: Mapping[str, Any]
    changes: str = ""
    _lock: BinaryIO | None = None
    _ours: bool = False

    @property
    def status(self) -> dict[str, Any]:
        """What status.json says; state `pending` where there is none."""
        file = self.path / "status.json"
        if not file.is_file():
            return {"state": "pending"}
        return _read_json(file)

    def check(self) -> None:
        """Refuse a folder that belongs to another config.

        Raises:
            RunFolderError: naming the folder and the way out.
        """
        file = self.path / "config.yaml"
        if not file.is_file():
            return
        try:
            there = OmegaConf.load(file)
            known = there.get("hash") if isinstance(there, DictConfig) else None
        except Exception as error:  # any YAML error means the same to the user
            raise RunFolderError(
                f"{file} is unreadable ({type(error).__name__}); {_WAY_OUT}"
            ) from None
        if known != config_hash(self.config):
            old = [name for name in MOVED if name in there]
            if old:
                raise RunFolderError(
                    f"{self.path} was written by an earlier version: {old[0]} is "
                    f"{MOVED[old[0]]} now; {_WAY_OUT}"
                )
            raise RunFolderError(f"{self.path} belongs to another config; {_WAY_OUT}")

    def acquire(self, versions: Mapping[str, Any]) -> None:
        """Create the folder, lock it against other processes and write what it belongs to.

        Raises:
            RunFolderError: if the folder cannot be written, is locked, or belongs to another
                config.
        """
        self.check()
        self._ours = not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir()))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(
                f"{self.path} is being written by another process; wait, or change name=…"
            ) from None
        except OSError as error:
            raise RunFolderError(
                f"{self.path} cannot be written ({error.strerror}); change name=…"
            ) from None
        if not (self.path / "config.yaml").is_file():
            text = OmegaConf.to_yaml(
                OmegaConf.create({**self.config, "hash": config_hash(self.config)})
            )
            atomic_write(self.path / "config.yaml", text)
        self._write_versions(versions)

    def _write_versions(self, versions: Mapping[str, Any]) -> None:
        """What computes the job now, and what did before where that was something else."""
        file, before = self.path / "versions.json", {}
        if file.is_file():
            with suppress(RunFolderError):  # says nothing that the job needs
                before = _read_json(file)
        earlier = before.pop("before", [])
        now = json.loads(json.dumps(versions))
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

        A folder that held anything keeps everything but the claim that it belongs to this job.
        """
        if self._ours:
            shutil.rmtree(self.path)
        elif not (self.path / "checkpoints" / "latest.json").is_file():
            (self.path / "config.yaml").unlink(missing_ok=True)

    def write_status(self, **status: Any) -> None:
        """Replace status.json."""
        atomic_write(self.path / "status.json", json.dumps(status, indent=2) + "\n")

    def save(
        self, t: int, seeds: Mapping[int, Mapping[str, Any]], position: Mapping[str, Any]
    ) -> None:
        """Make round t the newest checkpoint.

        Args:
            t: the last round that is complete.
            seeds: per seed a mapping of tensors, numbers, strings and None.
            position: where the recorder's files end at this round, JSON-able.
        """
        root = self.path / "checkpoints"
        new = root / f"round={t}"
        partial = root / f"round={t}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for seed, content in seeds.items():
            torch.save(_on_cpu(content), partial / f"seed={seed}.pt")
        shutil.rmtree(new, ignore_errors=True)
        partial.rename(new)
        latest = {"round": t, "seeds": sorted(seeds), "position": position}
        atomic_write(root / "latest.json", json.dumps(latest) + "\n")
        for old in root.glob("round=*"):
            if old != new:
                shutil.rmtree(old, ignore_errors=True)

    def load(
        self, device: torch.device
    ) -> tuple[int, dict[int, dict[str, Any]], dict[str, Any]] | None:
        """The newest checkpoint: round, content per seed, recorder position; None where there is
        none.

        Raises:
            RunFolderError: if a file is missing or damaged.
        """
        root = self.path / "checkpoints"
        if not (root / "latest.json").is_file():
            return None
        latest = _read_json(root / "latest.json")
        seeds: dict[int, dict[str, Any]] = {}
        for seed in latest["seeds"]:
            file = root / f"round={latest['round']}" / f"seed={seed}.pt"
            try:
                seeds[seed] = torch.load(file, map_location=device, weights_only=True)
            except Exception as error:  # torch raises many kinds for a damaged file
                raise RunFolderError(
                    f"{file} is damaged ({type(error).__name__}); {_WAY_OUT}"
                ) from None
        return latest["round"], seeds, latest["position"]


_WAY_OUT = "delete it, or choose another name=…"


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

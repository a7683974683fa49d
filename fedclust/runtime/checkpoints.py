"""The checkpoints of one job: what a round leaves on disk, sealed, and which round is whole.

    round=<t>/seed=<s>.pt        what continues one seed: state, recorder, or why it has failed
    round=<t>/record.json        their digests, and seals of all other files as they were then
    latest.json                  a copy of the newest record

A round becomes the newest only when all its files are on disk and `latest.json` has been replaced,
so a process that dies at any moment leaves either the old or the new round, never half of one. The
round before is kept too: a job whose newest checkpoint is damaged continues from there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from fedclust.core.client_models import ClientModels
from fedclust.helpers.errors import RunFolderError
from fedclust.helpers.files import (
    Sealed,
    atomic_write,
    harmless,
    new_digest,
    opened_json,
    sealed_file,
    sealed_json,
)

WAY_OUT = "delete the folder, or choose another name=…"
ANEW = "the job begins anew"
_KEYS = ("round", "config", "seeds", "position", "data", "files")  # of a record


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


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints below the folder `job`, which belong to the config of hash `config`."""

    job: Path
    config: str

    @property
    def _root(self) -> Path:
        return self.job / "checkpoints"

    def save(
        self,
        t: int,
        seeds: Mapping[int, Mapping[str, Any]],
        position: Mapping[str, Any],
        data: Mapping[str, str],
        files: Mapping[str, Sealed],
    ) -> None:
        """Make round t the newest checkpoint and keep the one before; see `Checkpoint`."""
        root = self._root
        new = root / f"round={t}"
        partial = root / f"round={t}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        digests = {}
        whose = {"round": t, "config": self.config}
        for seed, content in seeds.items():
            digests[seed] = _save({**content, **whose, "seed": seed}, partial / f"seed={seed}.pt")
        record = sealed_json(
            {
                **whose,
                "seeds": digests,
                "position": position,
                "data": data,
                "files": {**files, **position.get("files", {})},
            }
        )
        (partial / "record.json").write_text(record, encoding="utf-8")
        shutil.rmtree(new, ignore_errors=True)
        partial.rename(new)
        atomic_write(root / "latest.json", record)
        before = max((n for n in _rounds(root) if n < t), default=t)
        for old in root.glob("round=*"):
            if old.name not in (f"round={t}", f"round={before}"):
                shutil.rmtree(old, ignore_errors=True)

    def unseal(self, name: str) -> None:
        """Forget the seal of a file that is about to change, in case the process is killed."""
        newest = self._root / "latest.json"
        content = opened_json(harmless(newest).read_bytes(), *_KEYS) if newest.is_file() else None
        if content is not None and content["files"].pop(name, None) is not None:
            atomic_write(newest, sealed_json(content))

    def load(self, checkpoint: Checkpoint, device: torch.device) -> dict[int, dict[str, Any]]:
        """What a checkpoint holds, per seed, as it was given to `save`; of models of clients what
        `ClientModels.restored` takes.

        Raises:
            RunFolderError: naming a file that cannot be read.
        """
        seeds: dict[int, dict[str, Any]] = {}
        for seed in checkpoint.seeds:
            file = self._state(checkpoint, seed)
            try:
                content = torch.load(file, map_location=device, weights_only=True)
            except Exception as error:  # torch raises many kinds; memory may be short, for one
                reason = " ".join(str(error).split())[:200]
                raise RunFolderError(f"{file} cannot be read ({reason}); {WAY_OUT}") from None
            owner = (content.pop("seed"), content.pop("round"), content.pop("config"))
            assert owner == (seed, checkpoint.round, self.config)
            seeds[seed] = content
        return seeds

    def newest(self, remarks: list[str]) -> Checkpoint | None:
        """The newest checkpoint that is whole, with every other file it needs; None where there is
        none at all, or all of them only lack files or ends of files, which can be computed again.

        Args:
            remarks: what else was found damaged; a line is added where a damaged checkpoint is
                passed over.

        Raises:
            RunFolderError: naming what is damaged, where nothing is left to continue from.
        """
        damage: list[str] = []
        lost = True
        tried: set[int] = set()
        for record in self._records():
            checkpoint = self._opened(record)
            bad: _Damage | None = _Damage(f"{record} is damaged")
            if checkpoint is not None:
                if checkpoint.round in tried:
                    continue
                tried.add(checkpoint.round)
                bad = self._damage(checkpoint)
            if checkpoint is not None and bad is None:
                if damage:
                    older = f"the older checkpoint of round {checkpoint.round}"
                    remarks.append(f"{damage[0]}; continued from {older}")
                return checkpoint
            assert bad is not None
            damage.append(bad.said)
            lost = lost and bad.lost
        if not damage:
            return None
        if lost and not (self._root / "done.json").is_file():
            remarks.append(f"{damage[0]}, as in a folder brought back from a copy; {ANEW}")
            return None
        damage = [*remarks[:1], *damage]  # a finished job has more to say
        # of a finished job that is no second damage: what the older one needs has been joined
        older = f", and the older checkpoint is of no use ({damage[-1]})" if damage[1:] else ""
        raise RunFolderError(f"{damage[0]}{older}; {WAY_OUT}")

    def changed_states(self) -> Iterator[Path]:
        """Files of the newest checkpoint that are there and are not what was saved."""
        record = next(self._records(), None)
        checkpoint = None if record is None else self._opened(record)
        if checkpoint is None:
            return
        for seed, digest in checkpoint.seeds.items():
            file = self._state(checkpoint, seed)
            there = sealed_file(file)
            if there is not None and there.digest != digest:
                yield file

    def _state(self, checkpoint: Checkpoint, seed: int) -> Path:
        """The file of a seed."""
        return self._root / f"round={checkpoint.round}" / f"seed={seed}.pt"

    def _records(self) -> Iterator[Path]:
        """Files that describe a checkpoint, newest first."""
        root = self._root
        if (root / "latest.json").is_file():
            yield root / "latest.json"
        for t in sorted(_rounds(root), reverse=True):
            if (root / f"round={t}" / "record.json").is_file():
                yield root / f"round={t}" / "record.json"

    def _opened(self, record: Path) -> Checkpoint | None:
        """What a record says; None where it is damaged or of another job."""
        try:
            content = opened_json(harmless(record).read_bytes(), *_KEYS)
        except OSError:
            return None
        if content is None or content["config"] != self.config:
            return None
        return Checkpoint(
            round=content["round"],
            seeds={int(seed): digest for seed, digest in content["seeds"].items()},
            position=content["position"],
            data=content["data"],
            files={name: Sealed(*seal) for name, seal in content["files"].items()},
        )

    def _damage(self, checkpoint: Checkpoint) -> _Damage | None:
        """The first file that is not what it was at a checkpoint; None if all are."""
        for seed, digest in checkpoint.seeds.items():
            file = self._state(checkpoint, seed)
            there = sealed_file(file)
            if there is None:
                return _gone(file)
            if there.digest != digest:
                return _Damage(f"{file} is damaged")
        for name, seal in checkpoint.position.get("files", {}).items():
            file = self.job / name
            if not file.is_file():
                return _gone(file)
            if file.stat().st_size < Sealed(*seal).size:
                return _Damage(f"{file} is shorter than it was", lost=True)
            if not Sealed(*seal).fits(file):
                return _Damage(f"{file} is damaged or was changed by hand")
        return None


class _Damage(NamedTuple):
    """What is wrong with a checkpoint, in words, and whether files are merely lost or cut short."""

    said: str
    lost: bool = False


def _gone(file: Path) -> _Damage:
    """That there is no such file; one that is only not to be read may be sound."""
    try:
        file.lstat()
    except FileNotFoundError:
        return _Damage(f"{file} is gone", lost=True)
    except OSError:
        pass
    return _Damage(f"{file} cannot be read")


def _rounds(root: Path) -> list[int]:
    """The rounds that have a complete folder of their own."""
    names = [path.name.removeprefix("round=") for path in root.glob("round=*")]
    return [int(name) for name in names if name.isdecimal()]


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
            torch.save(_on_cpu(content, {}), digesting)  # type: ignore[arg-type]
        except RuntimeError:  # PyTorch's word for a full disk is "unexpected pos 960 vs 854"
            if digesting.error is None:
                raise
            raise digesting.error from None
    return digesting.digest.hexdigest()


def _on_cpu(content: Mapping[str, Any], copied: dict[int, tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Copies of the tensors on the CPU, once where one stands in two places (`copied`, by id); a
    view is saved without the storage it looks into.
    """
    moved: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, ClientModels):
            value = value.saved()  # of one seed at a time: it can be gigabytes
        if isinstance(value, Tensor):
            if id(value) not in copied:
                there = value.detach().cpu()
                is_part = there.untyped_storage().nbytes() > there.nbytes
                copied[id(value)] = value, there.clone() if is_part else there
            value = copied[id(value)][1]
        moved[name] = _on_cpu(value, copied) if isinstance(value, Mapping) else value
    return moved

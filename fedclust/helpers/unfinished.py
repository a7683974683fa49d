"""Parts of a long answer, kept on the disk until a checkpoint holds what follows from it.

The losses of a thousand models on the data of a thousand clients take hours, and no round ends
meanwhile. So engines note which of them are there. They are written now and then; a process that
was killed, and is asked the same again, begins with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from fedclust.helpers.files import atomic_write, new_digest

_SEAL = 32  # bytes of a digest in hexadecimal digits, with which a file begins
_FEWEST = 64  # rows; fewer are computed before anything is worth keeping
_LEAST = 1.0  # seconds between two writes
_WRITING = 10  # so many times as long as writing took, nothing is written


@dataclass
class Table:
    """What is computed row by row: `values` [N, ...], filled in by whoever computes.

    Attributes:
        done: [N] bool, which rows are there.
        asked: gives what decides the values, in an order that stays the same.
        folder: where they are kept; None where they are not.
        every: least seconds between two writes.
    """

    values: Tensor
    asked: Callable[[], Iterable[Tensor | str]] = tuple
    folder: Path | None = None
    every: float = 0.0
    done: Tensor = field(init=False)
    _name: str = ""
    _written: float = field(default_factory=time.monotonic)
    _took: float = 0.0
    _one_by_one: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.done = torch.zeros(len(self.values), dtype=torch.bool)
        if self.folder is not None and any(self.folder.glob("unfinished-*")):
            self._read()

    def has(self, rows: Tensor) -> bool:
        """Whether the rows [R] are all there."""
        return self.folder is not None and bool(self.done[rows.cpu()].all())

    def note(self, rows: Tensor) -> None:
        """The rows [R] of the values are there now."""
        if self.folder is None:
            return
        with self._one_by_one:
            self.done[rows.cpu()] = True
            began = time.monotonic()
            if began - self._written < max(self.every, _WRITING * self._took):
                return
            with suppress(OSError):  # a full disk: nothing is lost that was there without this file
                self._write()
            self._written = time.monotonic()
            self._took = self._written - began

    @property
    def _file(self) -> Path:
        """Its name tells what was asked."""
        assert self.folder is not None
        if not self._name:
            digest = new_digest()
            for one in self.asked():
                digest.update(one.encode() if isinstance(one, str) else _bytes(one))
            self._name = f"unfinished-{digest.hexdigest()}"
        return self.folder / self._name

    def _write(self) -> None:
        content = _bytes(self.done) + _bytes(self.values)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._file, _seal(content) + content)

    def _read(self) -> None:
        """Take over what is kept of the same question; nothing from a damaged file."""
        size = len(self.done) + self.values.nbytes
        try:
            text = self._file.read_bytes()
        except OSError:
            return
        content = text[_SEAL:]
        if len(content) != size or text[:_SEAL] != _seal(content):
            return
        kept = bytearray(content)
        self.done.copy_(torch.frombuffer(kept, dtype=torch.bool, count=len(self.done)))
        values = torch.frombuffer(kept, dtype=torch.uint8, offset=len(self.done)).clone()
        self.values.copy_(values.view(self.values.dtype).view(self.values.shape))


@dataclass
class Unfinished:
    """Where the long answers of the present job are kept.

    Attributes:
        folder: of the job's checkpoints; None where nothing is kept.
        every: least seconds between two writes.
    """

    folder: Path | None = None
    every: float = 0.0

    def table(self, values: Tensor, asked: Callable[[], Iterable[Tensor | str]]) -> Table:
        """The values, those that are kept filled in; see `Table`."""
        folder = self.folder if len(values) >= _FEWEST else None
        return Table(values, asked, folder, self.every)

    @contextmanager
    def kept_in(self, folder: Path | None, every: float) -> Iterator[None]:
        """Keep answers in a folder until the end; None: none."""
        self.folder, self.every = folder, max(_LEAST, every)
        try:
            yield
        finally:
            self.folder = None

    def forget(self) -> None:
        """A checkpoint holds what came of all answers, or they are those of another program."""
        for file in self.folder.glob("unfinished-*") if self.folder is not None else ():
            file.unlink(missing_ok=True)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().contiguous().numpy().tobytes()


def _seal(content: bytes) -> bytes:
    digest = new_digest()
    digest.update(content)
    return digest.hexdigest().encode()


unfinished = Unfinished()

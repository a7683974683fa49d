"""The standard streams of a command: unreadable messages are lost, lost results are errors."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

OUTPUT = "standard output"  # the file name of errors in writing to it


class _Losing(FileIO):
    """Bytes that cannot be written are lost: the disk of a log is full, or its reader has gone."""

    def write(self, given: ReadableBuffer, /) -> int:
        try:
            return super().write(given)
        except OSError:
            return memoryview(given).nbytes


class OutputError(OSError):
    """Standard output cannot be written. No BrokenPipeError: Rich would exit with status 1.

    Attributes:
        unread: nobody reads it any more, as behind `| head`.
    """

    @property
    def unread(self) -> bool:
        return self.errno == errno.EPIPE


class _Named(FileIO):
    """The first error says `OUTPUT`; what follows it is lost, or each flush would say it again."""

    failed = False

    def write(self, given: ReadableBuffer, /) -> int:
        if self.failed:
            return memoryview(given).nbytes
        try:
            return super().write(given)
        except OSError as error:
            self.failed = True
            raise OutputError(error.errno, error.strerror, OUTPUT) from error


@contextmanager
def messages_may_be_lost() -> Iterator[None]:
    """While the block runs, a standard error that cannot be written ends nothing."""
    with _written_by("stderr", _Losing):
        yield


@contextmanager
def output_is_named() -> Iterator[None]:
    """While the block runs, an error in writing to standard output has the file name `OUTPUT`."""
    with _written_by("stdout", _Named):
        yield


@contextmanager
def _written_by(name: str, kind: type[FileIO]) -> Iterator[None]:
    """While the block runs, a file of `kind` writes the bytes of our own standard stream `name`."""
    plain = getattr(sys, name)
    if plain is not getattr(sys, f"__{name}__") or not isinstance(plain, TextIOWrapper):
        yield
        return
    stream = TextIOWrapper(
        BufferedWriter(kind(plain.fileno(), "wb", closefd=False)),
        encoding=plain.encoding,
        errors="backslashreplace",
        line_buffering=name == "stderr" or plain.line_buffering,
        write_through=plain.write_through,
    )
    setattr(sys, name, stream)
    try:
        yield
    finally:
        try:
            stream.flush()
        finally:
            setattr(sys, name, plain)

"""The stream of messages, which nobody need be able to read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Losing(FileIO):
    """Bytes that cannot be written are lost: the disk of a log is full, or its reader has gone."""

    def write(self, given: ReadableBuffer, /) -> int:
        try:
            return super().write(given)
        except OSError:
            return memoryview(given).nbytes


@contextmanager
def messages_may_be_lost() -> Iterator[None]:
    """While the block runs, a standard error that cannot be written ends nothing.

    A stream that somebody has put in its place is left alone.
    """
    plain = sys.stderr
    if plain is not sys.__stderr__ or not isinstance(plain, TextIOWrapper):
        yield
        return
    sys.stderr = TextIOWrapper(
        BufferedWriter(_Losing(plain.fileno(), "wb", closefd=False)),
        encoding=plain.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = plain

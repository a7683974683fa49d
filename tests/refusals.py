"""Errors of a user's mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def refused(kind: type[Exception], words: str | None = None) -> Iterator[pytest.ExceptionInfo[Any]]:
    """What is done within raises an error of one line, in which a pattern is found."""
    with pytest.raises(kind, match=words) as error:
        yield error
    assert "\n" not in str(error.value)

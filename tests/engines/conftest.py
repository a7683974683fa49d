"""What the tests of compiled code share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedclust.engines.fused.native.compiled import library


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder, nothing loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    yield tmp_path / "fedclust"
    library.cache_clear()

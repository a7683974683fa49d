"""How an extra is installed depends on where fedclust came from."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from fedclust.helpers.extras import install


class Installed:
    """A distribution that was installed from somewhere."""

    def __init__(self, about: object) -> None:
        self.about = about

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.about is None else json.dumps(self.about)


def test_the_command_names_the_sources_where_they_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def when(about: object) -> str:
        monkeypatch.setattr(metadata, "distribution", lambda name: Installed(about))
        return install("mlflow")

    here = tmp_path / "my clone"
    here.mkdir()
    plain = "pip install 'fedclust[mlflow]'"
    url = here.as_uri()
    assert when({"url": url, "dir_info": {"editable": True}}) == (
        f"{sys.executable} -m pip install -e '{here}[mlflow]'"
    )
    assert when({"url": url, "dir_info": {}}).endswith(f"pip install '{here}[mlflow]'")
    assert when({"url": "https://elsewhere/fedclust.whl"}) == plain
    assert when({"url": (tmp_path / "gone").as_uri()}) == plain
    assert when(None) == plain

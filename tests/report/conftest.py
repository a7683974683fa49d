"""Four finished jobs, and no figures but where they are looked at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_up import job

REPORT = {
    "title": "LCFL, Table II",
    "published": "LCFL/Table II",
    "metric": "accuracy",
    "rounds": [5, 10],
    "score": "last",
    "order": ["lcfl", "ifca", "fedavg", "local"],
    "claims": [
        {
            "kind": "equal_until",
            "left": "lcfl",
            "right": "fedavg",
            "metric": "accuracy",
            "round": 3,
        },
        {"kind": "overtakes", "left": "lcfl", "right": "ifca", "between": [4, 10]},
        {"kind": "order_at_end", "best_to_worst": ["lcfl", "ifca", "fedavg", "local"]},
        {"kind": "reaches", "arm": "lcfl", "value": 0.95, "round": 9},
        {"kind": "at_least", "arm": "lcfl", "metric": "purity", "value": 1.0},
        {"kind": "at_least", "arm": "ifca", "metric": "purity", "value": 1.0},
    ],
}


@pytest.fixture(autouse=True)
def _no_figures(no_figures: None) -> None:
    """Those that are looked at are made by `draw` itself, or in tests with the mark `figures`."""


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four finished jobs as an experiment leaves them; tests get copies."""
    folder = tmp_path_factory.mktemp("sweep")
    for name in ("fedavg", "ifca", "lcfl", "local"):
        job(folder / f"algorithm={name}", name, config={"report": REPORT})
    return folder


@pytest.fixture
def sweep(tmp_path: Path, written: Path) -> Path:
    """Four finished jobs, and a report yet to be made."""
    return Path(shutil.copytree(written, tmp_path / "demo"))

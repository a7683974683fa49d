"""Files that are no longer what their job left, by digests among its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedclust.helpers.files import Sealed, harmless, opened_json
from fedclust.report.runs import Run

_WHILE_IT_RUNS = ("config.yaml", "federation.json", "rounds.csv")  # what then stays or only grows


def broken(run: Run) -> list[str]:
    """The files of a job that somebody or something has changed, by their paths in its folder."""
    done = run.folder / "checkpoints" / "done.json"
    content = _opened(done, "files", "status")
    if content is not None:
        changed = _changed(run.folder, content["files"], tuple(content["files"]))
        same = _opened(run.folder / "status.json") == content["status"]
        return changed if same else [*changed, "status.json"]
    lost = ["checkpoints/done.json"] if done.is_file() else []
    newest = _opened(run.folder / "checkpoints" / "latest.json", "files")
    return [*lost, *(_changed(run.folder, newest["files"], _WHILE_IT_RUNS) if newest else ())]


def _changed(folder: Path, seals: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """Those of some files that do not fit their seals."""
    return [
        name for name in names if name in seals and not Sealed(*seals[name]).fits(folder / name)
    ]


def _opened(file: Path, *keys: str) -> dict[str, Any] | None:
    """What a sealed file says; None where there is none, it was changed, or it lacks a key."""
    try:
        return opened_json(harmless(file).read_bytes(), *keys)
    except OSError:
        return None

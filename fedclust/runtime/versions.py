"""versions.json: packages, commit, device and a user's own files that compute a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedclust.helpers.files import atomic_write, harmless
from fedclust.helpers.names import USER_FILES


class Changes(NamedTuple):
    """Entries that differ from those of the process before.

    Attributes:
        means: packages, machine and the like, in words; empty if none differs.
        files: of a user's own, by their paths in the folder given with --config-dir.
    """

    means: str = ""
    files: tuple[str, ...] = ()


def write_versions(file: Path, content: Mapping[str, Any]) -> Changes:
    """Write what computes the job now; earlier entries that differ are kept below `before`."""
    before = _read(file)
    earlier = before.pop("before", [])
    now = json.loads(json.dumps(content))
    changes = Changes()
    if before:
        changes = Changes(
            _changed_means(before, now), _changed_files(before, now.get(USER_FILES, {}))
        )
    if any(changes):
        earlier = [*earlier, before]
    whole = {**now, "before": earlier} if earlier else now
    atomic_write(file, json.dumps(whole, indent=2) + "\n")
    return changes


def engine_of(file: Path) -> object:
    """The engine that versions.json names; None where it is missing."""
    return _read(file).get("engine")


def files_changed_since(file: Path, now: Mapping[str, str]) -> tuple[str, ...]:
    """A user's files that differ from versions.json by their digests; none where it is missing."""
    return _changed_files(_read(file), now)


def _changed_files(before: Mapping[str, Any], now: Mapping[str, str]) -> tuple[str, ...]:
    """The files of a user's own that differ, appeared or are gone."""
    known = before.get(USER_FILES)
    if not isinstance(known, Mapping):  # an earlier version kept one digest of all files
        return ()
    return tuple(sorted(name for name in {**known, **now} if known.get(name) != now.get(name)))


def _read(file: Path) -> dict[str, Any]:
    """The entries; none where the file cannot be read, for a job can do without."""
    try:
        content = json.loads(harmless(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _changed_means(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Entries that differ, a user's files and the number of ranks apart."""
    # the first version of the rounds was not named
    flat, flat_now = ({"rounds": 1, **one, **one.get("packages", {})} for one in (before, now))
    keys = [key for key in {**flat, **flat_now} if key not in ("packages", "ranks", USER_FILES)]
    return ", ".join(
        f"{key} {flat.get(key)} → {flat_now.get(key)}"
        for key in keys
        if flat.get(key) != flat_now.get(key)
    )

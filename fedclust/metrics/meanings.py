"""The meanings of a user's own metrics, kept in the job's folder as `metrics.json`.

A report never imports the user's file, so a run writes `metrics.json` as soon as it records such a
number.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from fedclust.helpers.errors import DataError
from fedclust.helpers.files import atomic_write, harmless
from fedclust.metrics import METRICS, OURS, Meaning, learn

NAME = "metrics.json"
_TEXT = {"text", "unit", "better"}


def write_meanings(folder: Path, names: Collection[str]) -> None:
    """Write what these documented metrics mean into the job's folder, sorted by name, but for those
    of the package; what it tells already stays where it can be read.
    """
    try:
        meanings = _read(folder)
    except DataError:
        meanings = {}
    known = meanings | {name: METRICS[name] for name in names if name not in OURS}
    content = {
        name: {key: value for key, value in asdict(known[name]).items() if value or key in _TEXT}
        for name in sorted(known)
    }
    if known:
        atomic_write(folder / NAME, json.dumps(content, indent=2) + "\n")


def read_meanings(folder: Path) -> None:
    """Add the metrics that a job documents to those this process knows. Raises `DataError` for a
    file that cannot be read, or a name that this process knows with another unit or direction.
    """
    for name, meaning in _read(folder).items():
        known = learn(name, meaning)
        if (known.unit, known.better) != (meaning.unit, meaning.better):
            raise DataError(
                f"{folder / NAME}: {name} has another unit or direction here than elsewhere; "
                "report the folder by itself"
            )


def _read(folder: Path) -> dict[str, Meaning]:
    """The meanings that a folder tells; none without a file."""
    file = folder / NAME
    if not file.is_file():
        return {}
    try:
        content = json.loads(harmless(file).read_text(encoding="utf-8"))
        plain = all(
            _TEXT <= set(node) <= {*_TEXT, "title"}
            and all(isinstance(value, str) for value in node.values())
            and node["better"] in ("higher", "lower", "neither")
            for node in content.values()
        )
        meanings = {name: Meaning(**node) for name, node in content.items()} if plain else None
    except (OSError, ValueError, TypeError, AttributeError):
        meanings = None
    if meanings is None:
        raise DataError(f"{file} cannot be read (it is damaged); delete it and run the job again")
    return meanings

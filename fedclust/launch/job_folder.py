"""The name of a job's folder, from its overrides."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from fedclust.config.schema import chooses, names_folder

_LONGEST = 120


def job_folder(overrides: Sequence[str], algorithm: str, below: str | Path | None = None) -> str:
    """The folder of a job below the run's: its algorithm and the overrides that make it differ.

    Where that is longer than 120 characters, a path such as dataset.path=/data/sites/a.csv is named
    by its last part and four digits of the whole, dataset.path=a.csv-6a98; what is still too long
    is cut, with eight digits of all.

    Args:
        overrides: task overrides as given to Hydra, e.g. ["algorithm=ifca", "rounds=60"]; of one
            key the last counts.
        algorithm: the algorithm chosen.
        below: the run's folder; a long name that is there already, cut with its paths in full as
            earlier versions did, is kept.
    """
    last = {override.lstrip("+~").split("=", 1)[0]: override for override in overrides}
    named = [one for key, one in sorted(last.items(), key=itemgetter(1)) if names_folder(key)]
    start = algorithm.replace("/", "_")
    whole = ",".join([start, *map(_plain, named)])
    if len(whole) <= _LONGEST:
        return whole
    cut = f"{whole[:_LONGEST]}-{_digest(whole)[:8]}"
    if below is not None and Path(below, cut).is_dir():
        return cut
    short = ",".join([start, *map(_short, named)])
    return short if len(short) <= _LONGEST else f"{short[:_LONGEST]}-{_digest(whole)[:8]}"


def _plain(override: str) -> str:
    """An override in letters that a file system takes, with digits where another could be alike."""
    plain, value = _letters(override), override.partition("=")[2]
    # "a b.npz" and a_b.npz are two files; a choice such as case=a/b is one of few, and of what
    # marks a list or mapping there is seldom more than one spelling
    listed = value[:1] in ("[", "{")
    lost = {"/"} & set(value) if listed else set(value) - set(plain + "'\"")
    alike = "." in override.partition("=")[0] and lost
    return f"{plain}-{_digest(override)[:4]}" if alike else plain


def _short(override: str) -> str:
    """The same, of a path its last part alone."""
    key, _, value = override.partition("=")
    if "/" not in value or value[:1] in ("[", "{") or chooses(key):
        return _plain(override)
    last = value.strip("'\"").rstrip("/").rpartition("/")[2]
    return f"{_letters(f'{key}={last}')}-{_digest(override)[:4]}"


def _letters(text: str) -> str:
    return "".join(c if c.isalnum() or c in "=._-+," else "_" for c in text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()

"""What the folder of a job is called, and which folder a user keeps their own files in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from fedclust.config.schema import names_folder

_LONGEST = 120


def job_folder(overrides: Sequence[str], algorithm: str) -> str:
    """The folder of a job below the run's: its algorithm and the overrides that make it differ.

    Args:
        overrides: task overrides as given to Hydra, e.g. ["algorithm=ifca", "rounds=60"]; of one
            key the last counts.
        algorithm: the algorithm chosen.
    """
    named = []
    last = {override.lstrip("+~").split("=", 1)[0]: override for override in overrides}
    for key, override in sorted(last.items(), key=itemgetter(1)):
        if names_folder(key):
            plain = "".join(c if c.isalnum() or c in "=._-+," else "_" for c in override)
            # "a b.npz" and a_b.npz are two files; a choice such as case=a/b is one of few, and
            # of what marks a list or mapping there is seldom more than one spelling
            value = override.partition("=")[2]
            lost = (
                {"/"} & set(value) if value[:1] in ("[", "{") else set(value) - set(plain + "'\"")
            )
            alike = "." in key and lost
            named.append(f"{plain}-{_digest(override)[:4]}" if alike else plain)
    name = ",".join([algorithm.replace("/", "_"), *named])
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}-{_digest(name)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def user_dir(arguments: Sequence[str]) -> Path | None:
    """The folder given with --config-dir, None without."""
    for place, length in _config_dir(arguments):
        value = arguments[place + 1] if length == 2 else arguments[place].split("=", 1)[1]
        return Path(value).resolve()
    return None


def without_user_dir(arguments: Sequence[str]) -> list[str]:
    """The arguments but for --config-dir and its folder."""
    skipped = {place + i for place, length in _config_dir(arguments) for i in range(length)}
    return [argument for place, argument in enumerate(arguments) if place not in skipped]


def _config_dir(arguments: Sequence[str]) -> list[tuple[int, int]]:
    """Where --config-dir stands among the arguments, and over how many of them."""
    flags = ("--config-dir", "-cd")
    found = []
    for place, argument in enumerate(arguments):
        if argument in flags and place + 1 < len(arguments):
            found.append((place, 2))
        elif argument.startswith(tuple(flag + "=" for flag in flags)):
            found.append((place, 1))
    return found

"""The name of a job's folder, from its overrides."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import itemgetter

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

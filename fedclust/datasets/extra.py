"""Packages that an extra of fedclust brings."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fedclust.helpers.errors import ConfigError
from fedclust.helpers.extras import install


def installed(package: str, dataset: str, extra: str) -> Path:
    """The folder of an installed package, which is not imported.

    Raises:
        ConfigError: it is not there; the message says which extra brings it.
    """
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ConfigError(f"dataset={dataset} needs the package {package}: {install(extra)}")
    return Path(found.origin).parent

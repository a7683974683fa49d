"""Configs from files, as OmegaConf reads them, by the parser of libyaml, which takes a tenth of the
time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from omegaconf._utils import get_yaml_loader

from fedclust.helpers.files import harmless

_OURS: Any = get_yaml_loader()  # it takes 1e-3 for a number, and a date for text


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = _OURS.yaml_implicit_resolvers
    yaml_constructors = _OURS.yaml_constructors


def read_config(file: Path) -> Any:
    """What a config file holds; interpolations stay as they are written.

    Raises:
        OSError, ValueError, yaml.YAMLError: if it cannot be read.
    """
    return yaml.load(harmless(file).read_text(encoding="utf-8"), Loader=_Loader)

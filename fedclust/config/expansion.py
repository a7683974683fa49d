"""How large a config is when every reference in it is replaced by what it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedclust.helpers.errors import ConfigError

_MOST = 1_000_000  # letters and nodes; those of a config of ours are a thousandth of it
_REFERENCE = re.compile(r"\$\{(?:oc\.(?:select|dict\.\w+):)?\s*(\.*[\w@/-]+(?:[.\[\]]+[\w@/-]+)*)")


def check_expansion(config: DictConfig) -> None:
    """Refuse a config whose references grow beyond all use; ConfigError names such a key."""
    sizes: dict[tuple[str, ...], int] = {}
    plain = OmegaConf.to_container(config, resolve=False)

    def size(path: tuple[str, ...], node: Any) -> int:
        if path not in sizes:
            sizes[path] = 1  # of a node inside itself, which OmegaConf refuses
            if isinstance(node, Mapping):
                below = [size((*path, str(key)), value) for key, value in node.items()]
            elif isinstance(node, list):
                below = [size((*path, str(i)), value) for i, value in enumerate(node)]
            elif isinstance(node, str):
                names = _REFERENCE.findall(node) if "$" in node else ()
                below = [len(node), *(referred(path, name) for name in names)]
            else:
                below = []
            sizes[path] = 1 + sum(below)
            if sizes[path] > _MOST and isinstance(node, str):
                raise ConfigError(
                    f"{'.'.join(path)} is not allowed: its references, and those that they lead "
                    "to, expand to too much"
                )
        return sizes[path]

    def referred(path: tuple[str, ...], name: str) -> int:
        """The size of what a reference at a path names; 1 where there is no such node."""
        keys = name.lstrip(".")
        up = len(name) - len(keys)
        above = path[: max(0, len(path) - up)] if up else ()
        where = (*above, *filter(None, re.split(r"[.\[\]]+", keys)))
        node: Any = plain
        for key in where:
            if isinstance(node, Mapping):
                node = next((value for known, value in node.items() if str(known) == key), None)
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                return 1
        return size(where, node)

    size((), plain)

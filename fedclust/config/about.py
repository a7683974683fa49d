"""What the file of a method says of it beside its options, below `about` at the file's end.

    about:
      paper: Gu et al. 2024, [arXiv 2407.09360](https://arxiv.org/abs/2407.09360)
      run: laptop size

No part of the config: `fedclust.launch.scales` takes it out of what is composed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedclust.config.read import read_config
from fedclust.config.tree import CONF

KEY = "about"
KEYS = {
    "paper": "who published the method, with a link",
    "run": "what of the paper has been run, and its limits here",
    "look": "colour and line in figures, two numbers from 0",
    "sends": "models sent in T rounds of K of N clients in C clusters, by default options",
    "space": "hyper-parameters that `fedclust tune` searches beside those of every method",
    "small": "options that suit the small jobs of the tests",
    "joins": "sampled, where a client is served only after its first round",
}


def is_told(file: Mapping[Any, Any]) -> bool:
    """Whether the content of a method's file has such a block, and not an option of that name."""
    block = file.get(KEY)
    return isinstance(block, Mapping) and KEYS.keys() >= block.keys()


@cache
def about(algorithm: str, tree: Path = CONF) -> Mapping[str, Any]:
    """What a method's file in a config tree says by `KEYS`; nothing of methods it does not have."""
    file = tree / "algorithm" / f"{algorithm}.yaml"
    node = read_config(file) if file.is_file() else None
    return node[KEY] if isinstance(node, dict) and is_told(node) else {}

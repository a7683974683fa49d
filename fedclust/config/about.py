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

from fedclust.config.parts import is_null
from fedclust.config.read import read_config
from fedclust.config.references import at
from fedclust.config.tree import CONF

KEY = "about"
KEYS = {
    "kind": "what it is, one of `KINDS`",
    "paper": "who published the method, with a link",
    "run": "what of the paper has been run, and its limits here",
    "look": "colour and line in figures, two numbers from 0",
    "reads": "what the server must see of participants' models, one of `READS`, and behind `, and` "
    "what else single clients send",
    "reads_with": "the same with other options, as in {algorithm.start=kmeans++: single updates}",
    "sends": "models sent in T rounds of K of N clients in C clusters, by default options",
    "space": "hyper-parameters that `fedclust tune` searches beside those of every method",
    "small": "options that suit the small jobs of the tests",
    "joins": "sampled, where a client is served only after its first round",
}
KINDS = ("clusters", "personal", "one model", "around any", "bound")
# of a method's models a secure aggregation can add up; `sums by cluster` tell the server who is in
# which cluster, `single updates` cannot be hidden from it
READS = ("nothing", "sums", "sums by cluster", "single updates", "as its base")
_BASE = "as its base"


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


def server_reads(config: Mapping[str, Any]) -> str:
    """What a job's server must see of participants, in words of `READS`; "" if nobody says."""
    choices = config.get("choices") or {}
    told = _reads(config, str(choices.get("algorithm")), "algorithm")
    if told.startswith(_BASE):
        base = str(choices.get("algorithm@algorithm.base"))
        below = _reads(config, base, "algorithm.base")
        told = told.replace(_BASE, below, 1) if below else ""
    robust = not is_null(config, "aggregation")  # needs every update by itself
    if robust and told.startswith("sums"):
        told = ", ".join(["single updates", *told.split(", ")[1:]])
    return told


def _reads(config: Mapping[str, Any], name: str, where: str) -> str:
    """What the file of a method says, whose options stand at a place in the config."""
    told = about(name)
    for condition, otherwise in (told.get("reads_with") or {}).items():
        path, _, value = condition.partition("=")
        if str(at(config, path.replace("algorithm", where, 1))) == value:
            return str(otherwise)
    return str(told.get("reads", ""))

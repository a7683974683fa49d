"""What of an experiment's protocol was changed on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedclust.config.schema import part_of
from fedclust.config.tree import CONF
from fedclust.report.runs import Run

# who is compared, for how many seeds, how often tested, at what size; data are said elsewhere
_OPEN = ("algorithm", "algorithm@algorithm.base", "case", "seeds", "eval_every", "scale")
_DATA = "dataset"


def changed(run: Run) -> tuple[str, ...]:
    """The overrides by which a job is not the experiment's, where a paper tells the protocol."""
    own = _read("experiment", run.choices.get("experiment", ""))
    report = own.get("report") or {}
    if not (report.get("published") or report.get("claims")):
        return ()
    values = [own, _read("case", run.choices.get("case", ""))]
    swept = ((own.get("hydra") or {}).get("sweeper") or {}).get("params") or {}
    return tuple(
        f"{key}={value}"
        for key, value in _given(run)
        if key not in swept and not any(_is(value, node, key) for node in values)
    )


def _given(run: Run) -> Iterator[tuple[str, str]]:
    """The overrides that a protocol decides."""
    for text in run.config.get("overrides") or ():
        key, _, value = str(text).lstrip("+~").partition("=")
        decided = part_of(key) in ("setting", "method")
        if decided and key not in _OPEN and key.partition(".")[0] != _DATA:
            yield key, value


def _is(value: str, node: Any, key: str) -> bool:
    """Whether a config has this value for a dotted key."""
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return bool(node == yaml.safe_load(value))


@cache
def _read(group: str, name: str) -> Mapping[str, Any]:
    """A config of a group as its file has it; nothing where there is none."""
    file = Path(CONF) / group / f"{name}.yaml"
    node = yaml.safe_load(file.read_text(encoding="utf-8")) if name and file.is_file() else None
    return node if isinstance(node, dict) else {}

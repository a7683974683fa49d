"""Which fast paths of a GPU are on: by default those that were measured on this card.

`make check-gpu` compares each path with the CPU, takes its time with and without it, and keeps what
it found in the user's cache folder, by card and version of PyTorch. A path that was never measured
there, or was not right and faster, is off: PyTorch's operations compute the same, to rounding.

FEDCLUST_KERNELS in the environment says otherwise: all, none, or some of `PATHS` with commas
between; auto is the default.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from functools import cache

import torch

from fedclust.engines.fused.native.compiled import folder
from fedclust.helpers.errors import require
from fedclust.helpers.files import atomic_write, opened_json, sealed_json

_LOG = logging.getLogger(__name__)
KERNELS = ("gather", "softmax")  # in Triton
PATHS = ("graphs", *KERNELS)
VARIABLE = "FEDCLUST_KERNELS"
FASTER, SLOWER, WRONG = "right and faster", "right and slower", "wrong"


def wanted(device: torch.device) -> Collection[str]:
    """The paths that are on; ConfigError if the environment names one that does not exist."""
    asked = os.environ.get(VARIABLE, "auto")
    if asked == "auto":
        verdicts = _verdicts(_card(device)) if device.type == "cuda" else {}
        return [path for path in PATHS if verdicts.get(path) == FASTER]
    named = {"all": PATHS, "none": ()}.get(asked, asked.split(","))
    allowed = f"auto, all, none, or some of {','.join(PATHS)}"
    require(not set(named) - set(PATHS), VARIABLE, asked, allowed)
    return named


def keep(device: torch.device, verdicts: Mapping[str, str]) -> None:
    """Remember what was measured on a card; verdicts on other paths stay."""
    card = _card(device)
    own = {**_verdicts(card), **{path: verdicts[path] for path in PATHS if path in verdicts}}
    known = {**_known(), card: own}
    file = folder() / "gpu.json"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_write(file, sealed_json(known))
    _verdicts.cache_clear()


@cache
def _verdicts(card: str) -> Mapping[str, str]:
    """What was measured on a card, by path."""
    verdicts: Mapping[str, str] = _known().get(card, {})
    return verdicts


def _known() -> dict[str, dict[str, str]]:
    """The verdicts by card; none of a damaged file."""
    file = folder() / "gpu.json"
    try:
        verdicts = opened_json(file.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        _LOG.warning("%s cannot be read: %s", file, error)
        return {}
    if verdicts is None:
        _LOG.warning("%s is damaged; make check-gpu writes it anew", file)
    return verdicts or {}


def _card(device: torch.device) -> str:
    """What a verdict holds for."""
    return f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}"

"""Every algorithm on small jobs: its rounds on a GPU against those of the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from fedclust.config.build import build
from fedclust.config.tree import CONF

NAMES = tuple(sorted(path.stem for path in (CONF / "algorithm").glob("*.yaml")))
_FAR, _EXAMPLES = 1e-2, 2  # of a test loss, relative; test examples on the border of two classes


def check(name: str, device: torch.device, tell: Callable[[dict[str, Any]], None]) -> None:
    """Compare the rounds of one algorithm.

    Every round's labels are to be the same, its accuracy but for a few examples, and its test loss
    to rounding. Where a clustering is a close call, rounding may turn it: the round is told.
    """
    from digits_jobs import config_of, engine_of, job_of, play

    want = play(job_of(name), engine_of("fused", name))
    job = build({**config_of(name), "device": str(device)})
    loss, examples, labels = 0.0, 0.0, ""
    for one, other in zip(play(job, job.engine), want, strict=True):
        far = abs(one.test_loss - other.test_loss) / other.test_loss
        loss = max(loss, math.inf if math.isnan(far) else far)
        count = int(other.evaluation.count.sum())
        examples = max(examples, round(abs(one.accuracy - other.accuracy) * count))
        if one.label != other.label and not labels:
            labels = f"other labels in round {one.rnd.t + 1}"
    right = not labels and loss <= _FAR and examples <= _EXAMPLES
    tell({"way": "fused", "apart": loss, "examples": examples, "labels": labels, "right": right})

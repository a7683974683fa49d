"""What every algorithm does in its first rounds, kept in golden.json.

    PYTHONPATH=tests python tests/algorithms/golden.py [NAME…]

writes it anew, or only the methods named. A change of its numbers is a change of results: say in
the commit why it had to be, and raise `fedclust.config.versions.ROUNDS` first, by which frozen
benchmarks know their rounds. golden_rounds.json has the version under which each method's numbers
were written, and their digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from digits_jobs import ALGORITHMS, Played, played_by_loop

from fedclust.config.versions import ROUNDS
from fedclust.metrics.recovery import recovery

GOLDEN = Path(__file__).with_name("golden.json")
VERSIONS = Path(__file__).with_name("golden_rounds.json")
KEPT = (0, 1, 2, 6)  # 0-based rounds; the one-shot methods have their clusters from round 5 on


def line(played: Played) -> dict[str, Any]:
    """The numbers of one round: losses in nats per example, the rest as their names say."""
    models = played.evaluation.served.models.double()
    train_loss = [r.train_loss for r in played.reports if not math.isnan(r.train_loss)]
    return {
        "round": played.rnd.t,
        "train_loss": train_loss[-1],
        "test_loss": played.test_loss,
        "accuracy": played.accuracy,
        "purity": recovery(played.evaluation, played.rnd).get("purity"),
        "label": played.label,
        "norm": torch.linalg.vector_norm(models, dim=1).tolist(),  # of every model
        "mean": models.mean(1).tolist(),
    }


def lines(algorithm: str) -> list[dict[str, Any]]:
    """The kept rounds of an algorithm on the reference engine."""
    played = played_by_loop(algorithm)
    return [line(played[t]) for t in KEPT]


def write(names: Sequence[str] = ()) -> None:
    """Write the file anew, one line a round: all methods, or only those named."""
    kept = json.loads(GOLDEN.read_text()) if names else {}
    versions = json.loads(VERSIONS.read_text()) if VERSIONS.is_file() else {}
    blocks, new = [], {}
    for algorithm in ALGORITHMS:
        made = algorithm in names or algorithm not in kept
        found = lines(algorithm) if made else kept[algorithm]
        rows = ",\n".join("  " + json.dumps(_rounded(row)) for row in found)
        new[algorithm] = versions.get(algorithm, [])
        if new[algorithm][1:] != [digest(_rounded(found))]:
            if ROUNDS in new[algorithm]:
                raise SystemExit(f"{algorithm} has other rounds: raise ROUNDS above {ROUNDS} first")
            new[algorithm] = [ROUNDS, digest(_rounded(found))]
        blocks.append(f'"{algorithm}": [\n{rows}\n]')
    GOLDEN.write_text("{\n" + ",\n".join(blocks) + "\n}\n")
    lines_of_versions = [f'"{name}": {json.dumps(one)}' for name, one in new.items()]
    VERSIONS.write_text("{\n" + ",\n".join(lines_of_versions) + "\n}\n")


def digest(rows: Any) -> str:
    """Of a method's rounds, as the file has them."""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def _rounded(value: Any) -> Any:
    """Floats to seven digits: those after them depend on the machine."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


if __name__ == "__main__":
    torch.set_num_threads(1)
    write(sys.argv[1:])

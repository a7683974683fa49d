"""Federations that nobody has seen before a freeze: six cases, drawn from a secret seed.

The seed is published after the freeze; until then its digest stands on the page, so that nobody
can choose it later. Every federation has another kind of shift, and all its numbers are drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fedclust.helpers.errors import require
from fedclust.helpers.files import atomic_write

DATASETS = {"mnist": 10, "fashion_mnist": 10, "emnist_letters": 26}
_FOLDER = "held_out"
_CORRUPTIONS = ("gaussian_noise", "gaussian_blur", "contrast", "brightness")


def digest_of(seed: str) -> str:
    """What is published of a seed before the seed is."""
    return hashlib.sha256(seed.encode()).hexdigest()


def draw(
    seed: str, datasets: Mapping[str, int] = DATASETS, clients: tuple[int, int] = (60, 100)
) -> dict[str, dict[str, Any]]:
    """The cases by name, as files of the group `case` have them.

    Args:
        seed: any text; the same text gives the same cases.
        datasets: numbers of classes, by the choice of `dataset`.
        clients: the fewest and the most.
    """
    rng = np.random.default_rng(list(hashlib.sha256(seed.encode()).digest()))
    names = [f"{number}_{kind}" for number, kind in enumerate(rng.permutation(list(KINDS)), 1)]
    cases = {}
    for name in names:
        dataset = str(rng.choice(list(datasets)))
        k, size = int(rng.integers(2, 9)), int(rng.integers(60, 201))
        count = k * -(-int(rng.integers(clients[0], clients[1] + 1)) // k)
        base = {"num_clients": count, "examples_per_client": size}
        chosen, k, node = KINDS[name.partition("_")[2]](rng, k, base, datasets[dataset])
        groups = {"dataset": dataset, "model": "mlp200", **chosen}
        cases[name] = {
            "defaults": [{f"override /{group}": choice} for group, choice in groups.items()],
            "num_clusters": k,
            **node,
            "report": {"case": name.replace("_", " "), "dataset": dataset},
        }
    return cases


def write(seed: str, folder: Path) -> list[str]:
    """The cases as files below a new folder, for `--config-dir`; returns the choices of `case`.

    Raises:
        ConfigError: for a folder that is there.
    """
    require(not folder.exists(), "folder", folder, "one that is not there yet")
    (folder / "case" / _FOLDER).mkdir(parents=True)
    cases = draw(seed)
    for name, case in cases.items():
        file = folder / "case" / _FOLDER / f"{name}.yaml"
        text = yaml.safe_dump(case, sort_keys=False)
        atomic_write(file, f"# @package _global_\n# {name}, a held-out federation\n{text}")
    return [f"{_FOLDER}/{name}" for name in cases]


def _uneven(rng: np.random.Generator, k: int) -> list[float]:
    """Shares of k groups, the smallest at least a third of the mean."""
    drawn = rng.dirichlet([4.0] * k)
    shares = (1 / 3) / k + (2 / 3) * drawn
    rounded = [round(float(share), 3) for share in shares[:-1]]
    return [*rounded, round(1 - sum(rounded), 3)]


_Case = tuple[dict[str, str], int, dict[str, Any]]
_Base = Mapping[str, int]


def _rotation(rng: np.random.Generator, k: int, base: _Base, _: int) -> _Case:
    first = int(rng.integers(0, 360))
    bank = [f"rotate {(first + 360 * i // k) % 360 or 360}" for i in range(k)]
    node = {"bank": bank, "assignment": _uneven(rng, k), "base": dict(base)}
    return {"partition": "transform"}, k, {"partition": node}


def _corruption(rng: np.random.Generator, k: int, base: _Base, _: int) -> _Case:
    k = min(k, 1 + len(_CORRUPTIONS))
    some = rng.permutation(list(_CORRUPTIONS))[: k - 1]
    bank = ["identity", *(f"{name} {rng.integers(3, 6)}" for name in some)]
    node = {"bank": bank, "assignment": _uneven(rng, k), "base": dict(base)}
    return {"partition": "transform"}, k, {"partition": node}


def _labels(rng: np.random.Generator, k: int, base: _Base, classes: int) -> _Case:
    return {"partition": "label_map"}, k, {"partition": _maps(rng, k, base, classes)}


def _maps(rng: np.random.Generator, k: int, base: _Base, classes: int) -> dict[str, Any]:
    return {
        "maps": "random",
        "num_concepts": k,
        "moved": int(rng.integers(max(4, classes // 4), classes + 1)),
        "data_seed": int(rng.integers(1, 10**6)),
        "assignment": _uneven(rng, k),
        "base": dict(base),
    }


def _classes(rng: np.random.Generator, k: int, base: _Base, classes: int) -> _Case:
    # every class has an owner
    most = max(-(-classes // k), int(rng.integers(classes // 5, classes * 3 // 5 + 1)))
    node = {"subsets": "random", "num_clusters": k, "classes_per_cluster": most, **base}
    return {"partition": "class_subsets"}, k, {"partition": node}


def _quantity(rng: np.random.Generator, k: int, base: _Base, classes: int) -> _Case:
    node = {"beta": round(float(rng.uniform(0.4, 1.0)), 2), "base": _maps(rng, k, base, classes)}
    groups = {"partition": "quantity", "partition@partition.base": "label_map"}
    return groups, k, {"partition": node}


def _drift(rng: np.random.Generator, k: int, base: _Base, classes: int) -> _Case:
    table = str(rng.choice(["staggered", "sudden", "recurring"]))
    maps = _maps(rng, k, base, classes) | {"assignment": "balanced"}
    node = {"partition": maps, "scenario": {"table": table, "every": 4, "steps": 10}}
    return {"partition": "label_map", "scenario": "drift"}, k, node


KINDS: Mapping[str, Callable[[np.random.Generator, int, _Base, int], _Case]] = {
    "rotation": _rotation,
    "corruption": _corruption,
    "labels": _labels,
    "classes": _classes,
    "quantity": _quantity,
    "drift": _drift,
}
"""Every kind of shift by its name: from the draw, the number of groups, the clients and the
classes to the choices, the number of groups and the nodes of the case.
"""

"""The data of a job: who has which examples, by seed, on the device that computes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedclust.config.fits import check_suits
from fedclust.config.objects import Objects
from fedclust.config.schema import seed_list
from fedclust.config.values import Parts
from fedclust.core import federation
from fedclust.core.attack import Attack, under_attack
from fedclust.core.task import Classification, Task
from fedclust.core.types import Dataset, Federation, Pool
from fedclust.core.verbs import Partition
from fedclust.datasets.raw import described
from fedclust.helpers.distributed import here
from fedclust.helpers.errors import require
from fedclust.helpers.names import OF_ALL_SEEDS
from fedclust.models.named import file_of
from fedclust.models.weights import file_digest


def data_of(config: Mapping[str, Any], user_dir: Path | None = None) -> dict[int, Federation]:
    """Every seed's data without hostile clients, on the CPU; arguments, UserError as in `build`."""
    parts = Parts.of(config, Objects.for_job(config, user_dir), ("partition", "task"))
    check_suits(parts.made["task"], partition=parts.made["partition"])
    loader = parts.objects.make(config["dataset"], "dataset")
    return federations_of(parts, loader, torch.device("cpu"))


def federations_of(parts: Parts, loader: Any, device: torch.device) -> dict[int, Federation]:
    """Every seed's data, through a network if so asked, with digests of all that decides it."""
    config, objects, made = parts.config, parts.objects, parts.made
    seeds, attack, task = seed_list(config["seeds"]), made.get("attack"), made["task"]
    dataset = here().in_turn(lambda: load_dataset(loader, task))  # one downloads
    named = parts.choice("attack") if attack is not None else ""
    how = config["validation"], task, attack, named
    federations = federate(dataset, made["partition"], seeds, device, *how)
    seen = pool = federations[seeds[0]].pool
    if (node := config.get("features")) is not None:
        from fedclust.datasets.features import Features  # few jobs need it

        features, own = objects.of(Features, node, "features"), None
        if isinstance(features.model, Mapping):
            objects.check(features.model, "model")
            own = partial(objects.make, features.model, "model", vocabulary=pool.vocabulary)
        folder = Path(config["data"]["root"]) / "features"
        seen = here().in_turn(lambda: features.of(pool, folder, own))
    begins = {"weights": config.get("weights"), "model.weights": file_of(config["model"])}
    files = {key: file for key, file in begins.items() if file}
    require(len(files) < 2, "weights", config.get("weights"), "null beside model.weights")
    for key, file in files.items():
        sources = {"the weights that models begin with": file_digest(key, file)}
        seen = replace(seen, sources={**seen.sources, **sources})
    if seen is pool:
        return federations
    return {seed: replace(fed, pool=seen) for seed, fed in federations.items()}


def load_dataset(loader: Any, task: Task) -> Dataset:
    """The arrays; a `load` with an argument `targets` hears what the task needs."""
    told = "targets" in inspect.signature(loader.load).parameters
    dataset: Dataset = loader.load(targets=task.targets) if told else loader.load()
    return dataset


def federate(
    dataset: Dataset,
    partition: Partition,
    seeds: Sequence[int],
    device: torch.device,
    validation: float = 0.0,
    task: Task | None = None,
    attack: Attack | None = None,
    named: str = "",
) -> dict[int, Federation]:
    """The federation of every seed on the device, all on one pool.

    Args:
        validation: part of each client's training examples that is for validation.
        task: what is predicted; None for classification.
        attack: what hostile clients do; None without them.
        named: the choice of the attack; "" for its class.
    """
    fitted, dataset = (Classification() if task is None else task).fit(dataset)
    pool = replace(partition.pool(dataset), task=fitted)
    whole = fitted.weights is None or len(fitted.weights) == pool.num_classes
    allowed = f"null, since the partition takes {pool.num_classes} of {dataset.num_classes} classes"
    require(whole, "task.class_weight", getattr(task, "class_weight", None), allowed)
    federations = {
        seed: federation.build(dataset, partition, seed, pool=pool, validation=validation)
        for seed in seeds
    }
    sources = {}
    if dataset.fit is not None:  # to the training examples of every seed
        sources = {OF_ALL_SEEDS: pool.digest}
        federations = dataset.fit(dataset, federations)
    federations = {seed: replace(fed, raw=described(fed)) for seed, fed in federations.items()}
    if attack is not None:
        federations = under_attack(federations, attack, named)
    on_device = replace(federations[seeds[0]].pool, sources=sources).to(device)
    return {seed: _moved(fed, on_device) for seed, fed in federations.items()}


def _moved(fed: Federation, pool: Pool) -> Federation:
    """The federation on the device of a pool."""
    device = pool.x.device
    splits: dict[str, Any] = {name: split.to(device) for name, split in fed.splits.items()}
    if fed.hostile is not None:
        splits["hostile"] = fed.hostile.to(device)
    return replace(fed, pool=pool, group=fed.group.to(device), **splits)


def choose_device(name: str, local_rank: int | None = None) -> torch.device:
    """The device meant by `device: auto|cpu|cuda|cuda:N`; ConfigError if there is none.

    Args:
        local_rank: which of this machine's ranks asks; each has a GPU of its own.
    """
    available = torch.cuda.device_count()
    if local_rank is not None:
        return _device_of_rank(name, local_rank, available)
    if name == "auto":
        name = "cuda" if available else "cpu"
    allowed = (
        ["auto", "cpu"] + (["cuda"] if available else []) + [f"cuda:{i}" for i in range(available)]
    )
    require(name in allowed, "device", name, f"one of {', '.join(allowed)} on this machine")
    return torch.device("cuda:0" if name == "cuda" else name)


def _device_of_rank(name: str, local_rank: int, available: int) -> torch.device:
    """The device of one of several ranks."""
    if name == "cpu" or (name == "auto" and not available):
        return torch.device("cpu")
    allowed = f"auto, cpu or cuda with at most one rank per GPU, and this machine has {available}"
    require(name in ("auto", "cuda") and local_rank < available, "device", name, allowed)
    torch.cuda.set_device(local_rank)
    return torch.device(f"cuda:{local_rank}")

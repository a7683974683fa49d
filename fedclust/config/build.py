"""From a composed config to a job: the only place where a config becomes something that runs."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import torch
import yaml

from fedclust.algorithms.wrappers.keeping import keeping
from fedclust.algorithms.wrappers.with_norm import with_norm
from fedclust.algorithms.wrappers.with_server import WithServer
from fedclust.config.fits import (
    as_chosen,
    check_batches,
    check_objective,
    check_privacy,
    check_statistics,
    check_suits,
    choice,
)
from fedclust.config.idle import idle
from fedclust.config.job import Job
from fedclust.config.objects import Objects
from fedclust.config.parts import PARTS, SHARED, is_null
from fedclust.config.references import places
from fedclust.config.schema import check_keys, objective_of, seed_list
from fedclust.config.scores import measures
from fedclust.config.tree import CONF, choices_with
from fedclust.config.versions import versions
from fedclust.core import federation
from fedclust.core.attack import Attack, under_attack
from fedclust.core.solver import solvers_of
from fedclust.core.task import Classification, Score, Task
from fedclust.core.traits import check_averages
from fedclust.core.types import Dataset, Federation, Pool
from fedclust.core.verbs import Engine, Partition
from fedclust.datasets.raw import described
from fedclust.engines import make_engine
from fedclust.engines.sharded import sharded
from fedclust.helpers.cgroups import cpus
from fedclust.helpers.distributed import here
from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.files import read_text
from fedclust.metrics import FORMS, OURS, document, meaning
from fedclust.metrics.after_change import changed_names
from fedclust.models.lora import Lora
from fedclust.models.weights import beginning, file_digest
from fedclust.trackers import in_a_line


def build(
    config: Mapping[str, Any],
    user_dir: Path | None = None,
    like: Job | None = None,
    federations: Mapping[int, Federation] | None = None,
) -> Job:
    """All parts of a job from its resolved config.

    Args:
        config: see `fedclust.config.schema.resolve`.
        user_dir: folder given with --config-dir, see `fedclust.config.objects`.
        like: a job of the same setting, whose data and engine are taken over.
        federations: the data by seed, where a job with the same has made them.

    Raises:
        UserError: one line that names the key to change; nothing has been written by then.
    """
    objects = check_method(config, user_dir)
    algorithm, scenario, partition, tracker, task = (
        objects.make(config[group], group)
        for group in ("algorithm", "scenario", "partition", "tracker", "task")
    )
    server, aggregation, privacy, attack = (
        None if is_null(config, group) else objects.make(config[group], group)
        for group in ("server", "aggregation", "privacy", "attack")
    )
    chosen = {str(group): str(one) for group, one in (config.get("choices") or {}).items()}
    called = as_chosen(
        chosen, algorithm=algorithm, scenario=scenario, partition=partition, attack=attack
    )
    for group, part in (("server", server), ("aggregation", aggregation)):
        if part is not None:
            check_averages(group, choice(config, group), algorithm, called(algorithm))
    if server is not None:
        algorithm = WithServer(base=algorithm, server=server)
    for solver in solvers_of(algorithm):
        solver.check_rounds(config["rounds"])
    if privacy is not None:
        check_privacy(config, algorithm, scenario, called)
    if config["norm"] != "average":
        algorithm = with_norm(algorithm, config["norm"])
    document_scores(task)
    check_suits(
        task, called, attack=attack, algorithm=algorithm, scenario=scenario, partition=partition
    )
    scores = measures(config, objects, task)
    meaning(objective_of(config), "objective")  # now that a method's own metrics are known
    if like is None:
        engine, federations = _computing(config, partition, objects, task, attack, federations)
    else:
        engine, federations = like.engine, like.federations
    check_objective(config, federations, task)
    if privacy is not None:
        num_clients = min(fed.num_clients for fed in federations.values())
        k = config["algorithm"].get("num_clusters", 1)
        num_models = 1 if idle(config, "algorithm.num_clusters", objects) else k
        share = getattr(scenario, "participation", config["participation"])
        privacy.check(share, num_clients, engine.layout.num_buffers, num_models)
    check_statistics(config["norm"], algorithm, engine.layout, called)
    device = next(iter(federations.values())).pool.x.device
    return Job(
        algorithm=keeping(algorithm),
        aggregation=aggregation,
        attack=attack,
        privacy=privacy,
        choices=chosen,
        scenario=scenario,
        tracker=in_a_line(tracker, chosen.get("tracker", "")),
        engine=engine,
        federations=federations,
        rounds=config["rounds"],
        eval_every=config["eval_every"],
        discrepancy=config["discrepancy"] or config["objective"] == "discrepancy",
        scores=scores,
        score_every=config["score_every"],
        predictions=config["predictions"],
        checkpoint_seconds=config["checkpoint_seconds"],
        versions=versions(device, engine.name, config["max_rows"]),
    )


def check_method(config: Mapping[str, Any], user_dir: Path | None = None) -> Objects:
    """Check all values but those that only the data, or the parts themselves, can judge.

    Args:
        config, user_dir: as for `build`.

    Returns:
        What makes the parts.

    Raises:
        ConfigError: naming the key.
    """
    check_keys(config)
    objects = Objects(user_dir, {key: config[key] for key in SHARED})
    beside = (group for group, part in PARTS.items() if part.null and not is_null(config, group))
    for group in ("solver", *beside):
        objects.check(config[group], group)
    check_common(config["common"], objects)
    _check_auto(config, objects)
    objects.check(config["algorithm"], "algorithm")
    return objects


def _check_auto(config: Mapping[str, Any], objects: Objects) -> None:
    """Refuse num_clusters=auto of a method that needs a number, and name those that find it."""
    node: Any = config["algorithm"]
    by_place = {str(key): str(one) for key, one in (config.get("choices") or {}).items()}
    place, name = "algorithm", choice(config, "algorithm")
    while isinstance(node, Mapping) and "_target_" in node:
        auto = config["num_clusters"] == node.get("num_clusters") == "auto"
        if auto and (wanted := objects.misfit("auto", node["_target_"], ["num_clusters"])):
            grouping = re.compile("cluster_method")  # which finds it
            number = re.compile(r"^num_clusters: \$", re.MULTILINE)
            takes_number = choices_with("algorithm", number, objects.user_dir)
            found = choices_with("algorithm", grouping, objects.user_dir)
            finders = ", ".join(one for one in found if one not in takes_number)
            raise ConfigError(
                f"num_clusters=auto is not allowed: {name} takes {wanted}; "
                f"methods that find the number are {finders}"
            )
        node, place = node.get("base"), f"{place}.base"
        name = by_place.get(f"algorithm@{place}", name)


def check_common(common: Mapping[str, Any], objects: Objects) -> None:
    """Check what stands below `common` against the arguments that groups take from there.

    Raises:
        ConfigError: if no choice of any group reads a key, or none allows its value.
    """
    roots = [CONF] if objects.user_dir is None else [CONF, objects.user_dir]
    readers = common_readers(roots)
    for name, value in common.items():
        key = f"common.{name}"
        known = ", ".join(sorted(readers))
        require(name in readers, key, value, f"no group reads it; those that are read: {known}")
        wanted = list[str]()
        for reader in readers[name]:  # the first that allows it is enough: each is imported
            wanted.append(objects.misfit(value, *reader))
            if not wanted[-1]:
                break
        require("" in wanted, key, value, f"expected {' or '.join(dict.fromkeys(wanted))}")


def common_readers(roots: Sequence[Path]) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Who reads a key below `common`: a target, and the path of its argument."""
    readers: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for root in roots:
        for name, target, path in _our_readers() if root == CONF else _readers(root):
            readers.setdefault(name, []).append((target, path))
    return readers


@cache
def _our_readers() -> list[tuple[str, str, tuple[str, ...]]]:
    """Those of our own config tree, which stays as it is while a process runs."""
    return list(_readers(CONF))


def _readers(root: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The keys below `common` that a config tree reads, with target and path."""
    for file in sorted(root.rglob("*.yaml")):
        text = read_text(file)
        node = yaml.safe_load(text) if "${common." in text else None
        if isinstance(node, dict) and "_target_" in node:
            for place, key in places(node):
                above, _, name = key.partition(".")
                if above == "common":
                    yield name, str(node["_target_"]), tuple(place.split("."))


def _computing(
    config: Mapping[str, Any],
    partition: Partition,
    objects: Objects,
    task: Task,
    attack: Attack | None,
    federations: Mapping[int, Federation] | None,
) -> tuple[Engine, Mapping[int, Federation]]:
    """The engine, and the data of every seed on its device, unless they are there already."""
    objects.check(config["model"], "model")
    ranks = here()
    loader = objects.make(config["dataset"], "dataset")
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    elif quota := cpus():  # more threads than processors' time wait for each other
        torch.set_num_threads(max(1, min(torch.get_num_threads(), math.ceil(quota))))
    device = choose_device(config["device"], ranks.local_rank)
    if federations is None:
        dataset = ranks.in_turn(lambda: load_dataset(loader, task))  # one downloads
        federations = _federations(config, dataset, partition, device, task, objects, attack)
    pool = next(iter(federations.values())).pool
    outputs = task.width(pool.num_classes)
    made_for = {"in_shape": pool.shape, "num_classes": outputs, "vocabulary": pool.vocabulary}
    make = partial(objects.make, config["model"], "model", **made_for)
    lora = config.get("lora")
    adapters = None if lora is None else objects.of(Lora, lora, "lora")
    model = beginning(make, config.get("weights"), config.get("frozen") or (), adapters)
    how = config["max_rows"], config["precision"]
    engine = make_engine(config["engine"], model, pool, *how)
    if not cast(Any, engine).model.lone:
        check_batches(objects.make(config["solver"], "solver"), federations)
    return sharded(engine, ranks), federations


def data_of(config: Mapping[str, Any], user_dir: Path | None = None) -> dict[int, Federation]:
    """The data of every seed as a job without hostile clients would have them, on the CPU and
    without its other parts.

    Args:
        config, user_dir: as for `build`.

    Raises:
        UserError: as `build`.
    """
    objects = Objects(user_dir, {key: config[key] for key in SHARED})
    partition, task = (objects.make(config[group], group) for group in ("partition", "task"))
    check_suits(task, partition=partition)
    dataset = load_dataset(objects.make(config["dataset"], "dataset"), task)
    return _federations(config, dataset, partition, torch.device("cpu"), task, objects)


def _federations(
    config: Mapping[str, Any],
    dataset: Dataset,
    partition: Partition,
    device: torch.device,
    task: Task,
    objects: Objects,
    attack: Attack | None = None,
) -> dict[int, Federation]:
    """The data of every seed, seen through a network if so asked, with the digests of what else
    decides results.
    """
    seeds = seed_list(config["seeds"])
    held_out = config["validation"]
    named = choice(config, "attack") if attack is not None else ""
    federations = federate(dataset, partition, seeds, device, held_out, task, attack, named)
    seen = pool = federations[seeds[0]].pool
    if (node := config.get("features")) is not None:
        from fedclust.datasets.features import Features  # few jobs need it

        features, own = objects.of(Features, node, "features"), None
        if isinstance(features.model, Mapping):
            objects.check(features.model, "model")
            own = partial(objects.make, features.model, "model", vocabulary=pool.vocabulary)
        folder = Path(config["data"]["root"]) / "features"
        seen = here().in_turn(lambda: features.of(pool, folder, own))
    if file := config.get("weights"):
        sources = {"the weights that models begin with": file_digest("weights", file)}
        seen = replace(seen, sources=sources)
    if seen is pool:
        return federations
    return {seed: replace(fed, pool=seen) for seed, fed in federations.items()}


def load_dataset(loader: Any, task: Task) -> Dataset:
    """The arrays; a `load` with an argument `targets` hears what the task needs."""
    told = "targets" in inspect.signature(loader.load).parameters
    dataset: Dataset = loader.load(targets=task.targets) if told else loader.load()
    return dataset


def document_scores(task: Task) -> None:
    """Make the numbers of a task known to the recorder and the report."""
    for score in (task.score, *task.beside):
        _document(score, score.name, "")
        for form, which in FORMS.items() if score is task.score else ():
            _document(score, f"{score.name}{form}", f", {which}")
        text = score.text.replace(" test ", " validation ")
        held_out = replace(score, text=text, title=f"{score.title}, on validation examples")
        _document(held_out, f"validation_{score.name}", "")
    changed = "before their data change", "when their data have changed", "since their data changed"
    for name, when in zip(changed_names(task.score.name), changed, strict=True):
        _document(task.score, name, f", of the clients that change, {when}")


def _document(score: Score, name: str, more: str) -> None:
    """Make a form of a score known; those of classification stand in the list."""
    if name not in OURS:
        document(name, score.text + more, score.unit, score.better, score.title + more)


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
        dataset: the arrays.
        partition: who owns what.
        seeds: the seeds.
        device: where the data go.
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
    if dataset.fit is not None:
        federations = dataset.fit(dataset, federations)
    federations = {seed: replace(fed, raw=described(fed)) for seed, fed in federations.items()}
    if attack is not None:
        federations = under_attack(federations, attack, named)
    on_device = federations[seeds[0]].pool.to(device)
    return {seed: _moved(fed, on_device) for seed, fed in federations.items()}


def _moved(fed: Federation, pool: Pool) -> Federation:
    """The federation on the device of a pool."""
    device = pool.x.device
    splits: dict[str, Any] = {name: split.to(device) for name, split in fed.splits.items()}
    if fed.hostile is not None:
        splits["hostile"] = fed.hostile.to(device)
    return replace(fed, pool=pool, group=fed.group.to(device), **splits)


def choose_device(name: str, local_rank: int | None = None) -> torch.device:
    """The device meant by `device: auto|cpu|cuda|cuda:N`.

    Args:
        name: as in the config.
        local_rank: which of this machine's ranks asks; each has a GPU of its own. None without
            ranks.

    Raises:
        ConfigError: if there is no such device here.
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


def check_device(name: str) -> None:
    """Refuse what is no device anywhere, of a job that is done, maybe on another machine.

    Raises:
        ConfigError: naming those there are.
    """
    known = re.fullmatch(r"auto|cpu|cuda(:\d+)?", name) is not None
    require(known, "device", name, "auto, cpu, cuda or cuda:N")


def _device_of_rank(name: str, local_rank: int, available: int) -> torch.device:
    """The device of one of several ranks."""
    if name == "cpu" or (name == "auto" and not available):
        return torch.device("cpu")
    allowed = f"auto, cpu or cuda with at most one rank per GPU, and this machine has {available}"
    require(name in ("auto", "cuda") and local_rank < available, "device", name, allowed)
    torch.cuda.set_device(local_rank)
    return torch.device(f"cuda:{local_rank}")

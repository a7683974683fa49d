"""Config to objects: the only place where a config becomes something that runs."""

from __future__ import annotations

import inspect
import platform
import subprocess
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf

from fedclust import federation, kernels
from fedclust.distributed import here
from fedclust.engines.choose import ENGINES, make_engine
from fedclust.engines.fused import compiled, products
from fedclust.engines.sharded import sharded
from fedclust.errors import ConfigError, UserError, require
from fedclust.trackers import Tracker
from fedclust.types import Dataset, Federation
from fedclust.verbs import Algorithm, Engine, Partition, Scenario

_MOST_THREADS = 1024  # far more make PyTorch crash
_GROUPS = ("dataset", "partition", "scenario", "model", "algorithm", "tracker")


@dataclass
class RunConfig:
    """Schema of the top level of a job's config; the groups check themselves when they are built.

    Attributes:
        name: folder below outputs/.
        seeds: a number (5 means 0 to 4) or a list.
        rounds: global rounds.
        eval_every: rounds between two evaluations; the last round is always evaluated.
        participation: fraction of the clients sampled in a round.
        clients_per_round: number of clients instead of the fraction.
        warmup_participation: fraction sampled in a round of LCFL's warm-up and its relatives'; null
            as above.
        aggregation: how FedAvg and FedProx average, uniform or by_samples.
        num_clusters: k, for every algorithm and clustering method; auto for methods that find it.
        cluster_choice: what IFCA and CFL-MGD choose a client's served model by, train_loss or
            test_loss.
        restart_fraction: of IFCA and CFL-MGD, the part of the first cohort that every initial model
            attracts.
        swap_probability: of each pair of clients and round, where a scenario swaps data.
        release_every: rounds between two releases, where a scenario releases data in parts.
        engine: auto, fused, vmap or loop.
        device: auto, cpu, cuda or cuda:N.
        precision: highest computes in float32; high lets an NVIDIA GPU round what it multiplies to
            TF32; bf16 rounds it to bfloat16 on every device, with engine=fused.
        threads: CPU threads; null leaves PyTorch's choice.
        max_rows: rows computed at once; null chooses from cache or device memory.
        checkpoint_seconds: least time between two checkpoints; 0 saves every round.
        progress: whether the run shows a progress line.
        data: root folder of data sets, and whether to download what is missing.
    """

    name: str = "default"
    seeds: Any = 1
    rounds: int = 10
    eval_every: int = 1
    participation: float = 1.0
    clients_per_round: int | None = None
    warmup_participation: float | None = None
    aggregation: str = "uniform"
    num_clusters: Any = 4
    cluster_choice: str = "train_loss"
    restart_fraction: float | None = None
    swap_probability: float = 0.05
    release_every: int = 50
    lockstep: str = "seeds"
    engine: str = "auto"
    device: str = "auto"
    precision: str = "highest"
    threads: int | None = None
    max_rows: int | None = None
    checkpoint_seconds: float = 30.0
    progress: bool = True
    data: dict[str, Any] = field(default_factory=dict)
    dataset: Any = MISSING
    partition: Any = MISSING
    scenario: Any = MISSING
    model: Any = MISSING
    solver: Any = MISSING
    cluster_metric: Any = MISSING
    cluster_method: Any = MISSING
    algorithm: Any = MISSING
    tracker: Any = MISSING
    scale: Any = MISSING
    report: Any = None


def register_schema() -> None:
    """Make the schema known to Hydra under the name the primary config uses."""
    ConfigStore.instance().store(name="schema", node=RunConfig)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything one job needs, built and checked.

    Attributes:
        algorithm, scenario, tracker: as configured.
        engine: the engine on the pool of examples.
        federations: the data of every seed, on the engine's device.
        rounds, eval_every: how long, and how often to test.
        checkpoint_seconds: least time between two checkpoints.
        versions: what computed this, for versions.json.
    """

    algorithm: Algorithm
    scenario: Scenario
    tracker: Tracker
    engine: Engine
    federations: Mapping[int, Federation]
    rounds: int
    eval_every: int
    checkpoint_seconds: float
    versions: Mapping[str, Any]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return list(self.federations)

    @property
    def shared(self) -> tuple[Engine, Mapping[int, Federation]]:
        """What jobs in one lockstep have in common."""
        return self.engine, self.federations

    @property
    def device(self) -> torch.device:
        """Where the data lie."""
        return next(iter(self.federations.values())).group.device

    def is_evaluated(self, t: int) -> bool:
        """Whether round t is tested."""
        return (t + 1) % self.eval_every == 0 or t == self.rounds - 1


def resolve(config: DictConfig, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The config as plain values, all interpolations replaced, with `extra` keys added.

    Raises:
        ConfigError: for a key that nothing reads, as `++name=value` adds it.
    """
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    for key, value in plain.items():
        known = key in RunConfig.__dataclass_fields__
        require(known, str(key), value, "there is no such key; `fedclust run --cfg job` shows all")
    return {**{str(key): value for key, value in plain.items()}, **extra}


def seed_list(seeds: object) -> list[int]:
    """The seeds meant by `seeds: 5` (0 to 4) or a list.

    Raises:
        ConfigError: on anything else, a repeated or a negative seed.
    """
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        require(
            seeds >= 1, "seeds", seeds, "a number of seeds of at least 1, or a list such as [0,1,2]"
        )
        return list(range(seeds))
    whole = isinstance(seeds, Sequence | ListConfig) and not isinstance(seeds, str)
    listed = list(seeds) if whole else []  # type: ignore[call-overload]
    fine = bool(listed) and all(
        isinstance(s, int) and not isinstance(s, bool) and 0 <= s < 2**63 for s in listed
    )
    require(
        fine and len(set(listed)) == len(listed),
        "seeds",
        seeds,
        "a number of seeds of at least 1, or a list of different integers below 2^63 such as "
        "[0,1,2]",
    )
    return listed


def check_scalars(config: Mapping[str, Any]) -> None:
    """Check the ranges of the top-level values.

    Raises:
        ConfigError: naming the key.
    """
    seed_list(config["seeds"])
    require(config["rounds"] >= 1, "rounds", config["rounds"], "at least 1")
    require(config["eval_every"] >= 1, "eval_every", config["eval_every"], "at least 1")
    k = config["num_clusters"]
    whole = isinstance(k, int) and not isinstance(k, bool)
    require(k == "auto" or (whole and k >= 1), "num_clusters", k, "a number of at least 1, or auto")
    require(
        0 < config["participation"] <= 1,
        "participation",
        config["participation"],
        "a fraction in (0, 1]",
    )
    for key in ("warmup_participation", "restart_fraction"):
        value = config[key]
        require(value is None or 0 < value <= 1, key, value, "a fraction in (0, 1], or null")
    choice = config["cluster_choice"]
    require(
        choice in ("train_loss", "test_loss"), "cluster_choice", choice, "train_loss or test_loss"
    )
    require(config["engine"] in ENGINES, "engine", config["engine"], "one of " + ", ".join(ENGINES))
    allowed = "highest, high (TF32 on an NVIDIA GPU) or bf16"
    require(
        config["precision"] in ("highest", "high", "bf16"),
        "precision",
        config["precision"],
        allowed,
    )
    for key, most in (("threads", _MOST_THREADS), ("max_rows", None)):
        value = config[key]
        allowed = "at least 1, or null" if most is None else f"1 to {most}, or null"
        require(value is None or 1 <= value <= (most or value), key, value, allowed)
    check_name(str(config["name"]))
    require(
        config["checkpoint_seconds"] >= 0,
        "checkpoint_seconds",
        config["checkpoint_seconds"],
        "at least 0",
    )


def check_name(name: str) -> None:
    """Check that `name` is a folder below outputs/.

    Raises:
        ConfigError: naming the key.
    """
    path = Path(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    require(inside, "name", name, "a folder below outputs/")


def build(config: Mapping[str, Any], user_dir: Path | None = None, like: Job | None = None) -> Job:
    """All parts of a job from its resolved config.

    Args:
        config: see `resolve`.
        user_dir: folder given with --config-dir, the only one besides fedclust that `_target_` may
            name.
        like: a job of the same federation, model and engine, whose memory this one shares.

    Raises:
        UserError: one line that names the key to change; nothing has been written by then.
    """
    check_scalars(config)
    parts = {
        group: make(config[group], group, user_dir)
        for group in _GROUPS
        if group not in ("model", "dataset")
    }
    engine, federations = (
        _computing(config, parts["partition"], user_dir) if like is None else like.shared
    )
    return Job(
        algorithm=parts["algorithm"],
        scenario=parts["scenario"],
        tracker=parts["tracker"],
        engine=engine,
        federations=federations,
        rounds=config["rounds"],
        eval_every=config["eval_every"],
        checkpoint_seconds=config["checkpoint_seconds"],
        versions=versions(federations[seed_list(config["seeds"])[0]].pool.x.device, engine),
    )


def _computing(
    config: Mapping[str, Any], partition: Partition, user_dir: Path | None
) -> tuple[Engine, Mapping[int, Federation]]:
    """The engine, and the data of every seed on its device."""
    check_targets(config["model"], "model", user_dir)
    ranks = here()
    loader = make(config["dataset"], "dataset", user_dir)
    dataset = ranks.in_turn(lambda: load_dataset(loader))  # one downloads
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    device = choose_device(config["device"], ranks.local_rank)
    seeds = seed_list(config["seeds"])
    federations = federate(dataset, partition, seeds, device)
    pool = federations[seeds[0]].pool
    model = make(
        config["model"], "model", user_dir, in_shape=pool.shape, num_classes=pool.num_classes
    )
    engine = make_engine(config["engine"], model, pool, config["max_rows"])
    able = config["precision"] != "bf16" or engine.name == "fused"
    require(able, "precision", "bf16", f"highest or high with engine={engine.name}")
    products.use(config["precision"])
    return sharded(engine, ranks), federations


def load_dataset(loader: Any) -> Dataset:
    """The arrays."""
    dataset: Dataset = loader.load()
    return dataset


def federate(
    dataset: Dataset, partition: Partition, seeds: Sequence[int], device: torch.device
) -> dict[int, Federation]:
    """The federation of every seed on the device, all on one pool."""
    pool = partition.pool(dataset)
    on_device = pool.to(device)
    federations = {}
    for seed in seeds:
        fed = federation.build(dataset, partition, seed, pool=pool)
        federations[seed] = Federation(
            pool=on_device,
            train=fed.train.to(device),
            test=fed.test.to(device),
            group=fed.group.to(device),
        )
    return federations


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


def _device_of_rank(name: str, local_rank: int, available: int) -> torch.device:
    """The device of one of several ranks."""
    if name == "cpu" or (name == "auto" and not available):
        return torch.device("cpu")
    allowed = f"auto, cpu or cuda with at most one rank per GPU, and this machine has {available}"
    require(name in ("auto", "cuda") and local_rank < available, "device", name, allowed)
    torch.cuda.set_device(local_rank)
    return torch.device(f"cuda:{local_rank}")


def make(node: Any, key: str, user_dir: Path | None, **runtime: Any) -> Any:
    """The object a config node describes.

    Args:
        node: mapping with `_target_`.
        key: where the node stands, for messages.
        user_dir: see `build`.
        runtime: arguments that only the data know.

    Raises:
        ConfigError: unknown or missing keys, values of the wrong type, or what the object itself
            refuses.
    """
    check_targets(node, key, user_dir)
    try:
        return instantiate(node, **runtime, _convert_="all")
    except InstantiationException as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, UserError):
            cause = cause.__cause__
        if cause is not None:
            raise cause from None
        raise ConfigError(f"{key}: {' '.join(str(error.__cause__ or error).split())}") from error


def check_targets(node: Any, key: str, user_dir: Path | None) -> None:
    """Check every `_target_` below a node before anything is built.

    Raises:
        ConfigError: if a target is outside fedclust and the user's folder, a key is unknown or
            missing, or a plain value is not of the annotated type.
    """
    if isinstance(node, Mapping):
        for name, value in node.items():
            check_targets(value, f"{key}.{name}", user_dir)
        if "_target_" in node:
            _check_arguments(_locate(str(node["_target_"]), key, user_dir), node, key)
    elif isinstance(node, list):
        for position, value in enumerate(node):
            check_targets(value, f"{key}[{position}]", user_dir)


def _locate(target: str, key: str, user_dir: Path | None) -> Any:
    """The class or function a target names, if it may be named."""
    top = target.split(".", maxsplit=1)[0]
    users = user_dir is not None and (
        (user_dir / f"{top}.py").is_file() or (user_dir / top).is_dir()
    )
    require(
        top == "fedclust" or users,
        f"{key}._target_",
        target,
        "something of fedclust, or of a file in the folder given with --config-dir",
    )
    try:
        return get_object(target)
    except Exception as error:  # importing a user's file can raise anything
        raise ConfigError(f"{key}._target_={target} cannot be imported: {error}") from error


def _check_arguments(target: Any, node: Mapping[str, Any], key: str) -> None:
    """Compare a node's keys and plain values with the target's signature."""
    parameters = inspect.signature(target).parameters
    hints = typing.get_type_hints(target)  # of a class: its fields, inherited ones too
    given = {name: value for name, value in node.items() if not str(name).startswith("_")}
    unknown = [name for name in given if name not in parameters]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        options = ", ".join(name for name in parameters if name not in ("in_shape", "num_classes"))
        raise ConfigError(
            f"{key}.{unknown[0]}={given[unknown[0]]} is not allowed: {key} has the keys {options}"
        )
    for name, value in given.items():
        if name in hints and (allowed := _misfit(value, hints[name])):
            raise ConfigError(f"{key}.{name}={value} is not allowed: expected {allowed}")


def _misfit(value: Any, hint: Any) -> str:
    """What was expected instead, where a plain value does not fit a plain annotation; else
    empty.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        wanted = [_misfit(value, option) for option in typing.get_args(hint)]
        return "" if "" in wanted else " or ".join(wanted)
    if origin is typing.Literal:
        options = typing.get_args(hint)
        return "" if value in options else "one of " + ", ".join(map(str, options))
    if hint is type(None):
        return "" if value is None else "null"
    if hint is float:
        return "" if isinstance(value, int | float) and not isinstance(value, bool) else "a number"
    if hint is int:
        return "" if isinstance(value, int) and not isinstance(value, bool) else "an integer"
    if hint is bool:
        return "" if isinstance(value, bool) else "true or false"
    if hint is str:
        return "" if isinstance(value, str) else "text"
    return ""


def versions(device: torch.device, engine: Engine) -> dict[str, Any]:
    """What computed a result: packages, commit, machine and engine."""
    names = (
        "fedclust",
        "torch",
        "torchvision",
        "numpy",
        "scikit-learn",
        "kmedoids",
        "hydra-core",
        "omegaconf",
    )
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "packages": {name: _version(name) for name in names},
        "python": platform.python_version(),
        "commit": _commit(),
        "device": gpu
        or f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads",
        "engine": engine.name,
        "compiled": compiled.available(),
        "triton": _version("triton") if kernels.runs_on(device) else None,
        "ranks": here().size,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The git commit of the package's own checkout, None for an installed package."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True
        )
    except OSError:
        return None
    return done.stdout.strip() or None

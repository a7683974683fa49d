"""Every top-level key of a job's config, once: its default, what it is, what it may be, its part.

A key's part decides where it counts; nothing else in the package lists keys:

| part | example | changes a result | names the folder | tells arms apart |
|---|---|---|---|---|
| setting | rounds | yes | yes | as the setting, which every method meets alike |
| method | num_clusters | yes | yes | as an option of the method |
| means | threads | to rounding at most | no | no |
| beside | name | no | no | no |

What only some methods or scenarios read is no key of its own: it stands below `common`, and the
groups that read it refer to it, such as `restart_fraction: ${common.restart_fraction}`.

The keys and every question about a key stand together: a new key is one entry here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedclust.config.parts import FIRST_ADDRESS, PARTS
from fedclust.core.norms import DOC, NORMS
from fedclust.helpers.errors import ConfigError, did_you_mean, require
from fedclust.helpers.ranges import MOST, Range

Part = Literal["setting", "method", "means", "beside"]
ENGINES = ("auto", "fused", "vmap", "threads", "loop")
PRECISIONS = ("highest", "high", "bf16")
_MOST_THREADS = 1024  # far more make PyTorch crash
_KEY = "key"
_ALWAYS = object()  # equals no value


@dataclass(frozen=True)
class Check:
    """What a key's value must fulfil.

    Attributes:
        allowed: in words.
        holds: whether a value does.
        options: the words it is one of; () where it is no word.
        numbers: the range that a number is in; None where it is no number.
    """

    allowed: str
    holds: Callable[[Any], bool]
    options: Sequence[str] = ()
    numbers: Range | None = None


@dataclass(frozen=True)
class Key:
    """What a top-level key is.

    Attributes:
        doc: one line for the help.
        part: see the module.
        check: what its value must fulfil; None where the type says all, or a group checks itself.
        named: whether a folder is named by it.
        hashed: whether a folder belongs to one value of it only.
        unhashed: the value that is as if there were no such key, so that folders from before it
            still fit.
    """

    doc: str
    part: Part
    check: Check | None
    named: bool
    hashed: bool
    unhashed: object = _ALWAYS


def key(default: Any, part: Part, doc: str, check: Check | None = None, **other: Any) -> Any:
    """A dataclass field for a key, with `other` attributes of `Key` than its part has."""
    counts = part in ("setting", "method")
    about = Key(doc, part, check, **{"named": counts, "hashed": counts, **other})
    how = "default_factory" if isinstance(default, type) else "default"
    return field(metadata={_KEY: about}, **{how: default})


def between(low: float, high: float, *, null: bool = False) -> Check:
    """A number in a range, or null where that is allowed too."""
    numbers = Range(low, high)
    more = ", or null" if null else ""
    return Check(
        f"a number {numbers.words}{more}",
        lambda v: (null and v is None) or numbers.holds(v),
        numbers=numbers,
    )


def fraction(numbers: Range) -> Check:
    """A number between 0 and 1."""
    return Check(f"a fraction {numbers.words}", numbers.holds, numbers=numbers)


def one_of(*options: str) -> Check:
    """One of some words."""
    return Check(f"one of {', '.join(options)}", lambda value: value in options, options)


def mapping_as(example: str) -> Check:
    """A mapping, or null."""
    return Check(f"null, or a mapping as {example}", lambda v: v is None or isinstance(v, Mapping))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_inside(name: object) -> bool:
    path = Path(str(name))
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return inside and str(path).isprintable()


_A_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,4})?")
DEVICE = Check(
    "auto, cpu, cuda or cuda:N; a GPU is called cuda",
    lambda v: isinstance(v, str) and _A_DEVICE.fullmatch(v) is not None,
)
NAME = Check("a folder below outputs/ without line breaks, as in name=mine", _is_inside)
_COUNT, _COUNT_OR_NULL = between(1, MOST), between(1, MOST, null=True)


@dataclass
class DataConfig:
    """Where data sets lie: their folder, and whether to download what is missing."""

    root: str = "${oc.env:FEDCLUST_DATA,data}"
    download: bool = False


@dataclass
class StopConfig:
    """What ends a job before its last round."""

    hours: float | None = None


@dataclass
class RunConfig:
    """The top level of a job's config; see the module."""

    name: str = key("default", "beside", "folder below outputs/", NAME)
    seeds: Any = key(1, "setting", "a number (5 means 0 to 4) or a list; all are computed together")
    rounds: int = key(20, "setting", "rounds of federated training", _COUNT)
    eval_every: int = key(
        1, "setting", "rounds between two evaluations; the last round is always evaluated", _COUNT
    )
    participation: float = key(
        1.0,
        "setting",
        "fraction of the clients sampled in a round",
        fraction(Range(0, 1, open_low=True)),
    )
    clients_per_round: int | None = key(
        None, "setting", "a number of clients instead of the fraction", _COUNT_OR_NULL
    )
    validation: float = key(
        0.0,
        "setting",
        "share of each client's training examples that is held out for validation",
        fraction(Range(0, 1, open_high=True)),
        unhashed=0.0,
    )
    num_clusters: Any = key(
        4,
        "method",
        "number of clusters, for every method that needs one; auto: estimated from the data",
        Check(
            "a whole number of at least 1, or auto",
            lambda v: v == "auto" or (_is_whole(v) and 1 <= v <= MOST),
        ),
    )
    common: dict[str, Any] = key(
        dict, "method", "options that several methods or scenarios use; the others ignore them"
    )
    discrepancy: bool = key(
        False,
        "means",
        "record the distance of participants' models from their mean; keeps all in memory",
        named=True,
    )
    scores: Any = key(
        list,
        "means",
        "measures of the predictions at the end, as in scores=[auroc,f1_macro]; a mapping with "
        "_target_ is your own",
        Check("a list, as in scores=[auroc,f1_macro]", lambda v: isinstance(v, list)),
        named=True,
    )
    score_every: int | None = key(
        None,
        "means",
        "rounds between two computations of the scores; null: only at the end",
        _COUNT_OR_NULL,
        named=True,
    )
    predictions: bool = key(
        False, "means", "keep the prediction for every test example at the end", named=True
    )
    engine: str = key("auto", "means", "auto | fused | vmap | threads | loop", one_of(*ENGINES))
    device: str = key("auto", "means", "auto | cpu | cuda | cuda:N", DEVICE)
    precision: str = key(
        "highest",
        "setting",
        "highest | high (TF32 on an NVIDIA GPU: faster, products exact to three digits) | "
        "bf16 (exact to two digits, with engine=fused)",
        one_of(*PRECISIONS),
    )
    threads: int | None = key(
        None,
        "means",
        "CPU threads; null: PyTorch's choice, at most the container's share",
        Check(f"1 to {_MOST_THREADS}, or null", lambda v: v is None or 1 <= v <= _MOST_THREADS),
    )
    max_rows: int | None = key(
        None,
        "means",
        "rows computed at once; null: chosen by the size of cache or device memory",
        _COUNT_OR_NULL,
    )
    checkpoint_seconds: float = key(
        30.0,
        "means",
        "least time between checkpoints, at least ten times what one takes; 0: every round",
        between(0, MOST),
    )
    progress: bool = key(True, "beside", "show a progress line")
    data: DataConfig = key(
        DataConfig,
        "beside",
        "root: folder of the data sets; download: whether to download missing data sets",
    )
    dataset: Any = key(MISSING, "setting", "the examples and their labels")
    partition: Any = key(MISSING, "setting", "which client has which examples")
    scenario: Any = key(
        MISSING, "setting", "which clients arrive and are sampled, and how data change"
    )
    model: Any = key(MISSING, "setting", "the network")
    features: Any = key(
        None,
        "setting",
        "a pretrained network that computes features once, as in {model: resnet18, weights: r.pth}",
        mapping_as("{model: resnet18, weights: r.pth}"),
        unhashed=None,
    )
    weights: str | None = key(
        None,
        "setting",
        "file with initial weights, a state dict of PyTorch or safetensors; null: random weights",
        unhashed=None,
    )
    lora: Any = key(
        None,
        "setting",
        "train low-rank adapters of linear layers, and the last layer, as in {rank: 8, alpha: 16}",
        mapping_as("{rank: 8, alpha: 16}"),
        unhashed=None,
    )
    frozen: list[str] = key(
        list,
        "setting",
        "parameters that are neither trained nor sent: names, or patterns as in frozen=[layer1.*]",
        Check(
            "a list of names or patterns, as in frozen=[layer1.*]",
            lambda v: isinstance(v, list) and all(isinstance(one, str) for one in v),
        ),
        unhashed=[],
    )
    attack: Any = key(MISSING, "setting", "what malicious clients do")
    clock: Any = key(
        MISSING, "setting", "clients' devices, by which the time of every round is computed"
    )
    stop: StopConfig = key(
        StopConfig,
        "setting",
        "hours: simulated hours (see clock) after which a job ends before its last round",
        unhashed={"hours": None},
    )
    task: Any = key(MISSING, "setting", "what is predicted, and the loss and metrics")
    solver: Any = key(MISSING, "method", "local training")
    privacy: Any = key(MISSING, "method", "differential privacy of clients")
    aggregation: Any = key(
        MISSING, "method", "how updates are combined inside every cluster, such as a robust mean"
    )
    server: Any = key(MISSING, "method", "the optimiser on the server")
    compression: Any = key(
        MISSING, "method", "how clients send their updates in fewer bits, with error feedback"
    )
    norm: str = key(
        "average",
        "method",
        f"statistics of batch normalisation: {DOC}",
        one_of(*NORMS),
        unhashed="average",
    )
    cluster_metric: Any = key(MISSING, "method", "the distance between two clients")
    cluster_method: Any = key(MISSING, "method", "how clients are clustered by these distances")
    algorithm: Any = key(MISSING, "method", "the method", named=False)  # a folder begins with it
    tuned: str | None = key(
        None,
        "method",
        "best.yaml of `fedclust tune`, or a folder with that of this method and setting",
        hashed=False,  # what it changes are other keys
    )
    tracker: Any = key(
        MISSING, "beside", "a program that gets the numbers in addition to the job's own files"
    )
    scale: Any = key(
        MISSING,
        "setting",
        "the size of an experiment",
        named=False,  # the folder above is
        hashed=False,  # what it changes are other keys
    )
    objective: str | None = key(
        None,
        "beside",
        "metric that a job returns to hydra/sweeper: its last value, mean over seeds; null: the "
        "headline metric of the task, on validation examples if there are any",
    )
    tags: dict[str, Any] = key(
        dict, "beside", "notes for trackers and the report, as in +tags.note=first"
    )
    report: Any = key(None, "beside", "what the report shows and compares; set by experiments")


# groups whose files set other keys, so that no key has their name
CHOICES: Mapping[str, Part] = {"case": "setting", "experiment": "beside", "hydra": "beside"}
# what the config of a folder holds besides the keys
RECORDED = ("choices", "overrides", "search", "hash")
# where the files of a data set lie does not change what is in them
_PLACES = {"dataset": ("root", "download")}
LIKE_SOLVER = "${solver._target_}"  # the `_target_` of a solver with the options of the run's
# options of our parts, by the start of their `_target_`, with the values that are as if there were
# no such option, so that folders from before it still fit
_LATER: Mapping[str, Mapping[str, object]] = {
    "fedclust.algorithms.feroma.": {"serve_by": "own"},
    "fedclust.cluster_methods.": {"auto_by": "silhouette"},
    "fedclust.datasets.": {
        **{"exclude": None, "fill": None, "categories": None, "separator": ",", "decimal": "."},
        **{"vocabulary": None, "text": None, "length": None},
        **{"unlabelled": "refuse", "encoding": "utf-8", "time_format": None, "unit": None},
    },
    "fedclust.models.resnet.": {"norm_layer": "group"},
    "fedclust.solver.": {
        **{"nesterov": False, "dampening": 0.0, "clip_norm": None, "schedule": "exponential"},
        **{"schedule_by": "round", "every": None, "length": None, "floor": 0.0, "warmup": 0},
        **{"keep": "call", "drop_last": False},
    },
}


def keys(schema: type = RunConfig) -> dict[str, Key]:
    """What every top-level key is, in order."""
    return {one.name: one.metadata[_KEY] for one in fields(schema)}


def part_of(name: str) -> Part | None:
    """The part of a key or a group of choices, by the start of a dotted key; None if unknown."""
    top = _top(name)
    if top in CHOICES:
        return CHOICES[top]
    return SCHEMA[top].part if top in SCHEMA else None


def chooses(name: str) -> bool:
    """Whether an override of this key chooses a file of a group, as partition=iid does."""
    return "." not in name.rpartition("@")[2] and (_top(name) in PARTS or _top(name) in CHOICES)


def names_folder(name: str) -> bool:
    """Whether an override of this key is in the name of a job's folder."""
    if _top(name) in CHOICES:
        return CHOICES[_top(name)] != "beside"
    # an option of the method, or a part of it as in algorithm@algorithm.base, not the choice of it
    top, _, below = name.rpartition("@")[2].partition(".")
    if below and top == "algorithm":
        return True
    if below in _PLACES.get(top, ()):
        return False
    about = SCHEMA.get(_top(name))
    return about is None or about.named


def tells_arms_apart(name: str) -> bool:
    """Whether two jobs of a sweep may be told apart by this key."""
    return part_of(name) not in ("means", "beside")


def is_setting(name: str) -> bool:
    """Whether every method of a comparison meets this key alike."""
    return part_of(name) == "setting"


def is_shown(name: str) -> bool:
    """Whether a report shows the key among the settings."""
    return name not in RECORDED and part_of(name) != "beside"


def relevant(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved config that decides its results."""
    kept = {
        name: value
        for name, value in config.items()
        if name not in RECORDED and (name not in SCHEMA or _is_hashed(name, value))
    }
    for name, places in _PLACES.items():
        if isinstance(kept.get(name), Mapping):
            kept[name] = {k: v for k, v in kept[name].items() if k not in places}
    return {name: _as_before(value) for name, value in kept.items()}


def _as_before(value: Any) -> Any:
    """A part, with those it has, under its first address and without options like none."""
    if isinstance(value, list):
        return [_as_before(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    target = str(value.get("_target_"))
    later = [options for start, options in _LATER.items() if target.startswith(start)]
    gone = {name: same for options in later for name, same in options.items()}
    kept = {k: _as_before(v) for k, v in value.items() if k not in gone or v != gone[k]}
    return kept | ({"_target_": FIRST_ADDRESS[target]} if target in FIRST_ADDRESS else {})


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first key by which the results of two resolved configs differ; "" where they are the
    same.

    0 and 0.0 are equal. What stands below `common` counts where a group has read it.
    """
    first, second = relevant(one), relevant(other)
    return _differing({**first, "common": None}, {**second, "common": None}, "")


def spelt_as(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the values of another one that decides alike, as that spells them."""
    taken = {name: other[name] for name in relevant(other)}
    for name, places in _PLACES.items():
        if isinstance(taken.get(name), Mapping):  # where the files lie now
            places_now = {key: config[name][key] for key in places if key in config[name]}
            taken[name] = {**taken[name], **places_now}
    return {**config, **taken}


def _differing(one: object, other: object, key: str) -> str:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        apart = one.keys() ^ other.keys()
        inside = (
            _differing(one[name], other[name], f"{key}.{name}".removeprefix("."))
            for name in one
            if name in other
        )
        return next(filter(None, inside), f"{key}.{min(apart)}".removeprefix(".") if apart else "")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return key if any(_differing(*pair, key) for pair in zip(one, other, strict=True)) else ""
    alike = one == other and isinstance(one, bool) == isinstance(other, bool)
    return "" if alike else key


def _is_hashed(name: str, value: object) -> bool:
    none = PARTS[name].null if name in PARTS else SCHEMA[name].unhashed
    return SCHEMA[name].hashed and value != none


def objective_of(config: Mapping[str, Any]) -> str:
    """The metric whose mean over seeds a job returns to a sweeper."""
    chosen = config["objective"]
    if chosen is not None:
        return str(chosen)
    return f"{'validation_' * bool(config['validation'])}{headline_of(config)[0]}"


def headline_of(config: Mapping[str, Any]) -> tuple[str, str]:
    """Name and better direction of the score by which a job's task, once imported, judges."""
    node = config.get("task") or PARTS["task"].null or {}
    module, _, name = str(node["_target_"]).rpartition(".")
    if module not in sys.modules and module.startswith("fedclust.tasks."):
        with suppress(ImportError):  # told where the part is made
            import_module(module)
    score = getattr(getattr(sys.modules.get(module), name, None), "score", None)
    return ("accuracy", "higher") if score is None else (score.name, score.better)


_NOT_THERE = "{} is missing; `fedclust run --cfg job` shows all keys"


def missing(text: str) -> str:
    """What to say where OmegaConf finds no value of a key; "" where it says something else."""
    found = re.search(r"Missing mandatory value: (\S+)", text)
    return _NOT_THERE.format(found[1]) if found else ""


def resolve(config: DictConfig, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The config as plain values, with `extra`; ConfigError for unread or missing keys."""
    resolved = {str(key): value for key, value in values_of(config).items()}
    check_known(resolved)
    for key in SCHEMA:
        if key not in resolved:
            raise ConfigError(_NOT_THERE.format(key))
    return {**resolved, **extra}


def values_of(config: DictConfig) -> dict[Any, Any]:
    """The config as plain values; ConfigError for bad interpolations or missing values."""
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        own = "ConfigError raised while resolving interpolation: "
        said = str(error).partition("\n")[0]
        raise ConfigError(missing(said) or said.removeprefix(own)) from error
    assert isinstance(plain, dict)
    written = OmegaConf.to_container(config, resolve=False)
    filled: dict[Any, Any] = _filled(written, plain, plain.get("solver"))
    return filled


def _filled(written: Any, plain: Any, solver: Any) -> Any:
    """A node, in which solvers meant to be like the run's have all of its options that they know.

    Interpolations are those of `written`, values those of `plain`.
    """
    if isinstance(plain, list) and isinstance(written, list):
        return [_filled(*pair, solver) for pair in zip(written, plain, strict=True)]
    if not isinstance(plain, Mapping) or not isinstance(written, Mapping):
        return plain  # of an interpolation: a part that is complete
    filled = {key: _filled(written[key], value, solver) for key, value in plain.items()}
    if written.get("_target_") != LIKE_SOLVER or not isinstance(solver, Mapping):
        return filled
    known = {key: value for key, value in filled.items() if key in solver or value is not None}
    return {**solver, **known}


def check_keys(config: Mapping[str, Any]) -> None:
    """Check every top-level value, and that no text holds what no path may."""
    _refuse_nul(config)
    seed_list(config["seeds"])
    for name, about in SCHEMA.items():
        value, check = config[name], about.check
        if check is not None and not check.holds(value):
            meant = did_you_mean(str(value), check.options)
            require(False, name, value, f"{check.allowed}; {meant}" if meant else check.allowed)


def _refuse_nul(node: Any, key: str = "") -> None:
    """Refuse a text with a character that ends every path, wherever in a config it stands."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            _refuse_nul(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for value in node:
            _refuse_nul(value, key)
    else:
        require("\0" not in str(node), key, node, "a text without the character NUL")


def allowed(name: str) -> str:
    """What a top-level key may be, in words; "" where there is no such key, or it may be much."""
    about = SCHEMA.get(name)
    if about is None or about.check is None:
        return ""
    whole = str(RunConfig.__annotations__[name]).startswith("int")
    words = about.check.allowed
    return words.replace("a number", "a whole number", 1) if whole else words


def check_sampling(config: Mapping[str, Any], typed: Collection[str]) -> None:
    """Refuse a typed fraction that nobody would read, since a number of clients is set."""
    number = config["clients_per_round"]
    require(
        number is None or "participation" not in typed,
        "participation",
        config["participation"],
        f"clients_per_round={number} is set, which takes its place; add clients_per_round=null",
    )


def check_known(config: Mapping[str, Any]) -> None:
    """Refuse a top-level key that nothing reads, as `++name=value` adds it."""
    for name, value in config.items():
        if name not in SCHEMA:  # looking for what is meant takes milliseconds
            all_keys = "there is no such key; `fedclust run --cfg job` shows all"
            require(False, name, value, did_you_mean(name, SCHEMA) or all_keys)
    for top, kind in (("data", DataConfig), ("stop", StopConfig)):
        known, below = sorted(one.name for one in fields(kind)), config.get(top)
        for name, value in below.items() if isinstance(below, Mapping) else ():
            require(name in known, f"{top}.{name}", value, f"{top} has the keys {', '.join(known)}")


def seed_list(seeds: object) -> list[int]:
    """The seeds meant by `seeds: 5` (0 to 4) or a list; ConfigError on anything else."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        allowed = "a number of seeds in [1, 10000], or a list such as [0,1,2]"
        require(1 <= seeds <= 10_000, "seeds", seeds, allowed)
        return list(range(seeds))
    is_list = isinstance(seeds, Sequence | ListConfig) and not isinstance(seeds, str)
    listed = list(seeds) if is_list else []  # type: ignore[call-overload]
    fine = bool(listed) and all(_is_whole(s) and 0 <= s < 2**63 for s in listed)
    require(
        fine and len(set(listed)) == len(listed),
        "seeds",
        seeds,
        "a whole number of seeds of at least 1, or a list of different integers below 2^63 such as "
        "[0,1,2]",
    )
    return listed


def help_lines() -> list[str]:
    """A line per key: its name, default and what it is."""
    rows = [(one.name, _default(one), one.metadata[_KEY].doc) for one in fields(_schema)]
    wide = max(len(name) + len(default) for name, default, _ in rows) + 1
    return [f"{name}={default}".ljust(wide + 2) + doc for name, default, doc in rows]


def _default(one: Field[Any]) -> str:
    if one.default is NO_DEFAULT or one.default == MISSING:
        return "…"
    return "null" if one.default is None else str(one.default).lower()


def use(schema: type) -> None:
    """Take another schema in place of `RunConfig`."""
    global _schema
    _schema = schema
    SCHEMA.clear()
    SCHEMA.update(keys(schema))


def _top(name: str) -> str:
    """The group or key of an override: `tracker` of `tracker.run`, `hydra` of `hydra/launcher`."""
    return name.partition(".")[0].partition("@")[0].partition("/")[0]


_schema: type = RunConfig
SCHEMA: dict[str, Key] = keys(RunConfig)

"""Every config file composes and builds, and every class an extension folder holds can be
chosen.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from configs import NODES as GROUPS
from configs import chosen, composed, names, node, unresolved, with_algorithm
from hydra.utils import get_object
from omegaconf import OmegaConf

from fedclust.config.build import build
from fedclust.config.objects import Objects
from fedclust.config.parts import PARTS, Part
from fedclust.config.schema import LIKE_SOLVER, resolve
from fedclust.config.tree import CONF
from fedclust.engines import simulated
from fedclust.engines.fused import FusedEngine
from fedclust.launch.scales import COSTS, scales_of
from fedclust.launch.typed import Typed
from fedclust.launch.unread import shared_keys, unread
from fedclust.runtime.folder import RunFolder
from fedclust.runtime.progress import Silent
from fedclust.runtime.run import run

CHOICES = [(group, name) for group in GROUPS for name in names(group)]
EXPERIMENTS, CASES = map(names, ("experiment", "case"))
SCALED = [
    (kind, name, scale)
    for kind, found in (("experiment", EXPERIMENTS), ("case", CASES))
    for name in found
    for scale in scales_of(CONF / kind / f"{name}.yaml")
]


# one of every group at once, as long as a group has one, since a composition takes a tenth of a
# second; an algorithm alone, as it takes or refuses choices of other groups
_OTHERS = ([(group, name) for name in names(group)] for group in GROUPS if group != "algorithm")
TOGETHER = [
    *([("algorithm", name)] for name in names("algorithm")),
    *([choice for choice in choices if choice] for choices in zip_longest(*_OTHERS)),
]


@pytest.mark.thinned
@pytest.mark.parametrize("choices", TOGETHER, ids=["/".join(row[0]) for row in TOGETHER])
def test_every_choice_composes_and_fits_its_class(choices: list[tuple[str, str]]) -> None:
    config = composed(*(f"{group}={name}" for group, name in choices))
    for group, name in choices:
        Objects().check(config[group], group)
        if group in ("algorithm", "cluster_metric", "partition", "scenario", "solver"):
            made = Objects().make(config[group], group)
            assert type(made).__module__.startswith("fedclust."), name


# variants: their first line says what is another
VARIANTS = {
    "aggregation": ("multi_krum",),
    "cluster_method": ("dbscan_knee",),
    "partition": (
        *("class_overlap", "class_subsets_emnist", "dirichlet_clients", "dirichlet_label_groups"),
        "majority_class",
    ),
}
OWN_DEFAULTS = [
    (group, name)
    for group, name in CHOICES
    if group not in ("model", "solver") and name not in VARIANTS.get(group, ())
]


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("group", "name"), OWN_DEFAULTS, ids=["/".join(choice) for choice in OWN_DEFAULTS]
)
def test_what_a_choice_writes_is_the_default_of_its_class(group: str, name: str) -> None:
    assert list(_others(yaml.safe_load((CONF / group / f"{name}.yaml").read_text()), group)) == []


def _others(node: Any, key: str) -> Iterator[str]:
    """Options below a node that are not what their class takes by default; solvers aside."""
    solvers = ("fedclust.solver.Solver", LIKE_SOLVER)
    if not isinstance(node, dict) or node.get("_target_") in solvers:
        return
    part = get_object(node["_target_"]) if "_target_" in node else None
    known = inspect.signature(part).parameters if part is not None else {}
    for name, value in node.items():
        yield from _others(value, f"{key}.{name}")
        default = known[name].default if name in known else inspect.Parameter.empty
        plain = list(default) if isinstance(default, tuple) else default
        elsewhere = isinstance(value, dict) or "${" in str(value)
        if default is not inspect.Parameter.empty and not elsewhere and plain != value:
            yield f"{key}.{name}={value}, the class has {default}"


@pytest.mark.thinned
@pytest.mark.parametrize(("group", "name"), CHOICES, ids=["/".join(choice) for choice in CHOICES])
def test_every_choice_shows_all_defaults_and_says_what_it_is(group: str, name: str) -> None:
    text = (CONF / group / f"{name}.yaml").read_text()
    assert text.startswith("# ")
    if "defaults:" in text:
        return
    node = composed(f"{group}={name}")[group]
    runtime = {"in_shape", "num_classes"} | ({"vocabulary"} if group == "model" else set())
    assert set(inspect.signature(get_object(node["_target_"])).parameters) - runtime == set(
        node
    ) - {"_target_"}


@cache
def _overridden(case: str) -> set[str]:
    """The groups that a case chooses, but for the solver, whose keys all experiments set."""
    node = yaml.safe_load((CONF / "case" / f"{case}.yaml").read_text())
    keys = (key for entry in node["defaults"] if isinstance(entry, dict) for key in entry)
    return {key.removeprefix("override /") for key in keys} - {"solver"}


@pytest.mark.thinned
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes(experiment: str) -> None:
    check_arms(experiment, most=1)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_for_every_arm(experiment: str) -> None:
    check_arms(experiment)


def check_arms(experiment: str, most: int | None = None) -> None:
    """Every algorithm, and every case, beside the first of the other; the first of both if 1."""
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    node = yaml.safe_load(text)
    assert text.startswith("# @package _global_\n# ")
    assert node["hydra"]["mode"] == "MULTIRUN"
    params = node["hydra"]["sweeper"]["params"]
    algorithms = params["algorithm"].split(",")
    cases = params["case"].split(",")[:most] if "case" in params else [None]
    assert "algorithm" not in node or len(algorithms) == 1  # see `with_algorithm`
    first = [f"experiment={experiment}", *(f"case={case}" for case in cases[:1] if case)]
    typed = composed(*first, f"algorithm={algorithms[0]}")
    for algorithm in algorithms[:most]:
        config = typed if algorithm == algorithms[0] else with_algorithm(algorithm, *first)
        Objects().make(config["algorithm"], "algorithm")
    for case in cases:
        config = typed
        if case != cases[0]:  # alone it is composed once for all experiments
            above = [f"experiment={experiment}"] if _overridden(str(case)) & set(node) else []
            config = composed(*above, f"case={case}")
        for group in ("partition", "scenario"):
            Objects().make(config[group], group)
        for group in ("dataset", "model"):
            Objects().check(config[group], group)


@pytest.mark.full
def test_a_config_is_put_together_from_nodes_as_by_hydra() -> None:
    choices = ("algorithm=flexcfl", "partition=label_map", "scenario=drift", "solver=sgd")
    values = ("num_clusters=3", "solver.lr=0.5", "algorithm.cold_start.scale=2")
    assert composed(*choices, *values) == resolve(chosen(*choices, *values), {})


@pytest.mark.full
def test_a_choice_that_names_others_is_a_node_as_hydra_composes_it() -> None:
    named = {
        group: [name for name in names(group) if _names_others(CONF / group / f"{name}.yaml")]
        for group in GROUPS
    }
    for number in range(max(map(len, named.values()))):
        asked = {group: found[number] for group, found in named.items() if number < len(found)}
        whole = chosen(*(f"{group}={name}" for group, name in asked.items()))
        for group, name in asked.items():
            made, expected = (
                OmegaConf.to_container(one) for one in (node(group, name), whole[group])
            )
            assert made == expected, name


def _names_others(file: Path) -> bool:
    """Whether a choice puts others into its own node."""
    text = file.read_text()
    return "defaults:" in text and "_global_" not in text


@pytest.mark.full
def test_an_algorithm_is_one_node_of_a_config() -> None:
    given = ("experiment=flexcfl/table3", "case=flexcfl/mnist_mclr")
    for algorithm in ("fedprox", "flexcfl"):
        assert with_algorithm(algorithm, *given) == composed(*given, f"algorithm={algorithm}")


def _scaled(kind: str, name: str, scale: str) -> dict[str, Any]:
    """An experiment or a case of a scale: what its file says in what the paper's size is."""
    node = {**(scales_of(CONF / kind / f"{name}.yaml")[scale] or {})}
    node.pop(COSTS, None)
    if "defaults" in node:
        return composed(f"{kind}={name}", f"scale={scale}")
    config = unresolved(f"{kind}={name}")
    config.scale = deepcopy(chosen(f"scale={scale}").scale)
    config.merge_with({key: value for key, value in node.items() if key != "hydra"})
    return resolve(config, {})


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), dict.fromkeys((kind, name) for kind, name, _ in SCALED))
def test_every_scaled_experiment_or_case_changes_sizes_only(kind: str, name: str) -> None:
    text, paper = (CONF / kind / f"{name}.yaml").read_text(), composed(f"{kind}={name}")
    for scale in (scale for *of, scale in SCALED if of == [kind, name]):
        assert re.search(rf"\n  {scale}:.* # ", text)
        small = _scaled(kind, name, scale)
        if kind == "experiment":
            assert small["name"] == f"{name}-{scale}"
        for group in GROUPS:
            targets = [c[group].get("_target_") for c in (paper, small)]
            assert targets[0] == targets[1]
            assert set(paper[group]) == set(small[group]), f"{name} at {scale} adds to {group}"


@pytest.mark.thinned
@pytest.mark.parametrize(
    "name", [name for kind, name, scale in SCALED if scale == "laptop" and kind == "experiment"]
)
def test_a_laptop_can_hold_what_is_made_for_it(name: str) -> None:
    costs = scales_of(CONF / "experiment" / f"{name}.yaml")["laptop"][COSTS]
    assert set(costs) == {"hours", "gigabytes"}
    assert costs["hours"] > 0
    assert 0.4 < costs["gigabytes"] < 3  # PyTorch alone takes 0.4


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "name"), [("experiment", "cfl_gp/rot8"), ("case", "newcomers/rotation")]
)
def test_a_scale_is_put_over_what_it_scales(kind: str, name: str) -> None:
    assert composed(f"{kind}={name}", "scale=smoke") == _scaled(kind, name, "smoke")


@pytest.mark.full
@pytest.mark.parametrize("experiment", ["compare/mnist", "benchmark/v1", "benchmark/v1_natural"])
def test_a_comparison_of_every_method_forgets_none(experiment: str) -> None:
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    node = yaml.safe_load(text)
    listed = node["hydra"]["sweeper"]["params"]["algorithm"].split(",")
    (reasons,) = (line for line in text.splitlines() if line.startswith("# left out: "))
    told = re.sub(r"\(.*?\)", "", reasons.removeprefix("# left out: ")).replace(" ", "")
    left_out = told.split(",")
    assert sorted(set(listed) & set(left_out)) == []  # listed and left out
    methods = {file.stem for file in (CONF / "algorithm").glob("*.yaml")}
    assert sorted(methods - {*listed, *left_out}) == []  # neither
    assert sorted({*listed, *left_out} - methods) == []  # no method
    cases = node["hydra"]["sweeper"]["params"]["case"].split(",")
    titles = [composed(f"case={case}")["report"]["case"] for case in cases]
    assert sorted(set(node["report"]["order"]) - set(titles)) == sorted(listed)


def classes_of(part: Part) -> Iterator[type]:
    """The public classes of a kind of part that have what its kind needs."""
    package = import_module(part.package)
    folder = [Path(path) for path in getattr(package, "__path__", ())]
    modules = [f"{part.package}.{file.stem}" for at in folder for file in at.glob("[!_]*.py")]
    for module in modules or [part.package]:
        for name, one in vars(import_module(module)).items():
            own = isinstance(one, type) and one.__module__ == module and not name.startswith("_")
            if own and not getattr(one, "_is_protocol", False):
                known = {verb for base in one.__mro__[:-1] for verb in vars(base)}
                if known >= {*part.verbs}:
                    yield one


@pytest.mark.parametrize("group", sorted(PARTS.keys() - {"model", "solver"}))
def test_every_class_of_a_kind_of_part_can_be_chosen(group: str) -> None:
    text = "".join(file.read_text() for file in (CONF / group).rglob("*.yaml"))
    found = [f"{one.__module__}.{one.__name__}" for one in classes_of(PARTS[group])]
    assert len(found) > 1
    assert [name for name in found if f"{name}\n" not in text] == []


def test_interpolations_reach_the_algorithms() -> None:
    config = composed("num_clusters=7", "algorithm=ifca")
    assert config["algorithm"]["num_clusters"] == 7
    assert config["algorithm"]["solver"] == config["solver"]


@pytest.mark.full
def test_what_an_experiment_sets_once_reaches_the_algorithms_that_know_it() -> None:
    given = {"warmup_participation": 0.6, "cluster_choice": "test_loss", "restart_fraction": 0.2}
    overrides = [f"common.{key}={value}" for key, value in given.items()]

    def node(algorithm: str, *keys: str) -> Any:
        return composed(*keys, f"algorithm={algorithm}")["algorithm"]

    for algorithm in ("lcfl", "diffnorm", "gradcos"):
        assert node(algorithm, *overrides)["warmup"]["participation"] == 0.6
    for algorithm in ("ifca", "cfl_mgd"):
        found = node(algorithm, *overrides)
        assert (found["cluster_choice"], found["restart_fraction"]) == ("test_loss", 0.2)
    for algorithm in ("fedavg", "fedbcd", "local"):
        assert node(algorithm, *overrides) == node(algorithm)
    shifts = ("common.swap_probability=0.3", "common.release_every=7")
    for scenario, key, value in (
        ("swap_all", "probability", 0.3),
        ("swap_part", "probability", 0.3),
        ("incremental", "every", 7),
    ):
        assert composed(*shifts, f"scenario={scenario}")["scenario"][key] == value
    # methods whose definition fixes the choice keep theirs
    assert node("ifca_flex", *overrides)["cluster_choice"] == "last"


# methods with a mean of their own, or none
OWN_MEANS = (
    *("fedasync", "ifca_fedasync", "scaffold", "fedsoft", "fedbcd", "jgl", "jgl_epochs", "local"),
)


@pytest.mark.thinned
@pytest.mark.parametrize("name", names("algorithm"))
def test_every_method_that_averages_reads_one_key(name: str) -> None:
    def found(node: object) -> list[object]:
        if not isinstance(node, dict):
            return []
        own = [value for key, value in node.items() if key == "aggregation"]
        return [*own, *(value for below in node.values() for value in found(below))]

    for value in ("uniform", "by_samples"):
        read = found(composed(f"algorithm={name}", f"common.aggregation={value}")["algorithm"])
        assert read == ([] if name in OWN_MEANS else [value] * max(1, len(read)))
    assert composed(f"algorithm={name}")["common"]["aggregation"] == "by_samples"


@pytest.fixture
def set_by_others() -> Iterator[list[Any]]:
    """PyTorch's kinds of products, with settings under their newer names: `allow_tf32` raises."""
    cudnn: Any = torch.backends.cudnn
    products = [cudnn.conv, cudnn.rnn, torch.backends.cuda.matmul]
    before = [product.fp32_precision for product in products]
    for product, precision in zip(products, ("ieee", "tf32", "tf32"), strict=True):
        product.fp32_precision = precision
    yield products
    for product, precision in zip(products, before, strict=True):
        product.fp32_precision = precision


@pytest.mark.full
@pytest.mark.parametrize(
    ("precision", "tf32", "bf16"),
    [("high", True, False), ("bf16", False, True), ("highest", False, False)],
)
def test_only_what_is_asked_for_is_rounded(
    monkeypatch: pytest.MonkeyPatch,
    set_by_others: list[Any],
    precision: str,
    tf32: bool,
    bf16: bool,
) -> None:
    engine = build(composed(f"precision={precision}", "rounds=1")).engine
    assert isinstance(engine, FusedEngine)
    products, seen = set_by_others, []
    before = [product.fp32_precision for product in products]
    assert before == ["ieee", "tf32", "tf32"]

    def answer(*_: object) -> None:
        seen.append([product.fp32_precision for product in products])
        raise LookupError

    monkeypatch.setattr(engine, "answers", {type(None): answer})
    with pytest.raises(LookupError):
        engine.answer(None)  # type: ignore[arg-type]
    assert seen == [["tf32" if tf32 else "ieee"] * 3]
    assert [product.fp32_precision for product in products] == before
    assert engine.products.rounds is bf16


@pytest.mark.full
@pytest.mark.parametrize(
    ("precision", "warnings"),
    [("bf16", ["only simulated on a CPU"]), ("high", ["has no effect on a CPU"]), ("highest", [])],
)
def test_a_run_says_what_a_cpu_makes_of_a_precision(
    precision: str, warnings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = composed(f"precision={precision}", "rounds=1", "algorithm=fedavg", "model=linear")
    said: list[str] = []
    monkeypatch.setattr(Silent, "warn", lambda _, line: said.append(line))
    run(build(config), RunFolder(tmp_path / "job", config), Silent())
    assert len(said) == len(warnings)
    assert all(words in line for words, line in zip(warnings, said, strict=True))
    assert not simulated(precision, torch.device("cuda"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("overrides", "partition"),
    [
        (["dataset=csv"], "natural.Natural"),
        (["dataset=csv", "partition=iid"], "iid.IID"),
        (["dataset=csv", "experiment=quickstart"], "rotated.Rotated"),
        (["dataset=mnist"], "rotated.Rotated"),
    ],
)
def test_data_with_natural_clients_choose_them_unless_another_partition_is_asked_for(
    overrides: list[str], partition: str
) -> None:
    assert chosen(*overrides).partition._target_ == f"fedclust.partitions.{partition}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("where", "own"),
    [
        (("fedprox", "solver"), {"proximal": 1.0}),
        (("ditto", "personal"), {"proximal": 1.0}),
        (("flexcfl", "cold_start", "solver"), {"batch_size": 10, "epochs": None, "steps": 50}),
    ],
)
def test_a_solver_like_the_runs_has_all_options_of_that(
    where: tuple[str, ...], own: dict[str, Any]
) -> None:
    for asked in (
        ["solver=adam", "solver.clip_norm=2", "solver.beta1=0.8", "solver.warmup=3"],
        ["solver=momentum", "solver.nesterov=true", "solver.momentum=0.5"],
    ):
        config = composed(f"algorithm={where[0]}", *asked)
        node = config["algorithm"]
        for name in where[1:]:
            node = node[name]
        assert node == {**config["solver"], **own}
        shared = shared_keys(Typed(tuple(asked)))
        assert unread(unresolved(f"algorithm={where[0]}", *asked), shared) == []

"""The hyper-parameters of the papers' experiments, as published, against the composed configs.

What a paper leaves open is that of the code it was published with, or of the code it takes its
protocol from; what neither says is not pinned.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Any

import pytest
import yaml
from configs import composed

from fedclust.config.tree import CONF

Values = dict[str, Any]

SOLVER = {"momentum": 0.0, "proximal": 0.0, "weight_decay": 0.0}


def solver(**values: Any) -> Values:
    """The settings of the local solver, by their names in a config."""
    return {f"solver.{name}": value for name, value in {**SOLVER, **values}.items()}


# Gu et al. 2024: Table I and section V; k, warm-up and models of the released configs
LCFL_ALL = {"seeds": 5, "clients_per_round": None, "algorithm.base.divisor": "participants"} | {
    f"algorithm.base.warmup.{name}": value
    for name, value in {"mode": "federated", "rounds": 5, "cover_all": True}.items()
}
LCFL_FEMNIST = solver(lr=0.03, decay=0.99, batch_size=20, epochs=5) | {
    "rounds": 100,
    "participation": 0.3,
    "algorithm.base.warmup.participation": 0.6,
    "num_clusters": 10,
    "partition.num_clients": 200,
    "partition.total": 18_345,
    "partition.sharing": "prefix",
    "dataset.normalise": "inverted",
    "model.channels": [16, 32],
    "model.hidden": [256],
}
LCFL_MNIST = solver(lr=0.02, decay=0.99, batch_size=20, epochs=10) | {
    "rounds": 60,
    "participation": 1.0,
    "algorithm.base.warmup.participation": None,
    "num_clusters": 4,
    "partition.num_rotations": 4,
    "partition.examples_per_client": None,
    "model.channels": [16, 32],
    "model.hidden": [256],
}
LCFL_CIFAR = solver(lr=0.02, decay=0.99, batch_size=20, epochs=5) | {
    "rounds": 200,
    "participation": 0.1,
    "algorithm.base.warmup.participation": 0.6,
    "num_clusters": 2,
    "partition.num_clients": 200,
    "partition.num_rotations": 2,
    "partition.examples_per_client": None,
    "model.channels": [32, 84],
    "model.hidden": [256],
}
LCFL = {
    "lcfl/fig2": LCFL_FEMNIST,
    "lcfl/fig3": LCFL_MNIST | {"partition.num_clients": 1200},
    "lcfl/fig4": LCFL_FEMNIST,
    "lcfl/fig5": LCFL_CIFAR,
    "lcfl/table2": LCFL_MNIST | {"partition.num_clients": 1200},
    "lcfl/table3": LCFL_MNIST | {"partition.num_clients": 2400},
}

# Zhao et al. 2023: section 6; local steps, batches and models of IFCA's released code
CFL_MGD_ALL = {
    "seeds": 5,
    "rounds": 300,
    "common.cluster_choice": "test_loss",
    "algorithm.solver.momentum": 0.9,
    "algorithm.averaging": "model",
    "algorithm.start": "independent",
}
CFL_MGD = {
    "cfl_mgd/mnist": solver(lr=0.1, decay=1.0, batch_size=None, epochs=None, steps=10)
    | {
        "participation": 1.0,
        "num_clusters": 4,
        "partition.num_clients": 2400,
        "partition.num_rotations": 4,
        "dataset.normalise": "unit",
        "model.hidden": [200],
        "algorithm.restart_fraction": None,
    },
    "cfl_mgd/cifar10": solver(lr=0.01, decay=0.99, batch_size=50, epochs=5, steps=None)
    | {
        "participation": 0.1,
        "num_clusters": 2,
        "partition.num_clients": 200,
        "partition.num_rotations": 2,
        "dataset.normalise": "per_image",
        "dataset.crop": 24,
        "dataset.augment": "crop_flip_contrast",
        "algorithm.restart_fraction": 0.35,
    },
}

# Lin et al. 2023: section III; batches, rates and iterations are not published
JGL_TEN_CLASSES = {
    "seeds": 5,
    "participation": 1.0,
    "num_clusters": 4,
    "partition.num_clients": 80,
    "algorithm.local": "step",
    "algorithm.similarity": "cosine",
}
JGL_EMNIST = JGL_TEN_CLASSES | {
    "num_clusters": 8,
    "partition.num_clusters": 8,
    "partition.num_clients": 200,
    "partition.classes_per_cluster": 0.86,  # 40 of 47
}
JGL = {
    ("jgl/fig4", "jgl/mnist_mlp"): JGL_TEN_CLASSES,
    ("jgl/fig4", "jgl/mnist_cnn"): JGL_TEN_CLASSES,
    ("jgl/fig5", "jgl/fmnist_mlp"): JGL_TEN_CLASSES,
    ("jgl/fig5", "jgl/cifar10_cnn"): JGL_TEN_CLASSES,
    ("jgl/fig5", "jgl/emnist_mlp"): JGL_EMNIST,
}

# Duan et al. 2022: section 5 and Table II; rates, seeds of groups and rounds of the released code
FLEX_ALL = {
    "rounds": 300,
    "clients_per_round": 20,
    "common.aggregation": "by_samples",
    "scenario.selection": "round_robin_first",
}
FLEX_LOCAL = {"decay": 1.0, "batch_size": 10, "epochs": 10, "steps": None}
FLEX_METHOD = {
    "algorithm.cold_start.scale": 20,
    "algorithm.cold_start.solver.steps": 50,
    "algorithm.cold_start.solver.batch_size": 10,
    "algorithm.group_init": "pretrained_mean",
    "algorithm.joining": "direction",
    "algorithm.migration": True,
    "algorithm.shift.fraction": 0.2,
    "algorithm.inter_group.rate": 0.0,
    "algorithm.aggregation": "by_samples",
}
FLEX_MNIST = solver(lr=0.03, **FLEX_LOCAL) | {
    "num_clusters": 3,
    "partition.num_clients": 1000,
    "partition.classes_per_client": 2,
    "dataset.normalise": "pixel",
}
FLEX_FEMNIST = solver(lr=0.003, **FLEX_LOCAL) | {
    "num_clusters": 5,
    "partition.num_clients": 200,
    "partition.total": 18_345,
    "partition.sharing": "prefix",
    "dataset.normalise": "inverted",
}
FLEX_SYNTHETIC = solver(lr=0.01, **FLEX_LOCAL) | {
    "num_clusters": 5,
    "dataset.num_devices": 100,
    "dataset.total": 75_349,
    "dataset.alpha": 1.0,
    "dataset.beta": 1.0,
}
FLEX_FASHION = solver(lr=0.005, **FLEX_LOCAL) | {
    "num_clusters": 5,
    "partition.num_clients": 500,
    "partition.classes_per_client": 5,
    "partition.total": 60_000,
    "partition.data_seed": 233,
    "dataset.normalise": "pixel",
}
FLEX_CASES = {
    "mnist_mclr": FLEX_MNIST | {"model.hidden": [], "model.l2": 0.001},
    "mnist_mlp": FLEX_MNIST | {"model.hidden": [128], "model.l2": 0.001},
    "mnist_cnn": FLEX_MNIST,
    "femnist_mclr": FLEX_FEMNIST | {"model.hidden": [], "model.l2": 0.001},
    "femnist_mlp": FLEX_FEMNIST | {"model.hidden": [512], "model.l2": 0.001},
    "femnist_cnn": FLEX_FEMNIST,
    "synthetic_mclr": FLEX_SYNTHETIC | {"model.hidden": [], "model.l2": 0.001},
    "fmnist_cnn": FLEX_FASHION,
}
FLEX_TABLE1 = solver(lr=0.03, batch_size=10, epochs=20, decay=1.0) | {
    "rounds": 300,
    "clients_per_round": 20,
    "scenario.selection": "random",
    "partition.num_clients": 1000,
    "model.hidden": [],
}
FLEX_ARMS = {
    ("flexcfl", "static"): FLEX_METHOD,
    ("fedprox", "static"): {"algorithm.solver.proximal": 1.0},
    ("flexcfl_inter", "static"): FLEX_METHOD | {"algorithm.inter_group.rate": 0.1},
    ("flexcfl_rac", "static"): FLEX_METHOD | {"algorithm.joining": "random"},
    ("flexcfl_rcc", "static"): FLEX_METHOD | {"algorithm.cold_start.grouping": "random_centres"},
    ("flexcfl_inter5", "swap_all"): FLEX_METHOD
    | {"algorithm.inter_group.rate": 5.0, "scenario.probability": 0.05},
    ("fedgroup", "swap_part"): FLEX_METHOD
    | {"algorithm.migration": False, "scenario.probability": 0.05},
    ("flexcfl", "incremental"): FLEX_METHOD | {"scenario.fraction": 0.25, "scenario.every": 50},
}

# Bhatia et al. 2026: the released code's driver; rates are those of Adam there
CLOVE_ALL = {
    "seeds": 3,
    "rounds": 100,
    "participation": 1.0,
    "solver._target_": "fedclust.solver.Adam",
    "solver.keep": "call",
    "solver.batch_size": 100,
    "solver.epochs": 1,
    "algorithm.first_round": "random",
    "algorithm.loss_transform": "identity",
}
GEN_CONV_NET = {
    "model.channels": [6, 16],
    "model.kernel": 5,
    "model.padding": 0,
    "solver.lr": 0.01,
}
CLOVE = {
    ("label_skew", "mnist_skew_1"): {"num_clusters": 5, "partition.num_clients": 25},
    ("label_skew", "mnist_skew_2"): {"num_clusters": 5, "partition.min_per_cluster": 5100},
    ("label_skew", "mnist_skew_3"): {"num_clusters": 5, "partition.min_per_cluster": 6000},
    ("label_skew", "mnist_skew_4"): {"num_clusters": 10, "partition.num_clients": 50},
    ("feature_skew", "mnist_rotated"): {"num_clusters": 4, "partition.base.num_clients": 40},
    ("concept_shift", "mnist_label_swaps"): {
        "num_clusters": 4,
        "partition.base.num_clients": 20,
        "partition.base.examples_per_client": 1000,
    },
}
CLOVE_CIFAR = {"skew_1": 15, "skew_2": 15, "skew_3": 25, "skew_4": 30}

# Kim et al. 2024: the released notebook
ROT8 = solver(lr=0.1, decay=1.0, batch_size=100, epochs=None, steps=1) | {
    "rounds": 18,
    "num_clusters": 4,
    "partition.base.num_clients": 128,
    "partition.base.train_fraction": 0.7,
    "model.hidden": [200],
    "algorithm.period": 2,
}

# Zeng et al. 2023: the released code's run on MNIST
STOCFL = solver(lr=0.1, decay=1.0, batch_size=50, epochs=20, steps=None) | {
    "rounds": 100,
    "clients_per_round": 20,
    "model.hidden": [2048],
}

# Jothimurugesan et al. 2023: the released code; tables of change points in the scenario's tests
FEDDRIFT = {
    "rounds": 2000,
    "scenario.every": 200,
    "scenario.test": "next",
    "partition.maps": "feddrift4",
    "partition.base.num_clients": 10,
    "partition.base.examples_per_client": 1000,
    "solver._target_": "fedclust.solver.Adam",
    "solver.lr": 0.01,
    "solver.steps": 5,
    "solver.batch_size": 500,
    "algorithm.delta": 0.1,
}

# what is swept over: methods, cases, lambda of JGL and eta_g of FlexCFL
SWEPT = {
    "lcfl/table2": {"algorithm@algorithm.base": "lcfl,ifca,fedavg,local"},
    "lcfl/table3": {"algorithm@algorithm.base": "lcfl,ifca,fedavg,local"},
    "cfl_mgd/table2": {
        "case": "cfl_mgd/mnist,cfl_mgd/cifar10",
        "algorithm": "cfl_mgd,ifca,fedavg,fedbcd",
    },
    "jgl/fig4": {"algorithm.gradient_weight": "0,0.1,0.2,0.5"},
    "jgl/fig5": {"algorithm.gradient_weight": "0,0.1,0.2,0.5"},
    "flexcfl/table1": {"algorithm": "fedavg"},
    "flexcfl/table3": {
        "algorithm": "fedavg,fedprox,ifca_flex,fesem,flexcfl_rcc,flexcfl_rac,flexcfl,flexcfl_inter"
    },
    "flexcfl/table4": {
        "scenario": "swap_all,swap_part,incremental",
        "algorithm": "fedavg,ifca_flex,fesem,fedgroup,flexcfl,flexcfl_inter5",
    },
    "flexcfl/fig3d": {"algorithm.inter_group.rate": "0,0.01,0.1,1"},
    "flexcfl/fig5": {"algorithm.inter_group.rate": "0,0.1,1,5,10"},
    "clove/participation": {"participation": "1.0,0.9,0.75,0.5,0.25,0.1"},
    "stocfl/threshold": {"algorithm.similarity": "-1,0.2,0.3,0.65,2"},
    "feddrift/mnist4": {"scenario.table": "feddrift_a,feddrift_c"},
}


def differing(config: dict[str, Any], published: Values) -> dict[str, tuple[Any, Any]]:
    """What is not as published: here and there, by key."""
    found = {}
    for key, value in published.items():
        here: Any = config
        for part in key.split("."):
            here = here[part]
        if here != value or type(here) is not type(value):
            found[key] = (here, value)
    return found


@pytest.mark.thinned
@pytest.mark.parametrize("experiment", LCFL)
def test_lcfl(experiment: str) -> None:
    config = composed(f"experiment={experiment}", "algorithm=last_local")
    assert differing(config, LCFL_ALL | LCFL[experiment]) == {}


def test_lcfl_against_the_published_table() -> None:
    """The numbers of `published.csv`, which the reports print, are those pinned here."""
    names = {
        "participation_rate": "participation",
        "initial_lr": "solver.lr",
        "batch_size": "solver.batch_size",
        "local_epochs": "solver.epochs",
        "global_iterations": "rounds",
        "lr_decay_per_round": "solver.decay",
    }
    pinned = {"FEMNIST": LCFL_FEMNIST, "Rotated MNIST": LCFL_MNIST, "Rotated CIFAR10": LCFL_CIFAR}
    published = files("fedclust.papers").joinpath("published.csv")
    rows = [
        row
        for row in csv.DictReader(published.read_text().splitlines())
        if row["paper"] == "LCFL" and "hyper-parameters" in row["experiment"]
    ]
    assert len(rows) == 18
    for row in rows:
        value = float(row["mean"]) / (100 if row["unit"] == "percent" else 1)
        data = row["dataset"].removesuffix(" (10 classes a-j)")
        assert pinned[data][names[row["metric"]]] == pytest.approx(value)


@pytest.mark.full
@pytest.mark.parametrize("case", CFL_MGD)
def test_cfl_mgd(case: str) -> None:
    config = composed("experiment=cfl_mgd/table2", "algorithm=cfl_mgd", f"case={case}")
    assert differing(config, CFL_MGD_ALL | CFL_MGD[case]) == {}


@pytest.mark.full
@pytest.mark.parametrize(("experiment", "case"), JGL)
def test_jgl(experiment: str, case: str) -> None:
    config = composed(f"experiment={experiment}", "algorithm=jgl", f"case={case}")
    assert differing(config, JGL[experiment, case]) == {}
    if "emnist" not in case:
        subsets = config["partition"]["subsets"]
        assert subsets[:2] == [[0, 1, 2, 3, 4, 5, 6, 8], [0, 1, 2, 3, 4, 6, 7, 9]]
        assert [len(subset) for subset in subsets] == [8, 8, 8, 8]


@pytest.mark.full
@pytest.mark.parametrize("case", FLEX_CASES)
def test_flexcfl_table3(case: str) -> None:
    config = composed("experiment=flexcfl/table3", "algorithm=fedavg", f"case=flexcfl/{case}")
    assert differing(config, FLEX_ALL | FLEX_CASES[case]) == {}
    assert config["algorithm"]["solver"] == config["solver"]


@pytest.mark.full
@pytest.mark.parametrize("classes", [1, 3, 5, None])
def test_flexcfl_table1(classes: int | None) -> None:
    case = f"case=flexcfl/classes_{classes or 'iid'}"
    config = composed("experiment=flexcfl/table1", "algorithm=fedavg", case)
    own = {"partition.classes_per_client": classes} if classes else {"partition.sizes": "power_law"}
    assert differing(config, FLEX_TABLE1 | own) == {}


@pytest.mark.full
@pytest.mark.parametrize(("algorithm", "scenario"), FLEX_ARMS)
def test_flexcfl_arms(algorithm: str, scenario: str) -> None:
    shift = [] if scenario == "static" else [f"scenario={scenario}"]
    table = "table4" if shift else "table3"
    arm = [f"algorithm={algorithm}", "case=flexcfl/mnist_mclr"]
    config = composed(f"experiment=flexcfl/{table}", *arm, *shift)
    published = FLEX_CASES["mnist_mclr"] | FLEX_ARMS[algorithm, scenario]
    assert differing(config, FLEX_ALL | published) == {}


@pytest.mark.full
@pytest.mark.parametrize(("experiment", "case"), CLOVE)
def test_clove(experiment: str, case: str) -> None:
    arm = ["algorithm=clove_random", f"case=clove/{case}"]
    config = composed(f"experiment=clove/{experiment}", *arm)
    assert differing(config, CLOVE_ALL | GEN_CONV_NET | CLOVE[experiment, case]) == {}


@pytest.mark.full
@pytest.mark.parametrize("skew", CLOVE_CIFAR)
def test_clove_on_cifar(skew: str) -> None:
    config = composed(
        "experiment=clove/label_skew", "algorithm=clove_random", f"case=clove/cifar10_{skew}"
    )
    sizes = {"partition.num_clients": CLOVE_CIFAR[skew], "partition.examples_per_client": 500}
    model = {"model.channels": [64, 128, 256, 512], "model.hidden": [1024, 512], "solver.lr": 0.001}
    assert differing(config, CLOVE_ALL | model | sizes) == {}


@pytest.mark.full
@pytest.mark.parametrize(
    ("experiment", "arm", "published"),
    [
        ("cfl_gp/rot8", ["algorithm=cfl_gp"], ROT8),
        ("stocfl/shifts", ["algorithm=stocfl", "case=stocfl/shifted"], STOCFL),
        (
            "stocfl/threshold",
            ["algorithm=stocfl", "case=stocfl/classes"],
            STOCFL | {"algorithm.mu": 0.1, "algorithm.observe.epochs": 1},
        ),
        ("feddrift/mnist4", ["algorithm=feddrift"], FEDDRIFT),
    ],
)
def test_released_runs(experiment: str, arm: list[str], published: Values) -> None:
    assert differing(composed(f"experiment={experiment}", *arm), published) == {}


@pytest.mark.parametrize("experiment", SWEPT)
def test_what_is_swept_over(experiment: str) -> None:
    node = yaml.safe_load((CONF / "experiment" / f"{experiment}.yaml").read_text())
    params = node["hydra"]["sweeper"]["params"]
    assert {key: params[key] for key in SWEPT[experiment]} == SWEPT[experiment]

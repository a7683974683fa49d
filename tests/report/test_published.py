"""Numbers as the papers print them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from fedclust.helpers.errors import ConfigError
from fedclust.papers.published import Published, lookup, rounding, table
from fedclust.papers.values import Gain

MNIST = {"dataset": "mnist"}


def test_the_copy_is_the_source(root: Path) -> None:
    source = root.parent / "shared" / "paper_results.csv"
    copy = files("fedclust.papers").joinpath("published.csv").read_bytes()
    assert copy.startswith(b"paper,experiment,dataset,model,algorithm")
    if source.is_file():
        named = source.read_bytes().replace(b"Joint gradient+loss CFL", b"JGL")
        assert copy.startswith(named)  # what other papers print stands behind


@pytest.mark.parametrize(
    ("algorithm", "iteration", "mean", "std"),
    [
        ("lcfl", 5, 89.66, 0.57),
        ("ifca", 60, 97.42, 0.09),
        ("fedavg", 10, 92.52, 0.31),
        ("local", 15, 84.33, 3.22),
    ],
)
def test_lcfl_table_two(algorithm: str, iteration: int, mean: float, std: float) -> None:
    assert lookup("LCFL/Table II", algorithm, MNIST, iteration, whole=False) == Published(mean, std)


def test_an_iteration_that_is_not_printed_has_no_number() -> None:
    assert lookup("LCFL/Table II", "lcfl", MNIST, 6, whole=False) is None
    assert lookup("LCFL/Table II", "lcfl", MNIST, 60, whole=True) == Published(97.90, 0.08)
    assert lookup("LCFL/Table II", "fesem", MNIST, 60, whole=True) is None


@pytest.mark.parametrize(
    ("algorithm", "iteration", "mean"),
    [("fedavg", 1, 10.84), ("fedavg", 18, 34.25), ("ifca", 18, 61.6), ("cfl_gp", 18, 67.2)],
)
def test_cfl_gp_notebook(algorithm: str, iteration: int, mean: float) -> None:
    found = lookup("CFL-GP/Released notebook", algorithm, MNIST, iteration, whole=True)
    assert found == Published(mean, None)


@pytest.mark.parametrize(
    ("dataset", "case", "algorithm", "mean"),
    [
        ("mnist", "mnist_skew_1", "clove_random", 99.8),
        ("mnist", "mnist_skew_1", "ifca_random", 99.1),
        ("cifar10", "cifar10_skew_2", "sattler_cfl", 62.1),
        ("cifar10", "cifar10_skew_1", "clove", 90.5),
    ],
)
def test_clove_is_told_apart_by_the_case(
    dataset: str, case: str, algorithm: str, mean: float
) -> None:
    choices = {"dataset": dataset, "scenario": "static", "case": f"clove/{case}"}
    name = "CLoVE/Label skew"
    assert lookup(name, algorithm, choices, 100, whole=True) == Published(mean, None)
    choices["case"] = f"clove/{dataset}_skew_3"  # nothing is printed
    assert lookup(name, algorithm, choices, 100, whole=True) is None


@pytest.mark.parametrize(
    ("table", "dataset", "case", "algorithm"),
    [
        ("Label skew", "mnist", "mnist_skew_1", "sattler_cfl"),
        ("Label skew", "cifar10", "cifar10_skew_1", "flexcfl"),
        ("Concept shift", "mnist", "mnist_label_swaps", "clove"),
    ],
)
def test_what_is_printed_for_another_data_set_is_not_of_this(
    table: str, dataset: str, case: str, algorithm: str
) -> None:
    choices = {"dataset": dataset, "scenario": "static", "case": f"clove/{case}"}
    assert lookup(f"CLoVE/{table}", algorithm, choices, 100, whole=True) is None


def test_data_sets_of_one_table_are_told_apart() -> None:
    name = "CFL-MGD/Table 2"
    mnist, cifar = (
        {"dataset": "mnist", "model": "mlp200"},
        {"dataset": "cifar10", "model": "tf_cifar"},
    )
    assert lookup(name, "cfl_mgd", mnist, 300, whole=True) == Published(96.05, 0.12)
    assert lookup(name, "mcfl", cifar, 300, whole=True) == Published(80.43, 0.14)
    assert lookup(name, "fedbcd", cifar, 300, whole=True) == Published(47.31, 1.50)


@pytest.mark.parametrize(
    ("dataset", "model", "algorithm", "mean"),
    [
        ("mnist", "mclr", "flexcfl", 95.8),
        ("mnist", "mlp128", "fesem", 89.8),
        ("femnist10", "mlp512", "flexcfl_eta_g", 88.9),
        ("emnist", "flex_femnist_cnn", "ifca", 98.1),
        ("fashion_mnist", "flex_fmnist_cnn", "flexcfl_rac", 85.0),
        ("synthetic", "mclr", "fedavg", 66.9),
    ],
)
def test_flexcfl_table_three(dataset: str, model: str, algorithm: str, mean: float) -> None:
    choices = {"dataset": dataset, "model": model}
    assert lookup("FlexCFL/Table III", algorithm, choices, 300, whole=True) == Published(mean, None)


def test_flexcfl_table_four_is_told_apart_by_the_scenario() -> None:
    choices = {"dataset": "mnist", "model": "flex_mnist_cnn"}
    found = {
        scenario: lookup(
            "FlexCFL/Table IV", "flexcfl", choices | {"scenario": scenario}, 300, whole=True
        )
        for scenario in ("swap_all", "swap_part", "incremental", "static")
    }
    assert found == {
        "swap_all": Published(97.0, None),
        "swap_part": Published(97.0, None),
        "incremental": Published(97.4, None),
        "static": None,
    }


def test_agreement_is_by_the_interval_of_one_more_run() -> None:
    """Three seeds with s = 0.1 allow 4.303 * 0.1 * sqrt(4 / 3) = 0.497 points."""
    seeds = np.array([-0.1, 0.0, 0.1])
    assert Published(90.0, None).agrees(90.49 + seeds)
    assert not Published(90.0, None).agrees(90.51 + seeds)
    # a printed spread of 0.3 of as many runs: 4.303 * sqrt((0.1² + 0.3²) / 3) = 0.786
    assert Published(90.0, 0.3).agrees(90.78 + seeds)
    assert not Published(90.0, 0.3).agrees(90.79 + seeds)
    # however much the seeds differ, 2 points; of one seed nothing is known, 1 point
    assert not Published(90.0, None).agrees(92.1 + 30 * seeds)
    assert Published(90.0, 3.0).agrees(np.array([89.0]))
    assert not Published(90.0, 3.0).agrees(np.array([88.9]))


def test_seeds_without_spread_agree_with_what_they_round_to() -> None:
    """87.93 in all seeds is printed as 87.9; without a spread the interval alone has no width."""
    printed = lookup(
        "FlexCFL/Table III", "flexcfl", {"dataset": "mnist", "model": "mclr"}, 1, whole=True
    )
    assert printed.agrees(np.full(3, 95.75))
    assert printed.agrees(np.full(3, 95.85))
    assert not printed.agrees(np.full(3, 95.86))
    assert not printed.agrees(np.full(3, 95.74))
    assert rounding("87.9") == 0.05
    assert rounding("96.05") == 0.005
    assert rounding("60") == 0.5
    lead = Gain(left="a", right="b", points=0.8)
    ours = np.full((1, 3), 0.9)
    assert lead.verdict([ours + 0.0084, ours]).holds
    assert not lead.verdict([ours + 0.0086, ours]).holds


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"report.published=LCFL/Table 9 is not allowed: one of .*LCFL/Table II"
    ):
        table("LCFL/Table 9")


DATASETS = {
    "MNIST": "mnist",
    "FEMNIST": "emnist",
    "FashionMNIST": "fashion_mnist",
    "Synthetic": "synthetic",
}
ALGORITHMS = {
    "CFL-MGD (MCFL)": "cfl_mgd",
    "IFCA": "ifca_flex",
    "FlexCFL-RCC": "flexcfl_rcc",
    "FlexCFL-RAC": "flexcfl_rac",
    "FlexCFL-eta_g": "flexcfl_eta_g",
}
MODELS = {"MCLR": "mclr", "MLP": "mlp128", "CNN": "flex_mnist_cnn"}


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("LCFL/Table II", 20),
        ("LCFL/Table III", 20),
        ("CFL-MGD/Table 2", 8),
        ("FlexCFL/Table I", 20),
        ("FlexCFL/Table II", 16),
        ("FlexCFL/Table III", 63),
        ("FlexCFL/Table IV", 144),
    ],
)
def test_every_cell_is_found_from_plausible_choices(name: str, cells: int) -> None:
    found = 0
    for row in table(name):
        if row["metric"].endswith("_gain") or not row["mean"]:
            continue
        dataset = (
            row["dataset"]
            .partition("(")[0]
            .replace("Rotated", "")
            .replace("CIFAR-10", "cifar10")
            .strip()
        )
        setting = row["setting"].partition(";")[0]
        choices = {
            "dataset": DATASETS.get(dataset, dataset.lower()),
            "model": MODELS.get(row["model"], "cnn_femnist_tiny"),
            "scenario": setting.replace(" ", "_"),
            "classes": setting.partition(" ")[0],
        }
        algorithm = ALGORITHMS.get(row["algorithm"], row["algorithm"].lower())
        whole = not row["round"].isdigit()
        iteration = 300 if whole else int(row["round"])
        number = lookup(name, algorithm, choices, iteration, whole=whole, metric=row["metric"])
        std = float(row["std"]) if row["std"] else None
        assert number == Published(float(row["mean"]), std), row
        found += 1
    assert found == cells

"""Numbers as the papers print them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from fedclust.helpers.errors import ConfigError
from fedclust.papers.published import Published, lookup, margin, rounding, table
from scripts.papers import rules

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


def test_agreement_is_equivalence_or_a_narrow_interval() -> None:
    """Three seeds with s = 0.1: the 90 % interval of the mean is ± 2.920 s / sqrt(3) = 0.169."""
    seeds = np.array([-0.1, 0.0, 0.1])
    printed = Published(90.0, None)
    assert printed.agrees(90.83 + seeds) is True
    assert printed.agrees(90.84 + seeds) is False
    # s = 0.4: one more run within 4.303 * 0.4 * sqrt(4 / 3) = 1.987, and s = 0.41 within 2.037
    assert printed.agrees(91.9 + 4 * seeds) is True
    assert printed.agrees(91.9 + 4.1 * seeds) is None
    assert printed.agrees(90 + 30 * seeds) is None, "more noise never makes seeds agree"
    # a printed spread of 0.3 of as many runs: 4.303 * sqrt((0.3² + 0.3²) / 3) = 1.054
    assert Published(90.0, 0.3).agrees(91.05 + 3 * seeds) is True
    assert Published(90.0, 0.3).agrees(91.06 + 3 * seeds) is False
    # of one seed nothing is known but that it lies within the margin
    assert printed.agrees(np.array([89.0])) is None
    assert printed.agrees(np.array([88.9])) is False
    # two seeds are too few for equivalence
    assert printed.agrees(np.array([90.5, 90.5])) is False
    assert Published(400.0, None, margin=20.0).agrees(419 + seeds) is True


def test_a_report_judges_like_the_score() -> None:
    """The same limits as the rules of docs/results, of drawn means, spreads and seeds."""
    draw = np.random.default_rng(0)
    row = {"mean": "90.0", "std": "", "unit": "percent", "variant": "", "metric": "test_acc"}
    seen = set()
    for _ in range(300):
        n = int(draw.integers(1, 6))
        values = 90 + draw.uniform(-2, 2) + draw.uniform(0, 1) * draw.standard_normal(n)
        std = float(values.std()) if n > 1 else None
        measured = rules.Measured(float(values.mean()), std, tuple("abcde"[:n]))
        state = rules.decide(rules.Facts(row, measured))
        said = {rules.REPRODUCED: True, rules.CONSISTENT: True, rules.OUTSIDE: False}.get(state)
        printed = Published(90.0, None, rounding("90.0"), margin(row))
        assert printed.agrees(values) is said, (state, values)
        seen.add(state)
    assert {rules.REPRODUCED, rules.CONSISTENT, rules.OUTSIDE, rules.CANNOT_TELL} <= seen


def test_seeds_without_spread_agree_with_what_lies_within_the_margin() -> None:
    """95.8 is printed: a point to each side; of two seeds, which are too few, what rounds to it."""
    printed = lookup(
        "FlexCFL/Table III", "flexcfl", {"dataset": "mnist", "model": "mclr"}, 1, whole=True
    )
    assert printed.agrees(np.full(3, 96.79))
    assert not printed.agrees(np.full(3, 96.81))
    assert printed.agrees(np.full(2, 95.75))
    assert printed.agrees(np.full(2, 95.85))
    assert not printed.agrees(np.full(2, 95.86))
    assert not printed.agrees(np.full(2, 95.74))
    assert rounding("87.9") == 0.05
    assert rounding("96.05") == 0.005
    assert rounding("60") == 0.5


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
